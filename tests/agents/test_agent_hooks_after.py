"""Hooks after a tool, and around an agent's model: what they change, ask and stop."""

from __future__ import annotations

from typing import Any

import pytest
from agent_scripts import Folder, Script, call, failure, heard, respond, started
from pydantic_ai.messages import ModelRequest, UserPromptPart

from abeyance import (
    AfterModelCall,
    AfterToolCall,
    Agent,
    BeforeModelCall,
    BeforeNode,
    BeforeToolCall,
    tool,
)


class Asking:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        await event.interrupt("sure")


async def deleting(folder: Folder, *hooks: object, calls: Any = None, **about: Any) -> Any:
    script = Script(calls or [call("delete", "c1", path="/a")], "done")
    run = await started(Agent("clerk", model=script, tools=[folder.tool], hooks=hooks), **about)
    return run, script


# After a tool


async def test_an_after_hook_changes_what_the_model_is_told() -> None:
    class Hide:
        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.result = f"{event.result} (quietly)"

    folder = Folder()
    _, script = await deleting(folder, Hide())

    assert script.told() == {"c1": ("success", "deleted /a (quietly)")}


async def test_an_after_hook_that_asks_does_not_have_the_tool_run_again() -> None:
    class Check:
        name = "check"

        async def after_tool_call(self, event: AfterToolCall) -> None:
            answer = await event.interrupt("look", reason={"result": event.result})
            event.result, event.error = answer, answer == "bad"

    folder = Folder()
    calls = [call("delete", "c1", path="/a"), call("delete", "c2", path="/b")]
    run, script = await deleting(folder, Check(), calls=calls)
    assert folder.gone == ["/a", "/b"]
    assert [each.reason for each in await run.interrupts()] == [
        {"result": "deleted /a"},
        {"result": "deleted /b"},
    ]
    await respond(run, "c2", "good")
    await respond(run, "c1", "bad")

    assert folder.gone == ["/a", "/b"]
    assert script.told() == {"c1": ("failed", "bad"), "c2": ("success", "good")}


async def test_one_hook_asks_under_one_name_before_and_after() -> None:
    class Both:
        name = "both"

        async def before_tool_call(self, event: BeforeToolCall) -> None:
            event.args["path"] = await event.interrupt("ok")

        async def after_tool_call(self, event: AfterToolCall) -> None:
            event.result = await event.interrupt("ok")

    folder = Folder()
    run, script = await deleting(folder, Both())
    first = (await run.interrupts())[0].id
    await run.respond("ok", "/b")
    second = (await run.interrupts())[0].id
    await run.respond("ok", "fine")

    assert (first != second, folder.gone) == (True, ["/b"])
    assert script.told() == {"c1": ("success", "fine")}


class Broken:
    name = "broken"

    async def after_tool_call(self, event: AfterToolCall) -> None:
        message = "no connection"
        raise OSError(message)


async def test_an_after_hook_that_raises_withholds_the_result_of_a_call_that_has_run() -> None:
    folder = Folder()
    run, script = await deleting(folder, Broken())

    reason = "denied by hook broken: OSError: no connection"
    text = f"'delete' has run, but its result is withheld: {reason}"
    assert (folder.gone, script.told()) == (["/a"], {"c1": ("failed", text)})
    assert [item.outcome for item in await run.transcript() if item.role == "tool"] == ["failed"]
    assert run.status == "completed"


async def test_an_after_hook_that_raises_does_not_hide_that_a_failed_call_may_have_been_done() -> (
    None
):
    @tool
    async def pay() -> str:
        message = "the connection was lost"
        raise OSError(message)

    script = Script(call("pay", "c1"), "done")
    await started(Agent("clerk", model=script, tools=[pay], hooks=[Broken()]))

    (outcome, text) = script.told()["c1"]
    assert outcome == "failed"
    assert text.startswith("'pay' failed and may have been done, but its error is withheld: ")


# Around the model


async def test_a_hook_adds_messages_that_stay_and_hides_old_ones_for_once() -> None:
    class Add:
        async def before_model_call(self, event: BeforeModelCall) -> None:
            event.messages.append(ModelRequest(parts=[UserPromptPart(f"turn {event.turn}")]))

    folder = Folder()
    _, script = await deleting(folder, Add())

    assert heard(script.seen[-1]) == ["What is to be done?", "turn 1", "turn 2"]


async def test_a_hook_that_asks_after_the_model_has_it_asked_once() -> None:
    class Review:
        async def after_model_call(self, event: AfterModelCall) -> None:
            await event.interrupt(f"turn {event.turn}", reason={"text": event.response.text})

    script = Script("the answer")
    run = await started(Agent("clerk", model=script, hooks=[Review()]))
    (entry,) = await run.interrupts()
    assert (entry.name, entry.reason) == ("turn 1", {"text": "the answer"})
    await run.respond("turn 1", "ok")

    assert (run.status, run.values["report"], len(script.seen)) == ("completed", "the answer", 1)


@pytest.mark.parametrize("moment", ["before_model_call", "after_model_call"])
async def test_what_was_said_is_kept_though_a_run_ends_while_a_hook_asks(moment: str) -> None:
    async def asks(self: object, event: Any) -> None:
        await event.interrupt("look")

    hook = type("Review", (), {moment: asks})()
    run = await started(Agent("clerk", model=Script("the answer"), hooks=[hook]))
    await run.cancel("not today")

    answer = [("assistant", "the answer")] if moment == "after_model_call" else []
    told = [(item.role, item.text) for item in await run.transcript()]
    assert told == [("user", "What is to be done?"), *answer]


async def test_a_hook_that_asks_before_the_model_holds_it_back() -> None:
    class Budget:
        async def before_model_call(self, event: BeforeModelCall) -> None:
            await event.interrupt("spend")

        async def after_model_call(self, event: AfterModelCall) -> None:
            await event.interrupt("spend")

    script = Script("the answer")
    run = await started(Agent("clerk", model=script, hooks=[Budget()]))
    assert len(script.seen) == 0
    first = (await run.interrupts())[0].id
    await run.respond("spend", True)
    assert (len(script.seen), (await run.interrupts())[0].id != first) == (1, True)
    await run.respond("spend", True)

    assert (run.status, len(script.seen)) == ("completed", 1)


@pytest.mark.parametrize("moment", ["before_model_call", "after_model_call", "before_node"])
async def test_a_hook_around_the_model_that_raises_stops_the_agent(moment: str) -> None:
    async def broken(self: object, event: Any) -> None:
        message = "no connection"
        raise OSError(message)

    hook = type("Broken", (), {moment: broken})()
    script = Script("the answer")
    run = await started(Agent("clerk", model=script, hooks=[hook]))

    code, message = failure(run)
    assert code == "node_failed"
    assert "denied by hook Broken: OSError: no connection" in message
    assert len(script.seen) == (moment == "after_model_call")


async def test_an_agent_that_a_hook_keeps_out_takes_no_turn_though_a_message_is_unread() -> None:
    class Closed:
        async def before_node(self, event: BeforeNode) -> None:
            assert event.values["question"] == "What is to be done?"
            event.cancel_node = bool(await event.interrupt("close"))

    script = Script("the answer")
    run = await started(Agent("clerk", model=script, hooks=[Closed()]))
    await run.send("are you there?")
    await run.respond("close", True)

    assert (run.status, run.values["report"], script.seen) == ("completed", None, [])
    assert [each.reason for each in run.state.mailbox.undelivered] == ["completed"]
