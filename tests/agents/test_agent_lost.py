"""Approved calls whose worker was lost in the middle: nobody knows whether they were made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from tool_calls import Purse
from tool_visits import ended, visiting

from abeyance import BeforeToolCall, ToolContext, tool
from abeyance.agents.tool_results import result_parts
from abeyance.agents.transcript_view import transcript_items
from abeyance.core.ledger import Answerer
from abeyance.storage.blobs import MemoryBlobs

YES = {"approved": True}
FAILED = {"action": "fail"}


async def test_a_call_whose_worker_was_lost_is_run_again_only_if_a_person_says_so() -> None:
    purse = Purse()
    lost = visiting(purse.tool, {"amount": 5}, approved=YES, journal={"/begun": 1})

    asked = await ended(lost)
    (question,) = asked.interrupts
    assert (question.kind, question.question.name) == ("outcome", "outcome")
    assert "its worker was lost, or the run was stopped" in (question.question.prompt or "")
    assert purse.paid == []
    for answer, told in (
        ({"action": "done", "result": "paid"}, "paid"),
        ({"action": "fail"}, "an operator reports that it failed"),
        ({"action": "guess"}, "cannot be read"),
    ):
        found = await ended(lost, answers={"/outcome/outcome": answer}, journal=asked.journal)
        assert told in (found.result.get("content") or found.result["error"])
    assert purse.paid == []
    again = {"/outcome/outcome": {"action": "retry"}}
    found = await ended(lost, answers=again, journal=asked.journal)
    assert (found.result, purse.paid) == ({"content": "paid 5"}, [(5, "bob")])


@pytest.mark.parametrize(
    ("answer", "outcome"), [({"action": "done", "result": "paid"}, "success"), (FAILED, "failed")]
)
async def test_the_transcript_names_who_reported_what_a_lost_call_came_to(
    answer: Any, outcome: str
) -> None:
    lost = visiting(
        Purse().tool,
        {"amount": 5},
        approved={"approved": True, "arguments": {"amount": 3}},
        journal={"/begun": 1},
        answers={"/outcome/outcome": answer},
    )
    answerers = {"outcome": Answerer(by="ada", on_behalf_of="boss", at=datetime.now(UTC))}
    found = await ended(lost, answerers=answerers)

    calls: list[ModelMessage] = [ModelResponse(parts=[ToolCallPart("pay", {"amount": 5}, "c1")])]
    parts = await result_parts(MemoryBlobs(), calls, {"c1": found.result})
    item, note = transcript_items([ModelRequest(parts=parts)])
    assert (item.outcome, item.decision) == (outcome, "report")
    assert (item.answered_by, item.on_behalf_of) == ("ada", "boss")
    assert item.arguments == {"amount": 3, "to": "bob"}
    assert str(note.text).startswith("A person changed the arguments of your call 'c1'")


class Careful:
    async def before_tool_call(self, event: BeforeToolCall) -> None:
        if await event.interrupt("sure") != "yes":
            event.cancel_tool = True


async def test_a_call_that_a_hook_asked_about_is_attempted_once() -> None:
    purse = Purse(approve=False)
    lost = visiting(
        purse.tool,
        {"amount": 5},
        hooks=(Careful(),),
        answers={"Careful/sure": "yes"},
        journal={"/begun": 1},
    )

    asked = await ended(lost)
    assert [each.kind for each in asked.interrupts] == ["outcome"]
    assert purse.paid == []
    found = await ended(lost, journal={})
    assert (found.result, purse.paid) == ({"content": "paid 5"}, [(5, "bob")])


async def test_a_call_that_is_lost_once_more_is_asked_about_once_more() -> None:
    purse = Purse()
    again = {"/outcome/outcome": {"action": "retry"}}
    lost = visiting(purse.tool, {"amount": 5}, approved=YES, journal={"/begun": 2}, answers=again)

    asked = await ended(lost)
    assert [each.question.name for each in asked.interrupts] == ["outcome.2"]
    assert purse.paid == []


async def test_a_call_that_asked_in_its_second_attempt_and_is_lost_then_is_asked_about() -> None:
    begun: list[str] = []

    @tool(approve=True)
    async def delete(ctx: ToolContext) -> str:
        begun.append("begun")
        await ctx.interrupt("sure")
        return "deleted"

    again = {"/outcome/outcome": {"action": "retry"}}
    first = await ended(visiting(delete, {}, approved=YES, journal={"/begun": 1}, answers=again))
    assert [each.key for each in first.interrupts] == ["sure"]
    answers = {**again, "sure": True}
    kept: dict[str, Any] = {}
    good = visiting(delete, {}, approved=YES, journal=first.journal, answers=answers, kept=kept)
    assert (await ended(good)).result == {"content": "deleted"}

    # A worker that dies during this call has recorded only that the call began.
    lost = visiting(delete, {}, approved=YES, journal={"/begun": kept["/begun"]}, answers=answers)
    assert [each.question.name for each in (await ended(lost)).interrupts] == ["outcome.2"]
    assert len(begun) == 2


async def test_a_call_whose_worker_was_lost_after_it_was_made_is_not_made_again() -> None:
    purse = Purse()
    kept: dict[str, Any] = {}
    edited = {"approved": True, "arguments": {"amount": 3}}
    first = await ended(visiting(purse.tool, {"amount": 5}, approved=edited, kept=kept))
    again = await ended(visiting(purse.tool, {"amount": 5}, approved=edited, journal=kept))

    assert purse.paid == [(3, "bob")]
    assert (
        first.result
        == again.result
        == {"content": "paid 3", "decision": "edit", "edited": {"amount": 3, "to": "bob"}}
    )


@pytest.mark.parametrize(("on_unknown", "paid"), [("retry", [(5, "bob")]), ("fail", [])])
async def test_a_tool_may_say_itself_what_happens_when_its_worker_is_lost(
    on_unknown: Any, paid: Any
) -> None:
    purse = Purse(on_unknown=on_unknown)
    found = await ended(visiting(purse.tool, {"amount": 5}, approved=YES, journal={"/begun": 1}))

    assert purse.paid == paid
    assert ("may have been done" in found.result.get("error", "")) is not bool(paid)
