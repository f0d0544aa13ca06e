"""Previews show an approver what a call would do; a call with another effect is asked about anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import tool_calls
from scripted_agents import Script, call, started
from tool_calls import paying
from tool_visits import ended, visiting

from abeyance import Agent, BeforeToolCall, Interrupt, Principal, ToolContext, tool

ADA, BOB = Principal(subject="ada"), Principal(subject="bob")
YES = {"approved": True}
EDIT = {"approved": True, "arguments": {"amount": 3}}


class Purse(tool_calls.Purse):
    """The tool `pay`, whose preview shows the balance, and the payments that it made."""

    def __init__(self, preview: Callable[..., Any] | None = None, **options: Any) -> None:
        self.balance = 100

        async def would_pay(ctx: ToolContext, amount: int) -> dict[str, Any]:
            assert (ctx.tool, ctx.call_id) == ("pay", "c1")
            left = self.balance - amount
            return {"summary": f"{left} would be left", "cost": amount}

        super().__init__(preview=preview or would_pay, **options)


async def test_an_approval_shows_what_the_call_would_do_and_the_call_is_made() -> None:
    purse = Purse()
    run, script = await paying(purse)
    (question,) = await run.interrupts()

    assert question.preview == {"summary": "95 would be left", "cost": 5}
    assert question.reason == {"tool": "pay", "arguments": {"amount": 5, "to": "bob"}}
    await run.respond("approve", YES, digests={question.id: str(question.digest)})
    assert (purse.paid, run.status) == ([(5, "bob")], "completed")
    assert script.told() == {"c1": ("success", "paid 5")}


async def test_the_call_of_an_agent_has_a_preview_too_and_is_asked_anew_when_it_differs() -> None:
    left = [100, 100, 50, 50]

    async def costs(ctx: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"summary": f"{ctx.tool}: {arguments['task']}, with {left.pop(0)} left"}

    helper = Script("helped")
    script = Script(call("helper", "c1", task="look"), "done")
    as_tool = Agent("helper", model=helper).as_tool(
        description="Helps.", approve=True, preview=costs
    )
    run = await started(Agent("clerk", model=script, tools=[as_tool]))
    (first,) = await run.interrupts()
    assert first.preview == {"summary": "helper: look, with 100 left"}
    assert first.reason == {"tool": "helper", "arguments": {"task": "look"}}
    await run.respond(first.id, {"approved": True, "arguments": {"task": "count"}}, principal=ADA)

    (second,) = await run.interrupts()
    assert second.preview == {"summary": "helper: count, with 100 left", "before": first.preview}
    await run.respond(second.id, YES, principal=BOB)
    (third,) = await run.interrupts()
    assert third.preview["summary"] == "helper: count, with 50 left"
    assert helper.seen == []
    await run.respond(third.id, YES, principal=BOB)

    assert helper.heard(0) == ["count"]
    assert script.told() == {"c1": ("success", "helped")}
    assert script.heard()[-1].startswith("ada changed the arguments of your call 'c1' of 'helper'")


async def test_a_preview_that_differs_right_before_the_call_voids_the_approval() -> None:
    purse = Purse()
    run, _ = await paying(purse)
    (first,) = await run.interrupts()
    purse.balance = 50
    await run.respond(first.id, YES)

    (second,) = await run.interrupts()
    assert (second.name, purse.paid) == ("approve", [])
    assert second.id != first.id
    assert second.preview == {
        "summary": "45 would be left",
        "cost": 5,
        "before": {"summary": "95 would be left", "cost": 5},
    }
    assert second.prompt.endswith(
        "Asked anew: what it would do has changed, or is not known since the approval."
    )
    await run.respond(second.id, YES)
    assert (purse.paid, run.status) == ([(5, "bob")], "completed")


async def test_an_edit_is_asked_anew_with_the_preview_of_the_edited_arguments() -> None:
    purse = Purse()
    run, script = await paying(purse)
    (first,) = await run.interrupts()
    await run.respond(first.id, EDIT, principal=ADA)

    (second,) = await run.interrupts()
    assert (second.id != first.id, purse.paid) == (True, [])
    assert second.reason["arguments"] == {"amount": 3, "to": "bob"}
    assert second.preview["summary"] == "97 would be left"
    assert second.preview["before"]["summary"] == "95 would be left"
    assert "its arguments were edited" in second.prompt

    await run.respond(second.id, YES, principal=BOB)
    assert purse.paid == [(3, "bob")]
    assert script.heard()[-1].startswith("ada changed the arguments of your call 'c1' of 'pay'")


def failing(*outcomes: Any) -> Callable[..., Any]:
    """Return a preview that returns or raises one outcome after another, and then repeats the last."""
    left = [*outcomes]

    async def preview(amount: int) -> Any:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return preview


FINE = {"summary": "fine"}


async def test_a_preview_that_fails_before_the_question_is_shown_as_its_error() -> None:
    purse = Purse(failing(ValueError("no such account"), FINE, FINE))
    run, _ = await paying(purse)
    (first,) = await run.interrupts()
    assert first.preview == {"error": "the preview failed: ValueError: no such account"}

    await run.respond(first.id, YES)
    (second,) = await run.interrupts()
    assert second.preview == {**FINE, "before": first.preview}
    await run.respond(second.id, YES)
    assert purse.paid == [(5, "bob")]


async def test_a_preview_that_fails_before_the_call_voids_the_approval_each_time() -> None:
    purse = Purse(failing(FINE, ValueError("gone")))
    run, _ = await paying(purse)
    ids = []
    for _ in range(3):
        (question,) = await run.interrupts()
        ids.append(question.id)
        await run.respond(question.id, YES)

    assert (purse.paid, len({*ids})) == ([], 3)
    assert (await run.interrupts())[0].preview["error"] == "the preview failed: ValueError: gone"


@pytest.mark.parametrize(
    ("made", "error"),
    [
        ("all is well", "the preview is not a mapping with a text under 'summary'"),
        ({"summary": 1}, "the preview is not a mapping with a text under 'summary'"),
        ({"summary": "s", "extra": 1}, "the preview has 'extra': it may have summary, diff, table"),
        ({"summary": "s", "diff": 1}, "the preview has a diff that is not text"),
        ({"summary": "s", "table": "t"}, "the preview has a table that is not a list of rows"),
        ({"summary": "s" * 70_000}, "the preview takes 70014 bytes, and may take 64000"),
        ({"summary": object()}, "the preview failed: "),
        (Interrupt("sure"), "the preview failed: it asks, which a preview cannot"),
    ],
)
async def test_an_invalid_preview_is_shown_as_an_error(made: Any, error: str) -> None:
    run, _ = await paying(Purse(failing(made)))
    (question,) = await run.interrupts()

    assert question.preview["error"].startswith(error)


async def test_a_preview_has_the_time_of_its_tool() -> None:
    async def slow(amount: int) -> Any:
        await asyncio.sleep(60)

    run, _ = await paying(Purse(slow, timeout="20ms"))
    (question,) = await run.interrupts()

    assert question.preview == {"error": "the preview took longer than 0.02 s"}


async def test_a_hook_that_asks_comes_before_the_preview_which_sees_what_it_changed() -> None:
    class Lower:
        async def before_tool_call(self, event: BeforeToolCall) -> None:
            if await event.interrupt("lower", response=bool):
                event.args = {"amount": 4}

    purse = Purse()
    run, _ = await paying(purse, hooks=[Lower()])
    await run.respond("lower", True)
    (question,) = await run.interrupts()
    assert question.preview["summary"] == "96 would be left"
    purse.balance = 50
    await run.respond("approve", YES)
    await run.respond("approve", YES)

    assert (purse.paid, run.status) == ([(4, "bob")], "completed")


async def test_a_call_that_needs_no_approval_has_no_preview() -> None:
    purse = Purse()
    unseen = failing(AssertionError("it is not asked"))
    free = tool(name="pay", approve=lambda args: False, preview=unseen)(purse.tool.function)
    run = await started(
        Agent("clerk", model=Script(call("pay", "c1", amount=5), "ok"), tools=[free])
    )

    assert (purse.paid, run.status) == ([(5, "bob")], "completed")


async def test_a_lost_worker_leads_to_no_preview_but_to_the_question_what_became_of_the_call() -> (
    None
):
    purse = Purse(failing(FINE))
    kept: dict[str, Any] = {}
    seen = {"arguments": {"amount": 5, "to": "bob"}, "preview": FINE, "number": 1, "edit": {}}
    await ended(
        visiting(purse.tool, {"amount": 5}, approved=YES, journal={"/previewed": seen}, kept=kept)
    )
    assert purse.paid == [(5, "bob")]
    begun = {"/previewed": seen, "/confirmed": 1, "/begun": kept["/begun"]}
    lost = visiting(purse.tool, {"amount": 5}, approved=YES, journal=begun)

    assert [each.question.name for each in (await ended(lost)).interrupts] == ["outcome"]
