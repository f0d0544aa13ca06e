"""Hooks of an agent in a run: what they ask, edit, cancel and deny, and that nothing fails open."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import Folder, Script, call, ran, respond, started

from abeyance import (
    AfterToolCall,
    Agent,
    BeforeToolCall,
    ToolContext,
    tool,
)


class Approval:
    """Asks before each call, and trusts for ever who says `t`."""

    name = "approval"

    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if event.agent_state.get("trusted"):
            return
        answer = await event.interrupt("sure", reason={"tool": event.tool, "args": event.args})
        if answer == "t":
            event.agent_state["trusted"] = True
        elif answer != "y":
            event.cancel_tool = "the user said no"


async def deleting(folder: Folder, *hooks: object, calls: Any = None, **about: Any) -> Any:
    script = Script(calls or [call("delete", "c1", path="/a")], "done")
    run = await started(Agent("clerk", model=script, tools=[folder.tool], hooks=hooks), **about)
    return run, script


# Before a tool


async def test_a_hook_asks_before_a_tool_is_scheduled() -> None:
    folder = Folder()
    run, script = await deleting(folder, Approval())
    (entry,) = await run.interrupts()
    assert (entry.kind, entry.name) == ("question", "sure")
    assert entry.address == ("graph:g;node:review;agent:clerk;tool:delete:c1;process:approval")
    assert entry.reason == {"tool": "delete", "args": {"path": "/a"}}
    assert await ran(run) == []
    await run.respond("sure", "y")

    assert (folder.gone, await ran(run)) == (["/a"], ["tool:delete:c1"])
    assert script.told() == {"c1": ("success", "deleted /a")}


@pytest.mark.parametrize("cancel", [True, "not today"])
async def test_after_hooks_run_for_a_call_that_was_cancelled(cancel: bool | str) -> None:
    seen: list[Any] = []

    class No:
        name = "no"

        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.cancel_tool = cancel

        async def after_tool_call(self, event: AfterToolCall) -> None:
            seen.append((event.call_id, event.result, event.error, event.cancelled))

    folder = Folder()
    run, script = await deleting(folder, No())

    text = "cancelled by hook no" if cancel is True else cancel
    assert seen == [("c1", text, True, True)]
    assert (script.told(), await ran(run), folder.gone) == ({"c1": ("denied", text)}, [], [])


# What an agent remembers


async def test_what_hooks_remember_before_and_after_a_call_is_known_at_the_next() -> None:
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


async def test_what_a_failing_tool_remembered_is_dropped_and_what_its_hook_did_is_not() -> None:
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
