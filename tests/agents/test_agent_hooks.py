"""Hooks of an agent in a run ask, edit, cancel and deny; a hook that fails lets nothing through."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from scripted_agents import Folder, Script, call, call_items, respond, started

from abeyance import AfterToolCall, Agent, BeforeToolCall, Principal, ToolContext, tool


class Approval:
    """Asks before each call until a person answers `t`."""

    name = "approval"

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.agent_state.get("trusted"):
            return
        answer = await event.interrupt("sure", reason={"tool": event.tool, "args": event.args})
        if answer == "t":
            event.agent_state["trusted"] = True
        elif answer != "y":
            event.cancel_tool = "the user said no"


# The state of an agent


async def test_the_next_call_sees_the_state_that_hooks_have_set() -> None:
    class Afterwards:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            if event.call_id == "c1":
                event.agent_state["seen"] = event.args["path"]

    class Inside:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.args["path"] = f"/box{event.args['path']}"

    state: list[dict[str, Any]] = []

    class Look:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            state.append(dict(event.agent_state))

    folder = Folder()
    script = Script(call("delete", "c1", path="/a"), call("delete", "c2", path="/b"), "done")
    hooks = [Look(), Approval(), Inside(), Afterwards()]
    run = await started(Agent("clerk", model=script, tools=[folder.tool], hooks=hooks))
    await run.respond("sure", "t")

    assert (state[0], state[-1]) == ({}, {"trusted": True, "seen": "/box/a"})
    assert folder.gone == ["/box/a", "/box/b"]
    assert script.told(1) == {"c1": ("success", "deleted /box/a")}


async def test_the_state_of_a_failing_tool_is_dropped_and_that_of_its_hook_kept() -> None:
    @tool
    async def fail(ctx: ToolContext) -> str:
        ctx.agent_state["tool"] = 1
        message = "it broke"
        raise OSError(message)

    @tool
    async def work(ctx: ToolContext) -> str:
        ctx.agent_state["work"] = dict(ctx.agent_state)
        return "ok"

    class Mark:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.agent_state[event.call_id] = True

    script = Script([call("fail", "c1")], [call("work", "c2")], "done")
    agent = Agent("clerk", model=script, tools=[fail, work], hooks=[Mark()], memory="run")
    run = await started(agent)

    (kept,) = run.state.agent_memory.values()
    assert kept["agent_state"] == {"c1": True, "c2": True, "work": {"c1": True, "c2": True}}


async def test_the_event_of_a_calls_end_says_how_it_ended() -> None:
    folder = Folder()

    class Asking:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.cancel_tool = not await event.interrupt("may I?", response=bool)

    @tool
    async def fail() -> str:
        message = "x" * 5_000
        raise ValueError(message)

    calls = [call("delete", "c1", path="/a"), call("delete", "c2", path="/b"), call("fail", "c3")]
    agent = Agent("clerk", model=Script(calls, "done"), tools=[folder.tool, fail], hooks=[Asking()])
    run = await started(agent)
    for call_id, answer in (("c1", True), ("c2", False), ("c3", True)):
        await respond(run, call_id, answer)

    ends = [event.data async for event in run.events(follow=False) if event.type == "tool.finished"]
    assert ends == [{"outcome": "success"}, {"outcome": "denied"}, {"outcome": "failed"}]


# After a tool


class Broken:
    """Raises after a tool call."""

    async def after_tool_call(self, event: AfterToolCall) -> None:
        message = "no connection"
        raise OSError(message)


@tool
async def look() -> str:
    return "fine"


@tool
async def fail() -> str:
    message = "the connection was lost"
    raise OSError(message)


@tool(approve=True)
async def pay() -> str:
    return "paid"


WITHHELD = "result is withheld: denied by hook Broken: OSError: no connection"


@pytest.mark.parametrize(
    ("made", "answer", "outcome", "told"),
    [
        (call("look", "c1"), None, "failed", f"'look' has run, but its {WITHHELD}"),
        (
            call("fail", "c1"),
            None,
            "failed",
            "'fail' failed and may have been done, but its error is withheld: ",
        ),
        (call("helper", "c1", task="x"), None, "failed", f"'helper' has run, but its {WITHHELD}"),
        (
            call("pay", "c1"),
            {"approved": False, "result": "in cash"},
            "failed",
            "A person gave the result of 'pay' in place of the call, but it is withheld: ",
        ),
        (
            call("pay", "c1"),
            {"approved": False},
            "denied",
            "denied by hook Broken: OSError: no connection",
        ),
    ],
    ids=["has run", "failed", "agent", "result of a person", "rejected"],
)
async def test_an_after_hook_that_raises_withholds_a_result_and_hides_nothing_else(
    made: ToolCallPart, answer: Any, outcome: str, told: str
) -> None:
    script = Script(made, "done")
    helper = Agent("helper", model=Script("helped")).as_tool(description="Helps.")
    tools: list[Any] = [look, fail, pay, helper]
    run = await started(Agent("clerk", model=script, tools=tools, hooks=[Broken()]))
    if answer is not None:
        await run.respond("approve", answer, principal=Principal(subject="ada"))

    ((found, text),) = script.told().values()
    assert (found, text[: len(told)]) == (outcome, told)
    (item,) = await call_items(run)
    assert (item.outcome, run.status) == (outcome, "completed")
    assert item.answered_by == ("ada" if answer and "result" in answer else None)
