"""A question as a message, the form of its answer, and the values that a person entered in it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from abeyance import views
from abeyance.contrib.slack import blocks, forms
from abeyance.contrib.slack.forms import Answer, Decision

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ARGUMENTS = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "title": "Order"},
        "amount": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "^[0-9.]+$"}]},
        "on": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        "kind": {"$ref": "#/$defs/Kind"},
        "big": {"type": "integer"},
    },
    "required": ["order", "amount", "kind"],
}
ALLOWED = {
    "most": 604_800,
    "where": ["run", "graph"],
    "same": ["order"],
    "below": {"amount": 200},
}
GRANT = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "amount": {"type": "integer", "default": 90}},
    "required": ["approved"],
}
YES = {"by": "bob", "at": NOON, "answer": {"approved": True, "amount": 200}, "answer_sha256": ""}
CALL = {"order": "A-7", "amount": "480.10", "kind": "b", "big": 2**60, "hidden": [1]}


def question(**fields: Any) -> views.InterruptView:
    view = {
        "id": "run-1.0a",
        "run_id": "run-1",
        "graph": "refund",
        "name": "approve",
        "kind": "question",
        "address": "approve",
        "prompt": "Refund?",
        "status": "open",
        "created_at": NOON,
        "digest": "sha256:1",
        "response_schema": {"type": "boolean"},
    }
    return views.InterruptView.model_validate(view | fields)


def approval(**fields: Any) -> views.InterruptView:
    schema = {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "arguments": ARGUMENTS},
        "required": ["approved"],
        "$defs": {"Kind": {"type": "string", "title": "Kind", "enum": ["a", "b"]}},
    }
    about = {"reason": {"tool": "refund", "arguments": CALL}, "response_schema": schema}
    return question(kind="approval", **about, **fields)


def buttons(view: views.InterruptView) -> list[str]:
    shown = blocks.message(view, link="https://example.com/inbox#run-1.0a", mention=str)["blocks"]
    return [
        each["text"]["text"]
        for row in shown
        if row["type"] == "actions"
        for each in row["elements"]
    ]


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


@pytest.mark.parametrize(
    ("view", "labels"),
    [
        (question(), ["Approve", "Reject", "Open"]),
        (approval(), ["Approve", "Reject", "Edit", "Open"]),
        (approval(decisions=["approve"]), ["Approve", "Open"]),
        (approval(abridged=True), ["Open"]),
        (
            approval(remember=ALLOWED),
            ["Approve", "Approve, and the next ones…", "Reject", "Edit", "Open"],
        ),
        (approval(remember=ALLOWED, decisions=["reject"]), ["Reject", "Open"]),
        (question(response_schema=fields(iban={"type": "string"})), ["Answer", "Open"]),
        (question(response_schema={"enum": ["a", 1]}), ["Answer", "Open"]),
        (question(response_schema=fields(deep={"type": "object"})), ["Open"]),
        (question(response_schema=None), ["Open"]),
        (
            question(response_schema=fields(approved={"type": "boolean"})),
            ["Approve", "Reject", "Open"],
        ),
        (
            question(
                response_schema=fields(approved={"type": "boolean"}, level={"type": "integer"})
            ),
            ["Approve...", "Reject", "Open"],
        ),
        (question(response_schema=GRANT), ["Approve", "Reject", "Open"]),
        (question(response_schema=GRANT, payload={"amount": 4}), ["Approve...", "Reject", "Open"]),
        (question(response_schema=GRANT, votes=[YES]), ["Approve...", "Reject", "Open"]),
        (question(response_schema=fields(approved={"type": "integer"})), ["Answer", "Open"]),
        (question(kind="static"), ["Open"]),
        (question(status="held"), ["Open"]),
        (question(status="answered"), []),
        (question(rewound_by=3), []),
    ],
)
def test_a_question_has_the_buttons_that_can_answer_it(
    view: views.InterruptView, labels: list[str]
) -> None:
    assert buttons(view) == labels


def filled(view: views.InterruptView, decision: Decision, **entered: str | None) -> Any:
    """Return what is read of a form in which a person changed some fields."""
    state = {}
    for block in forms.modal(view, decision, {})["blocks"]:
        if block["type"] != "input":
            continue
        element, name = block["element"], block["block_id"].removeprefix("field:")
        if element["type"] == "static_select":
            options = {each["text"]["text"]: each for each in element["options"]}
            chosen = options.get(entered.get(name) or "", element.get("initial_option"))
            state[block["block_id"]] = {"value": {"selected_option": chosen}}
        else:
            key = "selected_date" if element["type"] == "datepicker" else "value"
            start = element.get("initial_date") or element.get("initial_value")
            state[block["block_id"]] = {"value": {key: entered.get(name, start)}}
    return forms.entered(view, decision, state)


def test_a_form_that_nobody_has_touched_gives_the_arguments_back_exactly() -> None:
    assert filled(approval(), "edit") == Answer(answer={"approved": True, "arguments": CALL})


def test_a_yes_is_to_what_the_question_shows_and_others_have_approved() -> None:
    shown = question(response_schema=GRANT, payload={"amount": 4, "shop": 1})
    assert filled(shown, "approve") == Answer(answer={"approved": True, "amount": 4})
    voted = question(response_schema=GRANT, votes=[YES])
    assert filled(voted, "approve") == Answer(answer={"approved": True, "amount": 200})


def test_an_entered_value_is_read_by_the_type_of_its_field() -> None:
    entered = {"amount": "12.50", "on": "2026-04-01", "kind": "a", "big": str(2**60 + 1)}
    arguments = {**CALL, "amount": "12.50", "on": "2026-04-01", "kind": "a", "big": 2**60 + 1}

    assert filled(approval(), "edit", **entered).answer["arguments"] == arguments
    assert "big" not in filled(approval(), "edit", big=None).answer["arguments"]
    assert filled(approval(), "edit", order=" ", amount="much") == {
        "field:order": "This is needed.",
        "field:amount": "'much' does not fit: it is not a number.",
    }


@pytest.mark.parametrize("typed", ["12345678901234567.89", "-0.10", "1e3", "7"])
def test_a_decimal_is_sent_with_all_the_digits_that_were_typed(typed: str) -> None:
    assert filled(approval(), "edit", amount=typed).answer["arguments"]["amount"] == typed


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("12.50", 12.5),
        ("0.1", 0.1),
        ("12345678901234567", 12345678901234567),
        ("12345678901234567.0", 12345678901234567),
        ("-1e22", -(10**22)),
        ("5e-324", 5e-324),
        ("12345678901234567.89", None),
        ("1e-999", None),
        ("1e999", None),
    ],
)
def test_a_number_is_sent_as_it_was_typed_or_not_at_all(typed: str, sent: float | None) -> None:
    view = question(response_schema={"type": "number"})
    told = f"'{typed}' cannot be kept exactly: write fewer digits."

    found = filled(view, "answer", **{"": typed})

    assert found == ({"field:": told} if sent is None else Answer(answer=sent))
    assert sent is None or type(found.answer) is type(sent)


def test_a_rejection_says_why_to_the_agent_and_of_other_questions_in_the_note() -> None:
    assert filled(approval(), "reject", note="no") == Answer(
        answer={"approved": False, "reason": "no"}
    )
    assert filled(question(), "reject", note="no") == Answer(answer=False, note="no")


def test_a_yes_is_remembered_as_long_as_its_author_allows_and_a_day_at_most() -> None:
    longest = approval(remember=ALLOWED)
    usual = {"for": "8h", "where": "run"}
    chosen = {"for": "1 day", "where": "in every run of this graph", "uses": "20", "note": "ok"}

    assert filled(longest, "remember").answer == {"approved": True, "remember": usual}
    assert filled(longest, "remember", **chosen) == Answer(
        answer={"approved": True, "remember": {"for": "1d", "where": "graph", "uses": 20}},
        note="ok",
    )
    shortest = approval(remember={"most": 60, "where": ["graph"]})
    assert filled(shortest, "remember").answer["remember"] == {"for": 60, "where": "graph"}
    assert filled(longest, "remember", uses="1.5") == {
        "field:uses": "'1.5' does not fit: it is not an integer."
    }


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (ALLOWED, "Calls with the same order and amount below 200 are then not asked about."),
        ({"most": 60, "where": ["run"]}, "All calls of this tool are then not asked about."),
    ],
)
def test_the_form_says_which_calls_are_not_asked_about(allowed: Any, said: str) -> None:
    shown = forms.modal(approval(remember=allowed), "remember", {})
    assert said in [each["text"] for each in _texts(shown["blocks"])]
    assert len(shown["title"]["text"]) <= 24


def test_a_schema_without_fields_has_one_field_for_the_answer() -> None:
    assert filled(question(response_schema={"enum": ["a", 1]}), "answer", **{"": "1"}) == Answer(
        answer=1
    )


@pytest.mark.parametrize("field", ["arguments", "result", "remember"])
def test_an_authors_own_answer_is_not_taken_for_that_to_a_call(field: str) -> None:
    answer = {"approved": True, field: "x"}
    settled = question(status="answered", answer=answer, answered_by="ada")
    assert blocks.status(settled, str) == ["*Approved by ada*"]


def test_a_runs_texts_mention_nobody_and_fit_slacks_limits() -> None:
    evil = "<!channel> <@U0ADA> *bold* \u202e " * 1_000
    reason = {f"field {number} {evil}": evil for number in range(30)}
    view = question(
        prompt=evil, reason=reason, preview=evil, graph=evil, run_id=evil, assignees=[evil] * 50
    )
    said = blocks.message(view, link="https://example.com", mention=blocks.escape)

    marked = [each for each in _texts(said["blocks"]) if each["type"] == "mrkdwn"]
    assert marked
    assert all("<!channel>" not in each["text"] for each in marked)
    assert "<!channel>" not in said["text"]
    assert all(len(each["text"]) <= 3_000 for each in _texts(said["blocks"]))
    for block in said["blocks"]:
        assert len(block.get("fields", ())) <= 10
        assert all(len(each["text"]) <= 2_000 for each in block.get("fields", ()))
    assert "\u202e" not in json.dumps(said, ensure_ascii=False)


def _texts(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [each for item in value for each in _texts(item)]
    if not isinstance(value, dict):
        return []
    own = [value] if value.get("type") in ("plain_text", "mrkdwn") else []
    return [*own, *(each for item in value.values() for each in _texts(item))]
