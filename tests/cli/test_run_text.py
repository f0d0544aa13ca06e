"""The text of a run, as `abeyance show` and `abeyance interrupts` print it."""

from __future__ import annotations

import json
from typing import Any

from abeyance.cli.formatting import interrupt_lines, receipt_lines, run_lines

FAILED: dict[str, Any] = {
    "run_id": "r",
    "graph": "g",
    "created_at": "2026-03-02T09:00:00Z",
    "status": "failed",
    "outcome": "failed",
    "reason": "no such account",
    "error": {"code": "node_failed", "message": "no such account", "address": "graph:g;node:pay"},
}

ASKED: dict[str, Any] = {
    "id": "r.1",
    "status": "open",
    "kind": "question",
    "prompt": "Pay?",
    "address": "graph:g;node:ask",
}


def test_the_reason_of_a_failure_is_printed_once() -> None:
    texts = [text for _, text in run_lines(FAILED)]

    assert texts[1] == "failed"
    assert texts[-1] == "node_failed: no such account at graph:g;node:pay"


def test_a_failure_that_is_retried_is_printed_with_when_and_how_often() -> None:
    pay = {"node": "g.pay", "address": "graph:g;node:pay", "message": "no bank", "attempts": 2}
    running = {**FAILED, "status": "running", "outcome": None, "error": None, "reason": None}
    lines = run_lines({**running, "retrying": [{**pay, "due": "2026-03-02T09:01:00Z"}]})

    assert lines[-2:] == [
        ("retrying", "g.pay: no bank"),
        ("", "failed 2 times; runs again at 2026-03-02T09:01:00Z"),
    ]


def test_another_reason_is_printed_beside_the_status() -> None:
    halted = {**FAILED, "status": "halted", "outcome": "halted", "reason": "evicted", "error": None}

    assert run_lines(halted)[1].text == "halted: evicted"


def test_a_run_is_printed_with_who_started_it_and_for_whom_and_whom_a_question_bars() -> None:
    barred = {"carol": "@starter", "ada": "first", "eve": "{requester}"}
    asked = {**ASKED, "barred": barred}
    started = {**FAILED, "error": None, "started_by": "carol", "interrupts": [asked]}
    texts = [text for _, text in run_lines(started)]

    assert "g, started 2026-03-02T09:00:00Z by carol" in texts
    assert (
        "not by carol (started the run), ada (answered first), eve (the run's requester)" in texts
    )
    told = {**started, "sent_by": "svc", "conversation_id": "desk\u202e"}
    (_, _, graph, conversation, *_) = run_lines(told)
    assert graph.text == "g, started 2026-03-02T09:00:00Z by svc for carol"
    assert conversation.text == "in the conversation desk<U+202E>"


def test_a_pause_is_printed_with_who_paused_why_and_what_resumes() -> None:
    since, until = "2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z"
    pause = {"actor": "ada", "since": since, "reason": "audit", "deadline": until}
    paused = {
        "run_id": "r",
        "graph": "g",
        "created_at": since,
        "status": "paused",
        "pause": {**pause, "on_timeout": "resume"},
    }

    assert [text for _, text in run_lines(paused)][3:] == [
        f"by ada at {since}: audit",
        f"until {until}, then resume",
        "abeyance resume r",
    ]


def test_messages_that_the_run_refused_are_printed_with_their_codes() -> None:
    rejected = [{"code": "unknown_node"}, {"code": "queue_full"}, {"code": "unknown_node"}]

    assert (
        run_lines({**FAILED, "rejected": rejected})[-1].text
        == "3 refused: unknown_node, queue_full"
    )


def test_an_answered_question_is_printed_with_its_answer() -> None:
    answered = {
        "id": "r.1",
        "status": "answered",
        "prompt": "Pay?",
        "address": "graph:g;node:ask",
        "answered_by": "ada",
        "answered_at": "2026-03-02T09:00:00Z",
        "answer": {"approved": False, "reason": "zu teuer, größer als 5"},
    }

    assert [text for _, text in interrupt_lines([answered])] == [
        "Pay?",
        "r.1  at graph:g;node:ask",
        "by ada at 2026-03-02T09:00:00Z",
        'answer {"approved": false, "reason": "zu teuer, größer als 5"}',
    ]


def test_a_question_is_printed_with_the_votes_that_it_has_and_needs() -> None:
    at, card = "2026-03-02T09:00:00Z", {"approved": True, "pay": "card"}
    votes = [
        {"by": "ada", "at": at, "answer": True, "note": "as\nagreed"},
        {"by": "bob", "at": at, "answer": card, "on_behalf_of": "eve"},
        {"by": "dan", "at": at, "answer": False},
    ]
    lines = [text for _, text in interrupt_lines([{**ASKED, "missing": 1, "votes": votes}])]

    assert lines[lines.index("1 more approval needed") + 1 :][:3] == [
        f"ada approved at {at}: as agreed",
        f"bob for eve approved with {json.dumps(card)} at {at}",
        f"dan rejected at {at}",
    ]


def test_a_question_is_printed_with_its_urgency_and_whom_it_is_for_later() -> None:
    urgent = {
        **ASKED,
        "priority": "high",
        "risk": 0,
        "reminders": ["2026-03-03T09:00:00Z"],
        "escalations": [
            {"at": "2026-03-04T09:00:00Z", "to": ["group:legal"], "requested_capability": "all"}
        ],
        "assignees": ["ada"],
    }

    assert [text for _, text in interrupt_lines([urgent])][2:6] == [
        "high priority, risk 0",
        "reminders at 2026-03-03T09:00:00Z",
        "for ada",
        "from 2026-03-04T09:00:00Z also for group:legal, all",
    ]


def test_a_held_answer_is_printed_with_how_to_take_it_back() -> None:
    held = {
        **ASKED,
        "status": "held",
        "answered_by": "ada",
        "answered_at": "2026-03-02T09:00:00Z",
        "held_until": "2026-03-02T09:10:00Z",
        "answer": {"approved": True, "arguments": {"amount": 5}},
        "note": "half of it",
    }

    assert [text for _, text in interrupt_lines([held])][2:] == [
        "by ada at 2026-03-02T09:00:00Z",
        "until 2026-03-02T09:10:00Z, and then it counts",
        "abeyance take-back r.1",
        'answer {"approved": true, "arguments": {"amount": 5}}',
        "note half of it",
    ]


def test_a_receipt_says_what_the_answer_did() -> None:
    receipt = {"interrupt_id": "r.1", "answered_by": "ada", "accepted_at": "2026-03-02T09:00:00Z"}
    receipts: list[dict[str, Any]] = [
        {**receipt, "status": "voted", "missing": 1},
        {**receipt, "status": "held", "held_until": "2026-03-02T09:10:00Z"},
        {**receipt, "status": "answered", "asked_again": True},
    ]
    first, second, third = (line.text.partition("; ")[2] for line in receipt_lines(receipts))
    assert third == "with other arguments it is asked again, with a new preview: approve that too"
    assert first == "a vote; approvals that are missing: 1"
    assert second == "held until 2026-03-02T09:10:00Z, and until then it can be taken back"


def test_a_signal_to_a_run_that_cannot_be_read_is_told_as_sent() -> None:
    # The response of the API while the database is away.
    run, note = run_lines({"run_id": "r1"})

    assert run.text == "r1"
    assert note.text.startswith("the run has the call; what comes of it cannot be read now")
