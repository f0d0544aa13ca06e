"""Graphs that have together whatever a run can do.

Each is built anew for a program: what differs from one to the next (a deadline, a node that is local)
is drawn from the program's own chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, Final, Protocol

from pydantic import BaseModel
from steered_office import office
from witness import Witness

from abeyance import (
    END,
    START,
    Context,
    Graph,
    append,
)
from abeyance.core.events import Message

_ROUNDS: Final = 3


class Decision(BaseModel):
    approved: bool


class Mixed(BaseModel):
    count: int = 0
    enough: bool = False
    log: Annotated[list[str], append] = []
    decision: Decision | None = None
    task: str = ""


class Maker(Protocol):
    def __call__(self, random: Random, witness: Witness) -> Graph: ...


def desk(random: Random, witness: Witness) -> Graph:
    """Gates side by side, one in a nested graph, a join, a look before a node, and finally nodes."""
    graph = Graph(
        "desk",
        state=Mixed,
        interrupt_before=random.choice([(), ("pay",), ("pay", "noted")]),
        interrupt_after=random.choice([(), ("noted",)]),
    )
    graph.interrupt("first", prompt="{count}?", response=Decision, answer_to="decision")
    graph.interrupt(
        "second",
        prompt="Second?",
        requested_capability="desk:second",
        response=bool,
        **_deadline(random, {"default": False}),
    )
    graph.interrupt("third", prompt="Third?", **_deadline(random, "halt", "goto:late", "goto:late"))
    legal = Graph("legal", state=Mixed)
    legal.interrupt(
        "deep", prompt="Deep {count}?", **_deadline(random, f"goto:{END}", {"default": None})
    )

    @legal.node
    async def heard(state: Mixed, ctx: Context) -> dict[str, Any]:
        return {"log": [f"deep {ctx.answers['deep']}"]}

    legal.edge(START, "deep")
    legal.edge("deep", "heard")
    graph.subgraph("review", legal, output={"log": "log"})

    @graph.node
    async def noted(state: Mixed, ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"log": [f"third {ctx.answers.get('third')}"]}

    @graph.node
    async def pay(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": ["paid", *witness.read(ctx.address, inbox)]}

    @graph.node
    async def late(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": ["late", *witness.read(ctx.address, inbox)]}

    @graph.node
    async def tidy(state: Mixed, ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"log": [f"tidy {ctx.outcome}"]}

    @graph.node
    async def sweep(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"log": ["swept"]}

    for name in ("first", "second", "third", "review"):
        graph.edge(START, name)
    graph.edge("second", "pay")
    graph.edge("first", "pay", when={"decision.approved": True})
    graph.edge("first", "late", when="else")
    graph.edge("third", "noted")
    graph.edge(["noted", "review"], "late", join="arrived")
    graph.finally_("tidy", "sweep")
    return graph


def sprints(random: Random, witness: Witness) -> Graph:
    """Loops of short local nodes side by side, one of which reads messages, and gates between them."""
    graph = Graph("sprints", state=Mixed)
    naps = [random.choice([0.0, 0.005, 0.03, 0.08]) for _ in range(3)]

    @graph.node(local=True)
    async def read(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        await asyncio.sleep(naps[0])
        found = witness.read(ctx.address, inbox)
        return {"log": found, "count": state.count + 1, "enough": "enough" in found}

    @graph.node(local=True)
    async def left(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(naps[1])
        return {"log": ["left"]}

    @graph.node(local=random.random() < 0.8)
    async def right(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(naps[2])
        return {"log": ["right"]}

    @graph.node(local=True)
    async def both(state: Mixed) -> None:
        return None

    graph.interrupt("gate", prompt="On?", **_deadline(random, {"default": None}))
    graph.edge(START, "read")
    graph.edge("read", "left")
    graph.edge("read", "right")
    graph.edge(["left", "right"], "both")
    graph.route(
        "both",
        lambda state: (
            END
            if state.enough or state.count > _ROUNDS * 2
            else "gate"
            if state.count % 4 == 3
            else "read"
        ),
        to=["read", "gate", END],
    )
    # Code that decides the way out of a question runs locally.
    graph.route("gate", lambda state: "read", to=["read"])
    return graph


def _deadline(random: Random, *policies: Any) -> dict[str, Any]:
    """A deadline that is soon, late or never, and what happens then."""
    timeout = random.choice([None, "60ms", "300ms", "900ms", "1h"])
    return {} if timeout is None else {"timeout": timeout, "on_timeout": random.choice(policies)}


GRAPHS: Final[Mapping[str, Maker]] = {
    "desk": desk,
    "sprints": sprints,
    "office": office,
}
