"""Approvals of calls: which calls need one, what binds the answer to the call, and what it means."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

from abeyance.agents.approvals import (
    Approve,
    approval_question,
    approved_arguments,
    needs_approval,
    outcome_question,
    reported_result,
)
from abeyance.agents.tool import Tool
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ArgumentsError, CallError
from abeyance.core.answering import call_digest
from abeyance.core.spec import Default
from abeyance.schemas.json_schema import faults_of, without_lookaround


class Payee(BaseModel):
    iban: str


def _not_thirteen(amount: int) -> int:
    if amount == 13:
        message = "it must not be 13"
        raise ValueError(message)
    return amount


def transfer(amount: Annotated[int, AfterValidator(_not_thirteen)], to: Payee) -> str:
    """Send money."""
    return "sent"


def gated(approve: Approve = True, **options: Any) -> Tool:
    return tool(approve=approve, **options)(transfer)


ARGUMENTS = {"amount": 5, "to": {"iban": "X"}}


def test_people_see_arguments_in_the_order_of_their_author() -> None:
    def book(to: str, amount: int, by: str) -> str:
        return "booked"

    properties = {name: {"type": "string"} for name in ("to", "amount", "by")}
    foreign = without_lookaround({"type": "object", "properties": properties})
    asked = approval_question(tool(approve=True)(book), {"to": "b", "amount": 1, "by": "c"})
    shown = asked.question.response_schema["properties"]["arguments"]["properties"]

    assert [*shown] == [*foreign["properties"]] == ["to", "amount", "by"]


# ------------------------------------------------------------------------- calls that need an approval


async def test_a_predicate_says_which_calls_a_person_has_to_approve() -> None:
    async def slowly(args: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return bool(args["amount"] > 3)

    for predicate in (lambda args: args["amount"] > 3, slowly):
        assert await needs_approval(gated(predicate), {"amount": 5}) is True
        assert await needs_approval(gated(predicate), {"amount": 3}) is False
    assert await needs_approval(gated(True), {}) is True
    assert await needs_approval(tool(transfer), {}) is False


@pytest.mark.parametrize("said", [None, 0, 1, "", "no", []])
async def test_a_predicate_that_says_neither_true_nor_false_lets_nothing_pass(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "abeyance.approvals"):
        assert await needs_approval(gated(lambda args: said), {}) is True
    assert f"returned a {type(said).__name__}" in caplog.text


async def test_a_predicate_that_raises_lets_nothing_pass(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "abeyance.approvals"):
        assert await needs_approval(gated(lambda args: args["price"] > 1), ARGUMENTS) is True
    assert "KeyError: 'price'" in caplog.text


async def test_a_predicate_cannot_change_what_it_judges() -> None:
    def sly(args: dict[str, Any]) -> bool:
        args["to"]["iban"] = "mine"
        return False

    given = {"amount": 5, "to": {"iban": "X"}}
    await needs_approval(gated(sly), given)

    assert given == ARGUMENTS


# ---------------------------------------------------------------------------------------- the question


def test_an_approval_shows_the_tool_and_all_its_arguments() -> None:
    asked = approval_question(
        gated(requested_capability="money:send", approval_timeout="2h", on_timeout="reject"),
        ARGUMENTS,
    )
    question = asked.question

    assert asked.kind == "approval"
    assert question.name == "approve"
    assert question.reason == {"tool": "transfer", "arguments": ARGUMENTS}
    assert question.prompt == ('Run \'transfer\' with {"amount":5,"to":{"iban":"X"}}?')
    assert question.payload == {"digest": call_digest("transfer", ARGUMENTS)}
    assert question.requested_capability == "money:send"
    assert question.timeout == 7200.0
    assert question.on_timeout == Default(
        answer={"approved": False, "reason": "nobody answered in time"}
    )


def test_a_prompt_is_filled_once_with_the_arguments() -> None:
    tool_ = gated(prompt="Send {amount} to {to.iban}, {to.nobody}?")
    asked = approval_question(tool_, {"amount": 5, "to": {"iban": "{amount}"}})

    assert asked.question.prompt == "Send 5 to {amount}, {to.nobody}?"


@pytest.mark.parametrize(
    ("answer", "pointers"),
    [
        ({"approved": True}, []),
        ({"approved": True, "arguments": ARGUMENTS}, []),
        ({"approved": False}, []),
        ({"approved": False, "reason": "too much"}, []),
        (True, [""]),
        ({}, [""]),
        ({"approved": "yes"}, ["/approved"]),
        ({"approved": 1}, ["/approved"]),
        ({"approved": True, "reason": "fine"}, ["/reason"]),
        ({"approved": False, "arguments": ARGUMENTS}, ["/arguments"]),
        ({"approved": True, "always": True}, [""]),
        ({"approved": True, "result": 1}, ["/result"]),
        ({"approved": False, "result": 1, "reason": "both"}, ["/reason"]),
        (
            {"approved": True, "arguments": {"amount": "5x", "to": {"iban": "X"}}},
            ["/arguments/amount"],
        ),
        ({"approved": True, "arguments": {"amount": 5, "to": {}}}, ["/arguments/to"]),
        ({"approved": True, "arguments": {**ARGUMENTS, "x": 1}}, ["/arguments"]),
    ],
)
def test_an_answer_approves_or_rejects_and_its_faults_have_places(
    answer: Any, pointers: list[str]
) -> None:
    schema = approval_question(gated(), ARGUMENTS).question.response_schema

    assert [fault.pointer for fault in faults_of(schema, answer)] == pointers


def test_a_schema_of_somebody_elses_is_still_whole_in_the_answer() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/pay",
        "type": "object",
        "properties": {"to": {"$ref": "#/definitions/who"}},
        "definitions": {"who": {"type": "string"}},
    }
    pay = tool(name="pay", schema=schema, approve=True)(lambda context, arguments: None)
    asked = approval_question(pay, pay.read({"to": "anna"})).question.response_schema

    assert faults_of(asked, {"approved": True, "arguments": {"to": "bert"}}) == ()
    found = faults_of(asked, {"approved": True, "arguments": {"to": 5}})
    assert [fault.pointer for fault in found] in (["/arguments/to"], [""])


def test_arguments_that_cannot_be_shown_cannot_be_approved() -> None:
    with pytest.raises(ArgumentsError, match="smaller arguments"):
        approval_question(gated(), {"amount": 5, "to": {"iban": "x" * 100_000}})


# -------------------------------------------------------------------------------------------- the answer


def test_an_approved_call_is_the_one_that_was_shown() -> None:
    shown = approval_question(gated(), ARGUMENTS).question.payload["digest"]

    assert shown == call_digest("transfer", {"to": {"iban": "X"}, "amount": 5.0})
    assert shown != call_digest("transfer", {**ARGUMENTS, "amount": 6})
    assert shown != call_digest("delete", ARGUMENTS)


def test_an_approval_gives_the_arguments_or_the_persons_own() -> None:
    assert approved_arguments(gated(), {"approved": True}, ARGUMENTS) == ARGUMENTS
    edited = {"amount": 1, "to": {"iban": "Y"}}
    answer = {"approved": True, "arguments": edited}
    assert approved_arguments(gated(), answer, ARGUMENTS) == edited


def rejection(answer: Any) -> str:
    with pytest.raises(CallError) as refused:
        approved_arguments(gated(), answer, ARGUMENTS)
    return refused.value.text


def test_a_rejection_tells_the_model_why() -> None:
    rejected = "The call was rejected, so it was not run"

    assert rejection({"approved": False, "reason": "too much"}) == f"{rejected}: too much"
    assert rejection({"approved": False}) == rejected


def test_edited_arguments_that_only_the_types_refuse_reject_the_call() -> None:
    answer = {"approved": True, "arguments": {"amount": 13, "to": {"iban": "X"}}}
    schema = approval_question(gated(), ARGUMENTS).question.response_schema

    assert faults_of(schema, answer) == ()
    assert "it must not be 13" in rejection(answer)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, True, "yes", {}, ["approved"], {"approved": 1}, {"approved": "true"}),
        *({"approved": True, "x": 1}, {"approved": True, "arguments": None}),
        *({"approved": True, "reason": "r"}, {"approved": False, "arguments": ARGUMENTS}),
    ],
)
def test_an_answer_that_cannot_be_read_rejects(answer: Any) -> None:
    assert rejection(answer).endswith(": the answer to the approval cannot be read")


# -------------------------------------------------------------------------- the outcome of a lost call


def test_a_person_says_what_became_of_a_call_that_was_lost() -> None:
    tool_ = gated(requested_capability="money:send")
    asked = outcome_question(tool_, ARGUMENTS)
    question = asked.question

    assert asked.kind == "outcome"
    assert question.name == "outcome"
    assert question.reason == {"tool": "transfer", "arguments": ARGUMENTS}
    assert question.requested_capability == "money:send"
    assert question.timeout is None
    assert reported_result(tool_, {"action": "done", "result": "sent"}) == {"content": "sent"}
    assert reported_result(tool_, {"action": "done"}) == {"content": None}
    assert reported_result(tool_, {"action": "retry"}) is None
    failed = reported_result(tool_, {"action": "fail"})
    assert failed is not None
    assert "an operator reports that it failed" in failed["error"]


@pytest.mark.parametrize(
    ("answer", "pointers"),
    [
        ({"action": "done", "result": {"any": "thing"}}, []),
        ({"action": "retry"}, []),
        ({"action": "fail"}, []),
        ({"action": "retry", "result": 1}, ["/result"]),
        ({"action": "again"}, ["/action"]),
        ({}, [""]),
    ],
)
def test_only_what_was_done_has_a_result(answer: Any, pointers: list[str]) -> None:
    schema = outcome_question(gated(), ARGUMENTS).question.response_schema

    assert [fault.pointer for fault in faults_of(schema, answer)] == pointers
    if pointers:
        assert "cannot be read" in (reported_result(gated(), answer) or {})["error"]


def test_a_result_that_a_person_gives_is_held_to_the_same_bound() -> None:
    result = reported_result(gated(max_result=10), {"action": "done", "result": "x" * 20})

    assert "of at most 10" in (result or {})["error"]
