"""What people are asked for a server, and how a question is known again."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance.mcp.faults import McpToolError
from abeyance.mcp.question import Answer, Elicitation, Record, Round, Wanted, elicitation_question
from abeyance.nodes.interrupts import lowered
from abeyance.values.schema import faults_of

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


def test_who_is_sent_somewhere_fills_nothing_in() -> None:
    asked = _asked(requested_schema=None, url="https://example.org/pay")
    question = lowered(elicitation_question(asked)).question
    assert question.reason["url"] == "https://example.org/pay"
    assert faults_of(question.response_schema, {"action": "accept"}) == ()
    assert faults_of(question.response_schema, {"action": "accept", "content": {"card": "1"}})


def test_references_in_a_schema_still_find_what_they_name() -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"$ref": "#/$defs/Size"}},
        "$defs": {"Size": {"enum": ["s", "m"]}},
    }
    question = lowered(elicitation_question(_asked(requested_schema=schema))).question
    assert not faults_of(question.response_schema, {"action": "accept", "content": {"size": "s"}})
    assert faults_of(question.response_schema, {"action": "accept", "content": {"size": "x"}})


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(message="?", requested_schema={"type": "nonsense"}), "not a JSON Schema"),
        (Wanted(message="?", requested_schema={"$ref": "https://example.org/x"}), "JSON Schema"),
        (Wanted(message="?", url="javascript:alert(1)"), "javascript"),
        (Wanted(message="?" * 60_000, requested_schema={}), "60"),
        (Wanted(message="?", requested_schema={"const": float("nan")}), "JSON"),
    ],
)
def test_what_cannot_be_asked_is_told_to_the_model(wanted: Wanted, told: str) -> None:
    with pytest.raises(McpToolError, match=told) as caught:
        Record("travel", "book").named(wanted)
    assert caught.value.code == "bad_elicitation"
    assert "the tool 'book' of travel" in str(caught.value)


def test_a_call_may_ask_only_so_much() -> None:
    record = Record("travel", "book")
    for number in range(20):
        record.named(Wanted(message=str(number), requested_schema={}))
    with pytest.raises(McpToolError, match="more than 20 questions"):
        record.named(Wanted(message="one more", requested_schema={}))


def test_a_server_cannot_have_kept_whatever_it_likes() -> None:
    wanted = {"a": Wanted(message="?", requested_schema={})}
    with pytest.raises(McpToolError, match="bytes"):
        Record("travel", "book").at(Round(state="x" * 200_001, wanted=wanted))


@pytest.mark.parametrize("saved", [None, {}, {"format": 0, "asked": [["a", "b"]]}, "text", []])
def test_what_was_saved_in_another_form_is_not_read(saved: Any) -> None:
    record = Record("travel", "book", saved)
    assert record.resumed() is None
    assert record.named(Wanted(message="?", requested_schema={})) == "elicit"


async def test_an_answer_is_asked_for_once_in_one_go() -> None:
    record, asked = Record("travel", "book"), []

    async def ask(elicitation: Elicitation) -> Answer:
        asked.append(elicitation.name)
        return Answer(action="decline")

    wanted = Wanted(message="?", requested_schema={})
    for _ in range(2):
        await record.answered(record.named(wanted), wanted, ask)
        record.again()
    assert asked == ["elicit"]
