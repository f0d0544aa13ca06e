"""Questions of MCP servers to people, and how a repeated question is recognised."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance.authoring.interrupts import lowered
from abeyance.contrib.mcp.client.elicitation import (
    Answer,
    Elicitation,
    ElicitRequest,
    Record,
    Round,
    elicitation_question,
)
from abeyance.contrib.mcp.client.errors import McpToolError
from abeyance.schemas.json_schema import faults_of

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}


def _asked(**changed: Any) -> Elicitation:
    given: dict[str, Any] = {
        "name": "elicit",
        "server": "travel",
        "tool": "book",
        "message": "Where <b>to</b>, {name}?",
        "requested_schema": CITY,
    }
    return Elicitation(**{**given, **changed})


def form_of(field: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": field}}


async def shown(form: dict[str, Any]) -> Elicitation:
    """Return the question that a person gets for a server's form."""
    asked: list[Elicitation] = []

    async def ask(elicitation: Elicitation) -> Answer:
        asked.append(elicitation)
        return Answer(action="cancel")

    record, wanted = Record("travel", "book"), ElicitRequest(message="?", requested_schema=form)
    await record.answer(record.name_of(wanted), wanted, ask)
    return asked[0]


async def declined(wanted: ElicitRequest) -> Answer:
    async def ask(elicitation: Elicitation) -> Answer:
        pytest.fail(f"{elicitation} was asked")

    record = Record("travel", "book")
    return await record.answer(record.name_of(wanted), wanted, ask)


@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"city": "Rome"}},
        {"action": "accept", "content": {"city": "Rome", "nights": 2}},
        {"action": "decline"},
        {"action": "cancel"},
    ],
)
def test_an_answer_that_fits_is_taken(answer: dict[str, Any]) -> None:
    question = lowered(elicitation_question(_asked())).question
    assert faults_of(question.response_schema, answer) == ()
    assert Answer.of(answer) == Answer(action=answer["action"], content=answer.get("content"))


@pytest.mark.parametrize(
    ("answer", "pointer"),
    [
        ({"action": "accept"}, ""),
        ({"action": "accept", "content": {}}, "/content"),
        ({"action": "accept", "content": {"city": "Rome", "nights": 0}}, "/content/nights"),
        ({"action": "agree"}, "/action"),
        ({}, ""),
        ({"action": "decline", "why": "no"}, ""),
        ({"action": "decline", "content": {"city": "Rome"}}, "/content"),
        ({"action": "cancel", "content": None}, "/content"),
        ("accept", ""),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_at_its_place(answer: Any, pointer: str) -> None:
    question = lowered(elicitation_question(_asked())).question
    assert {fault.pointer for fault in faults_of(question.response_schema, answer)} == {pointer}


def test_the_servers_text_is_shown_as_it_is() -> None:
    question = lowered(elicitation_question(_asked(), requested_capability="travel:book")).question
    assert question.prompt == "Where <b>to</b>, {name}?"
    assert question.reason == {"server": "travel", "tool": "book"}
    assert question.requested_capability == "travel:book"


def test_a_question_with_a_url_takes_no_content() -> None:
    asked = _asked(requested_schema=None, url="https://example.org/pay")
    question = lowered(elicitation_question(asked)).question
    assert question.reason["url"] == "https://example.org/pay"
    assert faults_of(question.response_schema, {"action": "accept"}) == ()
    assert faults_of(question.response_schema, {"action": "accept", "content": {"card": "1"}})


@pytest.mark.parametrize(
    ("field", "fits", "misses"),
    [
        ({"type": "string", "minLength": 2, "format": "email"}, "a@b.example", "a"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a", "1"),
        ({"type": "integer", "minimum": 1, "default": 2}, 1, 0),
        ({"type": "number", "exclusiveMaximum": 1}, 0.5, 1),
        ({"type": "boolean", "title": "Sure?"}, True, "yes"),
        ({"type": "string", "enum": ["s", "m"], "enumNames": ["small", "middle"]}, "s", "x"),
        ({"type": "string", "oneOf": [{"const": "s", "title": "small"}]}, "s", "x"),
        (
            {"type": "array", "items": {"type": "string", "enum": ["s", "m"]}, "maxItems": 1},
            ["m"],
            ["s", "m"],
        ),
        ({"type": "array", "items": {"anyOf": [{"const": "s", "title": "small"}]}}, ["s"], ["x"]),
    ],
)
async def test_a_form_has_the_fields_that_the_protocol_knows(
    field: dict[str, Any], fits: Any, misses: Any
) -> None:
    asked = await shown(form_of(field))
    schema = lowered(elicitation_question(asked)).question.response_schema

    assert not faults_of(schema, {"action": "accept", "content": {"it": fits}})
    assert faults_of(schema, {"action": "accept", "content": {"it": misses}})


@pytest.mark.parametrize("pattern", ["^(?=.*a)", "("])
async def test_a_pattern_that_cannot_be_used_is_left_out_of_a_form(pattern: str) -> None:
    asked = await shown(form_of({"type": "string", "pattern": pattern}))

    assert asked.requested_schema == form_of({"type": "string"})


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (ElicitRequest(message="?", requested_schema={}), "an object with properties"),
        (
            ElicitRequest(message="?", requested_schema={"type": "array", "properties": {}}),
            "an object",
        ),
        (
            ElicitRequest(message="?", requested_schema={**CITY, "allOf": [{"$ref": "#/$defs/a"}]}),
            "leads to no schema",
        ),
        (
            ElicitRequest(message="?", requested_schema={**CITY, "allOf": [{"$ref": "#"}]}),
            "the form refers to itself by '#'",
        ),
        (ElicitRequest(message="?", requested_schema={**CITY, "required": [5]}), "is not of type"),
        (
            ElicitRequest(message="?", url="javascript:alert(1)"),
            "'javascript:alert(1)' begins with",
        ),
        (ElicitRequest(message="?" * 60_000, requested_schema=CITY), "of at most 50000"),
    ],
)
async def test_a_forbidden_elicitation_is_declined_without_asking(
    wanted: ElicitRequest, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await declined(wanted)

    assert answer.action == "decline"
    assert told in str(answer.declined)
    (logged,) = caplog.records
    assert logged.getMessage() == (
        f"server=travel tool=book | declined an elicitation: {answer.declined!r}"
    )


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"type": "object", "properties": {}}, "the field 'it' has the type 'object'"),
        ({"type": ["string", "null"]}, "has the type ['string', 'null']"),
        ({"$ref": "#/properties/it"}, "has the type None"),
        (True, "has the type None"),
        ({"type": "string", "minLength": "2"}, "is not of type"),
        ({"type": "array", "items": {"type": "string"}}, "is a list without choices"),
        ({"type": "string", "enum": [f"{n}" for n in range(10_000)]}, "50000"),
    ],
)
async def test_a_form_with_another_field_is_declined(field: Any, told: str) -> None:
    answer = await declined(ElicitRequest(message="?", requested_schema=form_of(field)))

    assert told in str(answer.declined)


def test_an_elicitation_that_is_not_json_fails_the_call() -> None:
    wanted = ElicitRequest(message="?", requested_schema={"const": float("nan")})
    with pytest.raises(
        McpToolError, match="the tool 'book' of travel elicits with a question that is not JSON"
    ) as caught:
        Record("travel", "book").name_of(wanted)
    assert caught.value.code == "bad_elicitation"


def test_a_call_may_ask_only_so_much() -> None:
    record = Record("travel", "book")
    for number in range(20):
        record.name_of(ElicitRequest(message=str(number), requested_schema={}))
    with pytest.raises(McpToolError, match="more than the maximum of 20 questions"):
        record.name_of(ElicitRequest(message="one more", requested_schema={}))


def test_a_server_cannot_have_kept_whatever_it_likes() -> None:
    wanted = {"a": ElicitRequest(message="?", requested_schema={})}
    with pytest.raises(McpToolError, match="bytes"):
        Record("travel", "book").reached(Round(state="x" * 200_001, requests=wanted))


@pytest.mark.parametrize("saved", [None, {}, {"format": 0, "asked": [["a", "b"]]}, "text", []])
def test_a_record_saved_in_another_form_is_ignored(saved: Any) -> None:
    record = Record("travel", "book", saved)
    assert record.resumed() is None
    assert record.name_of(ElicitRequest(message="?", requested_schema={})) == "elicit"


async def test_an_answer_is_asked_for_once_in_one_go() -> None:
    record, asked = Record("travel", "book"), []

    async def ask(elicitation: Elicitation) -> Answer:
        asked.append(elicitation.name)
        return Answer(action="decline")

    wanted = ElicitRequest(message="?", requested_schema=CITY)
    for _ in range(2):
        await record.answer(record.name_of(wanted), wanted, ask)
        record.restart()
    assert asked == ["elicit"]
