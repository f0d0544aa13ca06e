"""Whose answer is whose: what a person said about one call is no answer to another."""

from __future__ import annotations

from typing import Any

from agent_scripts import Script, call, places, started

from abeyance import Agent, BeforeToolCall, CompositeInterrupt, Interrupt, ToolContext, tool

YES = {"approved": True}


async def test_a_later_call_of_a_tool_knows_nothing_of_the_answers_to_an_earlier_one() -> None:
    gone: list[str] = []

    @tool
    async def delete(ctx: ToolContext, path: str) -> str:
        if "sure" not in ctx.answers:
            raise Interrupt("sure", reason={"path": path})
        if ctx.answers["sure"] == "y":
            gone.append(path)
        return "ok"

    script = Script(call("delete", "c1", path="/a"), call("delete", "c2", path="/b"), "done")
    run = await started(Agent("clerk", model=script, tools=[delete]))
    await run.respond("sure", "y")
    assert (gone, await places(run)) == (["/a"], [("tool:delete:c2", "sure")])
    await run.respond("sure", "n")

    assert (gone, run.status) == (["/a"], "completed")


async def test_the_answer_to_a_hook_or_an_approval_is_not_taken_for_one_to_the_tool() -> None:
    class Hook:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            await event.interrupt("approve")

    gone: list[Any] = []

    @tool(approve=True)
    async def delete(ctx: ToolContext, path: str) -> str:
        if "approve" not in ctx.answers:
            raise Interrupt("approve")
        gone.append((path, ctx.answers["approve"]))
        return "ok"

    script = Script(call("delete", "c1", path="/a"), "done")
    run = await started(Agent("clerk", model=script, tools=[delete], hooks=[Hook()]))
    await run.respond("approve", "hook's")
    await run.respond("approve", YES)
    assert (gone, [each.kind for each in await run.interrupts()]) == ([], ["question"])
    await run.respond("approve", "tool's")

    assert gone == [("/a", "tool's")]


async def test_an_approved_tool_may_ask_by_raising_and_is_asked_about_nothing_else() -> None:
    done: list[Any] = []

    @tool(approve=True)
    async def delete(ctx: ToolContext, path: str) -> str:
        if "b" not in ctx.answers:
            raise CompositeInterrupt([Interrupt("a"), Interrupt("b")])
        done.append((path, ctx.answers))
        return "ok"

    script = Script(call("delete", "c1", path="/a"), "done")
    run = await started(Agent("clerk", model=script, tools=[delete]))
    await run.respond("approve", YES)
    assert [each.name for each in await run.interrupts()] == ["a", "b"]
    await run.respond("b", 2)

    assert (done, run.status) == ([("/a", {"b": 2})], "completed")
