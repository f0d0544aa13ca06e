"""The messages that a receiver gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sample_moments import moment

from abeyance.contrib.people.sending import MOST_BYTES, text_of, webhook_body

URL = "https://abeyance.example.com/inbox#r.0123456789abcdef"


def read(given: Any, format_: Any = "standard") -> dict[str, Any]:
    encoded = webhook_body(given, id_="msg_1", url=URL, format_=format_)
    assert len(encoded) <= MOST_BYTES
    found: dict[str, Any] = json.loads(encoded)
    return found


def test_a_body_has_the_event_the_run_the_question_and_its_address() -> None:
    found = read(moment(data={"id": "r.0123456789abcdef"}))

    assert (found["type"], found["timestamp"]) == ("interrupt.opened", "2026-03-02T09:00:00Z")
    assert found["data"]["event"] == {
        "time": "2026-03-02T09:00:00Z",
        "type": "interrupt.opened",
        "run_id": "r",
        "address": None,
        "actor": None,
        "data": {"id": "r.0123456789abcdef"},
    }
    assert found["data"]["run"] == {"run_id": "r", "graph": "refund", "status": "awaiting-input"}
    assert found["data"]["interrupt"]["prompt"] == "Pay 3 EUR?"
    assert found["data"]["url"] == URL


def test_an_envelope_of_cloudevents_is_around_the_same_data() -> None:
    envelope = read(moment(), "cloudevents")

    assert envelope["data"] == read(moment())["data"]
    assert {name: value for name, value in envelope.items() if name != "data"} == {
        "specversion": "1.0",
        "id": "msg_1",
        "source": "/runs/r",
        "type": "interrupt.opened",
        "subject": "r",
        "time": "2026-03-02T09:00:00Z",
        "datacontenttype": "application/json",
    }


@pytest.mark.parametrize(
    "question",
    [
        {"payload": {"lines": ["x" * 100] * 1_000}},
        {"payload": ["\u20ac" * 30_000], "response_schema": {"enum": ["y" * 50_000]}},
        {"prompt": "\u20ac" * 30_000},
    ],
)
def test_a_body_that_is_too_large_is_cut_and_says_so(question: dict[str, Any]) -> None:
    data = read(moment(question=question))["data"]

    assert data["truncated"] is True
    assert data["interrupt"]["id"] == "r.0123456789abcdef"
    assert not data["interrupt"].get("payload")
    assert data["interrupt"]["prompt"].startswith(question.get("prompt", "Pay 3 EUR?")[:100])


@pytest.mark.parametrize(
    "given",
    [
        moment(question={"payload": None, "abridged": True}),
        moment("user.charged", data={"truncated": True}),
    ],
)
def test_a_moment_cut_by_the_run_is_marked_as_truncated(given: Any) -> None:
    assert read(given)["data"]["truncated"] is True


def test_a_large_event_of_an_author_is_cut() -> None:
    data = read(moment("user.charged", data={"data": "x" * 90_000}))["data"]

    assert data["truncated"] is True
    assert len(data["event"]["data"]["data"]) == 2_000


def test_people_read_what_is_asked_until_when_and_where() -> None:
    notice = text_of(moment(), url=URL)

    assert notice.title == "refund asks: approve"
    assert notice.body.splitlines() == [
        "Pay 3 EUR?",
        "Deadline: 2026-03-04T09:00:00Z",
        "Run: r",
        "",
        URL,
    ]


def test_a_channel_is_not_told_that_a_question_is_its_own() -> None:
    assert text_of(moment(event="interrupt.reassigned"), url=URL).title == (
        "Reassigned: refund asks: approve"
    )


def test_people_read_why_a_run_failed() -> None:
    failed = moment(
        "run.failed", data={"reason": None, "code": "node_failed", "message": "no money"}
    )

    assert text_of(failed, url=None).title == "refund failed: r"
    assert "Reason: no money" in text_of(failed, url=None).body


def test_invisible_characters_of_a_prompt_are_shown() -> None:
    notice = text_of(moment(question={"prompt": "Pay \u202e3"}), url=None)

    assert "Pay <U+202E>3" in notice.body
