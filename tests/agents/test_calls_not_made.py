"""After-hooks see calls that were not made; the model is told if nobody answered in time."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from scripted_agents import Script, Watching, call, ran, started

from abeyance import AfterToolCall, Agent, BeforeToolCall, ToolContext, tool

NO = {"approved": False, "reason": "too much"}
YES = {"approved": True}
REJECTED = "The call was rejected by a person, so it was not run: too much"


@tool(approve=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def paying(*hooks: object, calls: int = 1, **options: Any) -> tuple[Agent, Script]:
    made = [call("pay", f"c{n}", amount=n) for n in range(1, calls + 1)]
    script = Script(made, "done")
    return Agent("clerk", model=script, tools=[pay], hooks=hooks, **options), script


@tool(approve=True)
async def write(text: str) -> str:
    """Write."""
    return text


@tool
async def choose(ctx: ToolContext) -> str:
    """Choose."""
    return str(await ctx.interrupt("which", timeout="1h", on_timeout="goto:nowhere"))


class Denying:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        message = "no connection"
        raise OSError(message)


class Cancelling:
    def __init__(self, cancel: bool | str) -> None:
        self.cancel = cancel

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        event.cancel_tool = self.cancel


@pytest.mark.parametrize(
    ("made", "hooks", "answer", "outcome", "told"),
    [
        (call("pay", "c1", amount=1), (), NO, "denied", REJECTED),
        (
            call("pay", "c1", amount=1),
            (Denying(),),
            None,
            "denied",
            "denied by hook Denying: OSError: no connection",
        ),
        (
            call("pay", "c1", amount=1),
            (Cancelling(True),),
            None,
            "denied",
            "cancelled by hook Cancelling",
        ),
        (call("pay", "c1", amount=1), (Cancelling("not today"),), None, "denied", "not today"),
        (call("write", "c1", text="x" * 200_000), (), None, "failed", "smaller arguments"),
        (call("choose", "c1"), (), None, "failed", "would go to 'nowhere'"),
    ],
    ids=[
        *("rejected", "denied by a hook", "cancelled by a hook", "cancelled with a reason"),
        *("too large to be approved", "cannot be asked"),
    ],
)
async def test_an_after_hook_sees_a_call_that_was_not_made(
    made: ToolCallPart, hooks: tuple[object, ...], answer: Any, outcome: str, told: str
) -> None:
    watching, script = Watching(), Script(made, "done")
    tools, watched = [pay, write, choose], [watching, *hooks]
    run = await started(Agent("clerk", model=script, tools=tools, hooks=watched))
    if answer is not None:
        await run.respond("approve", answer)

    ((call_id, _, text, is_error, is_cancelled),) = watching.seen
    assert (call_id, is_error, is_cancelled) == ("c1", True, outcome == "denied")
    assert told in text
    assert script.told() == {"c1": (outcome, text)}
    assert run.status == "completed"
    if outcome == "denied":
        assert await ran(run) == [], "a call that is denied is never scheduled"


async def test_an_after_hook_changes_what_the_model_reads_of_a_rejected_call() -> None:
    class Soften:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.result, event.error = "ask again tomorrow", False

    clerk, script = paying(Soften())
    run = await started(clerk)
    await run.respond("approve", NO)

    assert script.told() == {"c1": ("success", "ask again tomorrow")}


async def test_sequential_calls_run_an_after_hook_before_the_next_gate() -> None:
    class Strict(Watching):
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            if event.agent_state.get("seen"):
                event.cancel_tool = "one rejection is enough"

    strict = Strict()
    clerk, script = paying(strict, calls=2, tool_execution="sequential")
    run = await started(clerk)
    await run.respond("approve", NO)

    assert script.told() == {
        "c1": ("denied", REJECTED),
        "c2": ("denied", "one rejection is enough"),
    }
    assert [each[0] for each in strict.seen] == ["c1", "c2"]


# Nobody answered in time


@pytest.mark.parametrize(
    ("on_timeout", "told"),
    [
        ("reject", "Nobody answered in time, so the call was not run"),
        (
            {"default": {"approved": False, "reason": "it is a holiday"}},
            "Nobody answered in time, so the call was not run: it is a holiday",
        ),
        ({"default": {"approved": False}}, "Nobody answered in time, so the call was not run"),
    ],
)
async def test_a_call_that_its_deadline_rejects_was_rejected_by_nobody(
    on_timeout: Any, told: str
) -> None:
    @tool(approve=True, approval_timeout="1h", on_timeout=on_timeout)
    async def send(to: str) -> str:
        return f"sent to {to}"

    watching = Watching()
    script = Script([call("send", "c1", to="ada"), call("send", "c2", to="bob")], "done")
    run = await started(Agent("clerk", model=script, tools=[send], hooks=[watching]))
    await run.respond((await run.interrupts())[1].id, {"approved": False, "reason": "too late"})
    await run.advance("1h")

    rejected = "The call was rejected by a person, so it was not run: too late"
    assert script.told() == {"c1": ("denied", told), "c2": ("denied", rejected)}
    assert [each[2:] for each in watching.seen] == [(told, True, True), (rejected, True, True)]


async def test_a_call_whose_question_nobody_answered_in_time_says_so() -> None:
    @tool
    async def choose(ctx: ToolContext) -> str:
        return str(await ctx.interrupt("which", timeout="1h", on_timeout="goto:END"))

    watching = Watching()
    script = Script(call("choose", "c1"), "done")
    run = await started(Agent("clerk", model=script, tools=[choose], hooks=[watching]))
    await run.advance("1h")

    text = "Nobody answered 'which' in time, so the call was given up before it had a result."
    assert (run.status, script.told()) == ("completed", {"c1": ("interrupted", text)})
    assert watching.seen == [("c1", {}, text, True, True)]
