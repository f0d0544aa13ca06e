"""The calls of one turn run side by side; the model gets all their results at once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from scripted_agents import Script, call, ran, started

from abeyance import Agent, ToolContext, tool
from abeyance.agents.tool_dispatch import MAX_CALLS

YES = {"approved": True}


class Till:
    """Tools that note what they have done."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        till = self

        @tool(approve=lambda args: args["amount"] > 1000)
        async def transfer(amount: float, to: str) -> str:
            """Transfer money."""
            till.done.append((amount, to))
            return f"sent {amount:g} to {to}"

        @tool
        async def look(what: str) -> str:
            """Look at something."""
            till.done.append(what)
            return f"{what} is fine"

        @tool
        async def delete(ctx: ToolContext, path: str) -> str:
            """Delete a file, if somebody says so."""
            if await ctx.interrupt("approve", reason={"path": path}) != "y":
                return "denied"
            till.done.append(path)
            return f"deleted {path}"

        self.tools = [transfer, look, delete]


@pytest.fixture
def till() -> Till:
    return Till()


async def test_more_calls_than_one_turn_may_have_are_not_run(till: Till) -> None:
    calls = [call("look", f"c{number}", what=str(number)) for number in range(MAX_CALLS + 2)]
    script = Script(calls, "done")
    run = await started(Agent("clerk", model=script, tools=till.tools))

    assert len(till.done) == MAX_CALLS
    late = [script.told()[f"c{number}"] for number in (MAX_CALLS, MAX_CALLS + 1)]
    assert {outcome for outcome, _ in late} == {"failed"}
    assert all("one turn may call 64 tools" in str(content) for _, content in late)
    assert run.status == "completed"


async def test_a_call_over_the_size_of_a_turn_fails_and_the_rest_runs(till: Till) -> None:
    large = "x" * 300_000
    script = Script([call("look", "c1", what=large), call("look", "c2", what=large)], "done")
    run = await started(Agent("clerk", model=script, tools=till.tools))

    assert till.done == [large]
    outcome, content = script.told()["c2"]
    assert (outcome, "all of one turn may take 500000" in content) == ("failed", True)
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("called", "told"),
    [
        (call("steal", "c1"), "There is no tool 'steal'. There are 'transfer', 'look', 'delete'."),
        (call("look", "c1"), "what: it is missing"),
        (ToolCallPart("look", '{"what": ', "c1"), "they are not a JSON object"),
    ],
)
async def test_a_call_that_cannot_be_made_is_an_error_that_the_model_sees(
    till: Till, called: ToolCallPart, told: str
) -> None:
    script = Script([called, call("look", "c2", what="till")], "done")
    run = await started(Agent("clerk", model=script, tools=till.tools))

    outcome, content = script.told()["c1"]
    assert (outcome, told in content) == ("failed", True), content
    assert script.told()["c2"] == ("success", "till is fine")
    assert (run.status, till.done, await ran(run)) == ("completed", ["till"], ["tool:look:c2"])


async def test_the_log_has_the_traceback_of_a_failing_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def fail() -> str:
        message = "no such order"
        raise LookupError(message)

    @tool
    async def endless() -> object:
        return object()

    script = Script([call("fail", "c1"), call("endless", "c2")], "done")
    await started(Agent("clerk", model=script, tools=[fail, endless]))

    raised, odd = [each for each in caplog.records if each.name == "abeyance.agent"]
    assert "address=graph:g;node:review;agent:clerk;tool:fail:c1 |" in raised.getMessage()
    assert raised.exc_info is not None
    assert isinstance(raised.exc_info[1], LookupError)
    assert (
        "tool:endless:c2 | the model gets the error: 'endless' has run, but its" in odd.getMessage()
    )


async def test_a_tool_that_may_be_tried_again_is_and_then_fails() -> None:
    attempts: list[int] = []

    @tool(retries=2)
    async def flaky(ctx: ToolContext) -> str:
        attempts.append(ctx.attempt)
        message = "not yet"
        raise OSError(message)

    script = Script(call("flaky", "c1"), "done")
    await started(Agent("clerk", model=script, tools=[flaky]))

    assert attempts == [1, 2, 3]
    assert script.told() == {"c1": ("failed", "OSError: not yet")}


async def test_a_tool_that_hangs_is_cut_off_at_its_timeout() -> None:
    @tool(timeout=0.05)
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    script = Script(call("hang", "c1"), "done")
    run = await started(Agent("clerk", model=script, tools=[hang]))

    assert script.told() == {
        "c1": (
            "failed",
            "'hang' took longer than its timeout of 0.05 s. The call may have been done.",
        )
    }
    assert run.status == "completed"


async def test_a_large_result_reaches_the_model_and_is_not_in_the_runs_state() -> None:
    @tool
    async def make() -> str:
        return "x" * 90_000

    @tool
    async def ask(ctx: ToolContext) -> str:
        return str(await ctx.interrupt("go on"))

    script = Script([call("make", "c1"), call("ask", "c2")], "done")
    run = await started(Agent("clerk", model=script, tools=[make, ask]))
    assert "xxx" not in repr(run.state)
    await run.respond("go on", "yes")

    assert script.told() == {"c1": ("success", "x" * 90_000), "c2": ("success", "yes")}


@pytest.mark.parametrize("call_id", ["", "a;b:c%", "x" * 500, "\ud800"])
async def test_a_call_may_have_any_id(till: Till, call_id: str) -> None:
    script = Script(call("transfer", call_id, amount=5000, to="bob"), "done")
    run = await started(Agent("clerk", model=script, tools=till.tools))
    (entry,) = await run.interrupts()
    assert len(entry.address) < 250
    json.dumps(entry.address, ensure_ascii=False).encode()
    await run.respond(entry.id, YES)

    assert till.done == [(5000.0, "bob")]
    assert [outcome for outcome, _ in script.told().values()] == ["success"]
