"""Small graphs for the tests that run on Temporal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Unpack

from pydantic import BaseModel

from abeyance import END, START, Context, Graph, append
from abeyance.authoring.terms import TermsOptions


class Decision(BaseModel):
    approved: bool


class State(BaseModel):
    amount: float = 0
    log: Annotated[list[str], append] = []
    decision: Decision | None = None


def gated(
    name: str = "gated",
    *,
    timeout: str | None = None,
    on_timeout: Any = "halt",
    capability: str | None = None,
    **terms: Unpack[TermsOptions],
) -> Graph:
    """Return before -> approve -> after, with a node `late` to which an on_timeout may go."""
    graph = Graph(name, state=State)

    @graph.node
    async def before(state: State) -> dict[str, Any]:
        return {"log": ["before"]}

    @graph.node
    async def after(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"after {ctx.answers['approve']}"]}

    @graph.node
    async def late(state: State) -> dict[str, Any]:
        return {"log": ["late"]}

    graph.interrupt(
        "approve",
        prompt="Pay {amount}?",
        response=Decision,
        answer_to="decision",
        requested_capability=capability,
        timeout=timeout,
        on_timeout=on_timeout,
        **terms,
    )
    graph.edge(START, "before")
    graph.edge("before", "approve")
    graph.edge("approve", "after", when={"decision.approved": True})
    graph.edge("approve", "late", when="else")
    return graph


def chain(length: int, name: str = "chain", *, local: bool = False) -> Graph:
    """Return n0 -> n1 -> ..., in which each node logs its name."""
    graph = Graph(name, state=State)

    def add(number: int) -> None:
        @graph.node(name=f"n{number}", local=local)
        async def step(state: State) -> dict[str, Any]:
            return {"log": [f"n{number}"]}

    for number in range(length):
        add(number)
        graph.edge(START if number == 0 else f"n{number - 1}", f"n{number}")
    return graph


def gates(count: int, name: str = "gates", *, capability: str | None = None) -> Graph:
    """Return a graph with `count` gates side by side, each with a node after it."""
    graph = Graph(name, state=State)

    def add(number: int) -> None:
        asked = None if capability is None else f"{capability}:{number}"
        graph.interrupt(f"gate{number}", prompt=f"Gate {number}?", requested_capability=asked)

        @graph.node(name=f"done{number}", local=True)
        async def done(state: State, ctx: Context) -> dict[str, Any]:
            return {"log": [f"done{number} {ctx.answers[f'gate{number}']}"]}

        graph.edge(START, f"gate{number}")
        graph.edge(f"gate{number}", f"done{number}")

    for number in range(count):
        add(number)
    return graph


class Held:
    """A graph with one node that runs until it is released or stopped, and counts both."""

    def __init__(
        self,
        how: Literal["async", "thread", "deaf"] = "async",
        *,
        name: str = "held",
        **options: Any,
    ) -> None:
        self.started = 0
        self.stopped = 0
        self.release = threading.Event()
        self.graph = Graph(name, state=State)
        body = {"async": self._hold, "thread": self._hold_thread, "deaf": self._hold_deaf}[how]
        self.graph.node(name="hold", **options)(body)

        @self.graph.node
        async def cleanup(state: State, ctx: Context) -> dict[str, Any]:
            return {"log": [f"cleanup {ctx.outcome}"]}

        self.graph.edge(START, "hold")
        self.graph.edge("hold", END)
        self.graph.finally_("cleanup")

    async def _hold(self, state: State, ctx: Context) -> dict[str, Any]:
        self.started += 1
        try:
            while not self.release.is_set():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        return {"log": ["held"]}

    def _hold_thread(self, state: State, ctx: Context) -> dict[str, Any]:
        self.started += 1
        while not self.release.wait(0.02):
            if ctx.cancelled:
                self.stopped += 1
                return {"log": ["stopped in order"]}
        return {"log": ["held"]}

    async def _hold_deaf(self, state: State, ctx: Context) -> dict[str, Any]:
        self.started += 1
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                self.stopped += 1
        return {"log": ["held"]}


def asking(name: str = "asking", *, state: Any = None, **question: Any) -> Graph:
    """Return a graph of one question, `ask`."""
    graph = Graph(name, state=state)
    graph.interrupt("ask", **{"prompt": "Pay?", **question})
    graph.edge(START, "ask")
    return graph


def alone(
    function: Callable[..., Any], *, name: str = "alone", node: str = "work", **options: Any
) -> Graph:
    """Return a graph of one node."""
    graph = Graph(name, state=options.pop("state", State))
    graph.node(name=node, **options)(function)
    graph.edge(START, node)
    return graph


PIXEL: Final = b"\x89PNG\r\n\x1a\n, and so on"


def filed(name: str = "filed") -> Graph:
    """Return a graph whose node asks with a picture and a page in the payload."""
    graph = Graph(name, state=State)

    @graph.node
    async def ask(state: State, ctx: Context) -> dict[str, Any]:
        shown = {
            "picture": await ctx.file("Beleg 1.png", PIXEL),
            "page": await ctx.file("page.html", b"<script>alert(1)</script>"),
        }
        await ctx.interrupt("approve", prompt="Pay?", payload=shown, response=bool)
        return {}

    graph.edge(START, "ask")
    return graph
