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
    CompositeInterrupt,
    Context,
    Goto,
    Graph,
    Interrupt,
    Send,
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
    """Makes a graph. `local`: some of its nodes may be local ones."""

    def __call__(self, random: Random, witness: Witness, *, local: bool) -> Graph: ...


def desk(random: Random, witness: Witness, *, local: bool) -> Graph:
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

    @legal.node(local=local and random.random() < 0.5)
    async def heard(state: Mixed, ctx: Context) -> dict[str, Any]:
        return {"log": [f"deep {ctx.answers['deep']}"]}

    legal.edge(START, "deep")
    legal.edge("deep", "heard")
    graph.subgraph("review", legal, output={"log": "log"})

    @graph.node(local=local and random.random() < 0.5)
    async def noted(state: Mixed, ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"log": [f"third {ctx.answers.get('third')}"]}

    @graph.node
    async def pay(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": ["paid", *witness.read(ctx.address, inbox)]}

    @graph.node
    async def late(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": ["late", *witness.read(ctx.address, inbox)]}

    @graph.node(local=local and random.random() < 0.5)
    async def tidy(state: Mixed, ctx: Context) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"log": [f"tidy {ctx.outcome}"]}

    @graph.node
    async def sweep(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"log": ["swept"]}

    for name in ("first", "second", "third", "review"):
        graph.edge(START, name)
    if local:
        # Code that decides the way out of a question runs locally.
        graph.route(
            "second", lambda state: "late" if state.count == 3 else "pay", to=["pay", "late"]
        )
    else:
        graph.edge("second", "pay")
    graph.edge("first", "pay", when={"decision.approved": True})
    graph.edge("first", "late", when="else")
    graph.edge("third", "noted")
    graph.edge(["noted", "review"], "late", join="arrived")
    graph.finally_("tidy", "sweep")
    return graph


def spread(random: Random, witness: Witness, *, local: bool) -> Graph:
    """A fan-out of which some items ask and one fails; then two processes of one visit ask."""
    graph = Graph("spread", state=Mixed)
    items = random.randint(2, 4)

    @graph.node(to=["one"], local=local and random.random() < 0.5)
    async def split(state: Mixed) -> list[Send]:
        return [Send("one", number) for number in range(items)]

    @graph.node(retries=0, on_error="interrupt")
    async def one(state: Mixed, ctx: Context) -> dict[str, Any]:
        if ctx.item == 0:
            await asyncio.sleep(random.choice([0.0, 0.05]))
            return {"log": ["0"]}
        if ctx.item == 1 and ctx.address not in witness.broke:
            witness.broke.add(ctx.address)
            message = "the first attempt breaks"
            raise ValueError(message)
        answer = await ctx.interrupt(
            "ok", prompt=f"{ctx.item}?", timeout=random.choice([None, "500ms", "1h"])
        )
        witness.told[ctx.address, "ok"].append(answer)
        return {"log": [f"{ctx.item}: {answer}"]}

    @graph.node
    async def collect(state: Mixed, ctx: Context) -> dict[str, Any]:
        return {"count": len(ctx.results)}

    @graph.node(to=["after"])
    async def pair(state: Mixed, ctx: Context) -> Goto:
        async def asked(process: str) -> str:
            got = await ctx.interrupt("sure", process=process, response=bool)
            witness.told[f"{ctx.address};process:{process}", "sure"].append(got)
            message = await ctx.check_interrupt()
            return f"{process} {got} {witness.read(ctx.address, [message] if message else [])}"

        found = await ctx.gather(asked("left"), asked("right"))
        return Goto("after", {"log": found})

    @graph.node
    async def after(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        return {"log": witness.read(ctx.address, inbox)}

    @graph.node(local=local)
    async def last(state: Mixed, ctx: Context) -> dict[str, Any]:
        return {"log": [f"last {ctx.outcome}"]}

    graph.edge(START, "split")
    graph.edge(["one"], "collect")
    graph.edge("collect", "pair")
    graph.finally_("last")
    return graph


def rounds(random: Random, witness: Witness, *, local: bool) -> Graph:
    """Nodes in turn that read messages, each in its own way, and one that waits while it is paused."""
    graph = Graph("rounds", state=Mixed)
    nap = random.choice([0.0, 0.01, 0.04])

    @graph.node(retries=5, local=local and random.random() < 0.3)
    async def inboxed(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        await asyncio.sleep(nap)
        found = witness.read(ctx.address, inbox)
        return {"log": found, "count": state.count + 1, "enough": "enough" in found}

    @graph.node(retries=5)
    async def looking(state: Mixed, ctx: Context) -> dict[str, Any]:
        found = []
        for _ in range(4):
            if (each := await ctx.check_interrupt()) is not None:
                found += witness.read(ctx.address, [each])
            await asyncio.sleep(nap)
        await ctx.step("kept", len, found)
        return {"log": found}

    @graph.node(retries=5)
    async def waits(state: Mixed, ctx: Context) -> dict[str, Any]:
        goes_on = await ctx.wait_if_paused("20s")
        return {"log": [f"went on: {goes_on}"]}

    @graph.node(local=local)
    async def quick(state: Mixed) -> None:
        await asyncio.sleep(nap)

    @graph.node
    async def last(state: Mixed) -> dict[str, Any]:
        return {"log": ["last"]}

    graph.interrupt("beside", prompt="Beside?", **_deadline(random, {"default": 1}))
    graph.edge(START, "inboxed")
    graph.edge(START, "beside")
    graph.route(
        "inboxed",
        lambda state: "last" if state.enough or state.count >= _ROUNDS else "looking",
        to=["last", "looking"],
    )
    graph.edge("looking", "quick")
    graph.edge("quick", "waits")
    graph.edge("waits", "inboxed")
    return graph


def sprints(random: Random, witness: Witness, *, local: bool) -> Graph:
    """Loops of short nodes side by side, one of which reads messages, and gates between them."""
    graph = Graph("sprints", state=Mixed)
    naps = [random.choice([0.0, 0.005, 0.03, 0.08]) for _ in range(3)]

    @graph.node(local=local)
    async def read(state: Mixed, ctx: Context, inbox: Sequence[Message]) -> dict[str, Any]:
        await asyncio.sleep(naps[0])
        found = witness.read(ctx.address, inbox)
        return {"log": found, "count": state.count + 1, "enough": "enough" in found}

    @graph.node(local=local)
    async def left(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(naps[1])
        return {"log": ["left"]}

    @graph.node(local=local and random.random() < 0.8)
    async def right(state: Mixed) -> dict[str, Any]:
        await asyncio.sleep(naps[2])
        return {"log": ["right"]}

    @graph.node(local=local)
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
    if local:
        graph.route("gate", lambda state: "read", to=["read"])
    else:
        graph.edge("gate", "read")
    return graph


def pairs(random: Random, witness: Witness, *, local: bool) -> Graph:
    """One visit that raises two questions at once, again and again in a loop, and a gate in a graph."""
    graph = Graph("pairs", state=Mixed)

    @graph.node(retries=2)
    async def work(state: Mixed, ctx: Context) -> dict[str, Any]:
        open_ = [name for name in ("p1", "p2") if f"{name}/ok" not in ctx.targets]
        for key, answer in ctx.targets.items():
            witness.told[f"{ctx.address};process:{key.split('/')[0]}", "ok"].append(answer)
        if open_:
            raise CompositeInterrupt(
                [Interrupt("ok", process=each) for each in open_], reason="two", state=open_
            )
        return {"log": sorted(ctx.targets), "count": state.count + 1}

    inner = Graph("inner", state=Mixed)
    inner.interrupt(
        "sign", prompt="Sign?", timeout=random.choice(["200ms", "1h"]), on_timeout="goto:unsigned"
    )

    @inner.node(local=local)
    async def unsigned(state: Mixed) -> None:
        return None

    inner.edge(START, "sign")
    graph.subgraph("signing", inner)
    graph.edge(START, "work")
    graph.edge("work", "signing")
    graph.edge("signing", "work", when={"count": 1})
    graph.edge("signing", END, when="else")
    return graph


def _deadline(random: Random, *policies: Any) -> dict[str, Any]:
    """A deadline that is soon, late or never, and what happens then."""
    timeout = random.choice([None, "60ms", "300ms", "900ms", "1h"])
    return {} if timeout is None else {"timeout": timeout, "on_timeout": random.choice(policies)}


GRAPHS: Final[Mapping[str, Maker]] = {
    "desk": desk,
    "spread": spread,
    "rounds": rounds,
    "sprints": sprints,
    "office": office,
    "pairs": pairs,
}
