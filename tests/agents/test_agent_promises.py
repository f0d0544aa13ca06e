"""Rules of every conversation, whatever the model calls and people answer, in any order."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import Script, call, places
from scripted_agents import with_agent as graph_of

from abeyance import Agent, BeforeToolCall, ToolContext, tool
from abeyance.testing import InMemoryRun

KINDS = ("plain", "gated", "asking", "both", "failing", "unknown", "wrong", "hooked", "cancelled")

turns = st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5), min_size=1, max_size=3)


class World:
    """Tools of every kind, and a hook. `done` lists the calls that had an effect."""

    def __init__(self) -> None:
        self.done: list[str] = []
        world = self

        def effect(ctx: ToolContext) -> str:
            world.done.append(ctx.call_id)
            return f"done {ctx.call_id}"

        @tool
        async def plain(ctx: ToolContext, n: int) -> str:
            return effect(ctx)

        @tool(approve=True)
        async def gated(ctx: ToolContext, n: int) -> str:
            return effect(ctx)

        @tool
        async def asking(ctx: ToolContext, n: int) -> str:
            return effect(ctx) if await ctx.interrupt("approve") else "no"

        @tool(approve=True)
        async def both(ctx: ToolContext, n: int) -> str:
            return effect(ctx) if await ctx.interrupt("approve") else "no"

        @tool
        async def failing(ctx: ToolContext, n: int) -> str:
            effect(ctx)
            message = "it broke"
            raise OSError(message)

        @tool(approve=lambda args: args["n"] % 2 == 0)
        async def hooked(ctx: ToolContext, n: int) -> str:
            return effect(ctx)

        @tool
        async def cancelled(ctx: ToolContext, n: int) -> str:
            return effect(ctx)

        self.tools = [plain, gated, asking, both, failing, hooked, cancelled]

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.tool == "cancelled":
            event.cancel_tool = True
        if event.tool == "hooked" and not await event.interrupt("approve"):
            event.cancel_tool = "no"


def parts(kinds: list[str], turn: int) -> list[Any]:
    found = []
    for number, kind in enumerate(kinds):
        name = "plain" if kind == "wrong" else kind
        arguments = {"n": "x"} if kind == "wrong" else {"n": number}
        found.append(call(name, f"{kind}-{turn}-{number}", **arguments))
    return found


@pytest.mark.parametrize("execution", ["concurrent", "sequential"])
@settings(max_examples=settings().max_examples // 10)
@given(turns=turns, seed=st.integers(0, 1_000_000))
async def test_every_call_runs_once_and_only_if_approved(
    execution: Any, turns: list[list[str]], seed: int
) -> None:
    chance, world = random.Random(seed), World()
    called = [parts(kinds, number) for number, kinds in enumerate(turns)]
    script = Script(*called, "end")
    agent = Agent("clerk", model=script, tools=world.tools, hooks=[world], tool_execution=execution)
    run = InMemoryRun(graph_of(agent))
    await run.start()
    refused: set[str] = set()
    for _ in range(100):
        opened = [*run.state.ledger.open.values()]
        if not opened:
            break
        before = len(script.seen)
        entry = chance.choice(opened)
        others = {each.id for each in opened} - {entry.id}
        call_id = entry.visit.rpartition(":")[2]
        is_yes = chance.random() < 0.7
        if not is_yes:
            refused.add(call_id)
        is_approval = entry.kind == "approval"
        await run.respond(entry.id, {"approved": is_yes} if is_approval else is_yes)
        # The other questions stay open with the same ids, and the model is not asked meanwhile.
        assert others <= {each.id for each in await run.interrupts()}
        assert not others or len(script.seen) == before
        if execution == "sequential":
            assert len({each.visit for each in run.state.ledger.open.values()}) <= 1

    assert (run.status, await places(run)) == ("completed", [])
    assert max(Counter(world.done).values(), default=1) == 1
    assert not refused & set(world.done)
    for number, kinds in enumerate(turns):
        told = script.told(number + 1)
        assert list(told) == [part.tool_call_id for part in called[number]]
        for kind, (id_, (outcome, content)) in zip(kinds, told.items(), strict=True):
            if content == f"done {id_}":
                assert (outcome, id_ in world.done) == ("success", True)
            elif kind in {"failing", "unknown", "wrong"}:
                assert outcome == "failed"
            elif kind == "cancelled":
                assert (outcome, id_ in world.done) == ("denied", False)
            else:
                assert id_ in refused
                assert id_ not in world.done
