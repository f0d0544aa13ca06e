"""Calls that need an approval: the agent makes no call without one, and none twice."""

from __future__ import annotations

from scripted_agents import Script, call, places, started
from tool_calls import Purse, paying

from abeyance import Agent, BeforeToolCall, tool

YES = {"approved": True}


async def test_an_approved_call_that_fails_is_not_tried_again() -> None:
    tried: list[int] = []

    @tool(approve=True, retries=3)
    async def pay(amount: int) -> str:
        tried.append(amount)
        message = "the line was cut"
        raise OSError(message)

    script = Script(call("pay", "c1", amount=5), "done")
    run = await started(Agent("clerk", model=script, tools=[pay]))
    await run.respond("approve", YES)

    assert tried == [5]
    assert script.told() == {"c1": ("failed", "OSError: the line was cut")}


# After a hook has asked


class Doubtful:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        event.args["amount"] += await event.interrupt("more", response=int)


async def test_an_approval_is_for_the_arguments_that_a_hook_changed() -> None:
    purse = Purse(approve=lambda args: args["amount"] > 10)
    run, _ = await paying(purse, call("pay", "c2", amount=6), hooks=[Doubtful()])
    assert [name for _, name in await places(run)] == ["more", "more"]
    await run.respond((await run.interrupts())[0].id, 1)
    assert purse.paid == [(6, "bob")]
    await run.respond("more", 10)
    assert purse.paid == [(6, "bob")]
    (entry,) = await run.interrupts()
    assert (entry.kind, entry.reason["arguments"]["amount"]) == ("approval", 16)
    await run.respond("approve", YES)

    assert purse.paid == [(6, "bob"), (16, "bob")]


async def test_a_hook_that_edits_otherwise_after_the_approval_has_the_call_denied() -> None:
    class Fickle:
        def __init__(self) -> None:
            self.times = 0

        async def before_tool_call(self, event: BeforeToolCall) -> None:
            await event.interrupt("sure")
            self.times += 1
            event.args["amount"] = self.times

    purse = Purse()
    run, script = await paying(purse, hooks=[Fickle()])
    await run.respond("sure", True)
    assert (await run.interrupts())[0].reason["arguments"]["amount"] == 1
    await run.respond("approve", YES)

    assert purse.paid == []
    assert script.told() == {"c1": ("denied", "denied: a different call was approved")}


async def test_edited_arguments_hold_even_if_the_predicate_no_longer_asks() -> None:
    is_strict = True
    purse = Purse(approve=lambda args: is_strict)

    class Sure:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            await event.interrupt("sure")

    run, _ = await paying(purse, hooks=[Sure()])
    await run.respond("sure", True)
    is_strict = False
    await run.respond("approve", {"approved": True, "arguments": {"amount": 1}})

    assert purse.paid == [(1, "bob")]
