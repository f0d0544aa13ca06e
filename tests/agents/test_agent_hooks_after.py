"""Hooks after a tool: what they change, ask and stop."""

from __future__ import annotations

from typing import Any

from agent_scripts import Folder, Script, call, respond, started

from abeyance import (
    AfterToolCall,
    Agent,
    tool,
)


async def deleting(folder: Folder, *hooks: object, calls: Any = None, **about: Any) -> Any:
    script = Script(calls or [call("delete", "c1", path="/a")], "done")
    run = await started(Agent("clerk", model=script, tools=[folder.tool], hooks=hooks), **about)
    return run, script


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
