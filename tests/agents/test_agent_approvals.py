"""Calls that a person has to approve: nothing is run that nobody approved, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_agents import Script, call, places, ran, started
from tool_calls import Purse

from abeyance import (
    Agent,
    BeforeToolCall,
    Refusal,
    tool,
)

YES = {"approved": True}
ADDRESS = "graph:g;node:review;agent:clerk;tool:pay:c1"


async def asking(purse: Purse, *more: Any, **about: Any) -> tuple[Any, Script]:
    script = Script([call("pay", "c1", amount=5), *more], "done")
    run = await started(Agent("clerk", model=script, tools=[purse.tool], **about))
    return run, script


async def test_an_approval_shows_the_call_which_runs_once_when_it_is_approved_and_not_before() -> (
    None
):
    purse = Purse()
    run, script = await asking(purse)
    (entry,) = await run.interrupts()
    assert (entry.kind, entry.name, entry.address) == ("approval", "approve", ADDRESS)
    assert entry.reason == {"tool": "pay", "arguments": {"amount": 5, "to": "bob"}}
    assert entry.prompt == 'Run \'pay\' with {"amount":5,"to":"bob"}?'
    assert entry.payload["digest"].startswith("sha256:")
    assert (purse.paid, await ran(run), run.status) == ([], [], "awaiting-input")

    await run.respond(entry.id, YES)
    await run.respond(entry.id, YES)
    assert (purse.paid, await ran(run)) == ([(5, "bob")], ["tool:pay:c1"])
    assert script.told() == {"c1": ("success", "paid 5")}
    assert run.status == "completed"
    with pytest.raises(Refusal) as refused:
        await run.respond(entry.id, {"approved": False})
    assert refused.value.code == "already_answered"


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


async def test_what_a_hook_made_of_the_arguments_is_what_has_to_be_approved() -> None:
    purse = Purse(approve=lambda args: args["amount"] > 10)
    run, _ = await asking(purse, call("pay", "c2", amount=6), hooks=[Doubtful()])
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
    run, script = await asking(purse, hooks=[Fickle()])
    await run.respond("sure", True)
    assert (await run.interrupts())[0].reason["arguments"]["amount"] == 1
    await run.respond("approve", YES)

    assert purse.paid == []
    assert script.told() == {"c1": ("denied", "denied: what was approved is another call")}


async def test_what_was_edited_holds_also_where_the_predicate_would_not_ask_any_more() -> None:
    is_strict = True
    purse = Purse(approve=lambda args: is_strict)

    class Sure:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            await event.interrupt("sure")

    run, _ = await asking(purse, hooks=[Sure()])
    await run.respond("sure", True)
    is_strict = False
    await run.respond("approve", {"approved": True, "arguments": {"amount": 1}})

    assert purse.paid == [(1, "bob")]
