"""An agent whose calls run one after another: hooks and gates see a call when its turn comes."""

from __future__ import annotations

from typing import Any

from scripted_agents import Script, call, places, ran, started

from abeyance import Agent, BeforeToolCall, ToolContext, tool
from abeyance.core.state import Limits


class Bench:
    def __init__(self) -> None:
        self.done: list[str] = []
        bench = self

        @tool
        async def work(what: str) -> str:
            """Work."""
            bench.done.append(what)
            return f"{what} done"

        @tool(approve=True)
        async def pay(what: str) -> str:
            """Pay."""
            bench.done.append(what)
            return f"{what} paid"

        @tool
        async def ask(ctx: ToolContext, what: str) -> str:
            """Ask."""
            return str(await ctx.interrupt(what))

        self.tools = [work, pay, ask]


async def one_by_one(
    calls: list[Any], bench: Bench, limits: Limits | None = None, **about: Any
) -> tuple[Any, Script]:
    script = Script(calls, "end")
    agent = Agent("clerk", model=script, tools=bench.tools, tool_execution="sequential", **about)
    return await started(agent, limits=limits), script


async def test_a_sequence_stops_at_the_first_call_that_asks() -> None:
    bench = Bench()
    calls = [
        call("work", "c1", what="one"),
        call("pay", "c2", what="two"),
        call("ask", "c3", what="three"),
        call("work", "c4", what="four"),
    ]
    run, script = await one_by_one(calls, bench)
    assert (bench.done, await places(run)) == (["one"], [("tool:pay:c2", "approve")])
    await run.respond("approve", {"approved": True})
    assert (bench.done, await places(run)) == (["one", "two"], [("tool:ask:c3", "three")])
    assert len(script.seen) == 1
    await run.respond("three", "yes")

    assert bench.done == ["one", "two", "four"]
    assert list(script.told().items()) == [
        ("c1", ("success", "one done")),
        ("c2", ("success", "two paid")),
        ("c3", ("success", "yes")),
        ("c4", ("success", "four done")),
    ]
    assert await ran(run) == [
        "tool:work:c1",
        "tool:pay:c2",
        "tool:ask:c3",
        "tool:ask:c3",
        "tool:work:c4",
    ]


async def test_max_turns_counts_the_turns_of_the_model_and_not_the_calls() -> None:
    bench = Bench()
    calls = [call("work", f"c{number}", what=str(number)) for number in range(10)]
    run, script = await one_by_one(calls, bench, max_turns=2)

    assert (run.status, len(bench.done), len(script.seen)) == ("completed", 10, 2)


class Trusting:
    """Asks before every call until somebody says that they trust it."""

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.agent_state.get("trusted"):
            return
        answer = await event.interrupt("ok", reason=event.args)
        if answer == "n":
            event.cancel_tool = "no"
        event.agent_state["trusted"] = answer == "t"


async def test_trust_that_is_given_in_a_sequence_holds_for_the_rest_of_the_turn() -> None:
    bench = Bench()
    calls = [call("work", f"c{number}", what=str(number)) for number in range(4)]
    run, _ = await one_by_one(calls, bench, hooks=[Trusting()])
    await run.respond("ok", "y")
    assert (bench.done, len(await run.interrupts())) == (["0"], 1)
    await run.respond("ok", "t")

    assert (run.status, bench.done) == ("completed", ["0", "1", "2", "3"])


async def test_trust_closes_no_question_that_is_open_side_by_side() -> None:
    bench = Bench()
    calls = [call("work", f"c{number}", what=str(number)) for number in range(2)]
    script = Script(calls, call("work", "c3", what="3"), "end")
    clerk = Agent("clerk", model=script, tools=bench.tools, hooks=[Trusting()])
    run = await started(clerk)
    first, second = await run.interrupts()
    await run.respond(first.id, "t")
    assert (bench.done, [each.id for each in await run.interrupts()]) == (["0"], [second.id])
    await run.respond(second.id, "n")

    assert bench.done == ["0"], "what a person said no to is not run because of another answer"
    assert script.told(1) == {"c0": ("success", "0 done"), "c1": ("denied", "no")}
    assert await places(run) == [("process:Trusting", "ok")], "the last answer of the turn holds"
