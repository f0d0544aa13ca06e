"""The text of a run, as `abeyance show` and `abeyance interrupts` print it."""

from __future__ import annotations

from typing import Any

import pytest

from abeyance.cli.formatting import Line, interrupt_lines, receipt_lines, run_lines, show

AT, LATER = "2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z"
RUN: dict[str, Any] = {"run_id": "r", "graph": "g", "created_at": AT, "status": "running"}
FAILED = {**RUN, "status": "failed", "outcome": "failed", "reason": "no such account"}
ERROR = {"code": "node_failed", "message": "no such account", "address": "graph:g;node:pay"}
PAY = {"node": "g.pay", "address": "graph:g;node:pay", "message": "no bank", "attempts": 2}
PAUSE = {"actor": "ada", "since": AT, "reason": "audit", "deadline": LATER, "on_timeout": "resume"}
ASKED: dict[str, Any] = {
    "id": "r.1",
    "status": "open",
    "kind": "question",
    "prompt": "Pay?",
    "address": "graph:g;node:ask",
}
ANSWERED = {**ASKED, "answered_by": "ada", "answered_at": AT}
YES = {"approved": True, "arguments": {"amount": 5}}
NO = {"approved": False, "reason": "zu teuer, größer als 5"}
UNREAD = (
    "no worker is up, or none can read the run (its log says why): this is the last state that was "
    "recorded"
)
BY = f"by ada at {AT}"

RUNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    # The reason of the run is the message of its error, which is printed once.
    "failed": (
        {**FAILED, "error": ERROR},
        ["r", "failed", f"g, started {AT}", "node_failed: no such account at graph:g;node:pay"],
    ),
    "halted": (
        {**RUN, "status": "halted", "outcome": "halted", "reason": "evicted"},
        ["r", "halted: evicted", f"g, started {AT}"],
    ),
    "retrying": (
        {**RUN, "retrying": [{**PAY, "due": LATER}]},
        ["g.pay: no bank", f"failed 2 times; runs again at {LATER}"],
    ),
    "started for somebody in a conversation": (
        {**RUN, "started_by": "carol", "sent_by": "svc", "conversation_id": "desk\u202e"},
        [f"g, started {AT} by svc for carol", "in the conversation desk<U+202E>"],
    ),
    "paused": (
        {**RUN, "status": "paused", "pause": PAUSE},
        [f"{BY}: audit", f"until {LATER}, then resume", "abeyance resume r"],
    ),
    "with refused messages": (
        {**RUN, "rejected": [{"code": code} for code in ("unknown_node", "queue_full") * 2]},
        ["4 refused: unknown_node, queue_full"],
    ),
    "without a worker": (
        {**RUN, "degraded": True, "interrupts": [ASKED]},
        [UNREAD, "Pay?"],
    ),
    "that has ended and that a key is missing for": (
        {**RUN, "ended_at": LATER, "blocked": [{"code": "key_missing", "message": "no key"}]},
        [
            "r",
            "running",
            f"g, started {AT}",
            LATER,
            "no key",
            "key_missing; it can be read once this is fixed",
        ],
    ),
    # The API responds like this to a signal while the database is away.
    "that cannot be read": (
        {"run_id": "r"},
        [
            "r",
            "the run has the call; what comes of it cannot be read now: `abeyance doctor` says why",
        ],
    ),
}
QUESTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "answered": (
        {**ANSWERED, "status": "answered", "answer": NO},
        [
            "Pay?",
            "r.1  at graph:g;node:ask",
            BY,
            'answer {"approved": false, "reason": "zu teuer, größer als 5"}',
        ],
    ),
    "with votes": (
        {
            **ASKED,
            "missing": 1,
            "votes": [
                {"by": "ada", "at": AT, "answer": True, "note": "as\nagreed"},
                {
                    "by": "bob",
                    "at": AT,
                    "answer": {"approved": True, "pay": 1},
                    "on_behalf_of": "eve",
                },
                {"by": "dan", "at": AT, "answer": False},
            ],
        },
        [
            f"ada approved at {AT}: as agreed",
            f'bob for eve approved with {{"approved": true, "pay": 1}} at {AT}',
            f"dan rejected at {AT}",
        ],
    ),
    "that lacks a vote": ({**ASKED, "missing": 1}, ["1 more approval needed"]),
    "with urgency and people": (
        {
            **ASKED,
            "priority": "high",
            "risk": 0,
            "reminders": [AT],
            "escalations": [{"at": LATER, "to": ["group:legal"], "requested_capability": "all"}],
            "assignees": ["ada"],
        },
        [
            "high priority, risk 0",
            f"reminders at {AT}",
            "for ada",
            f"from {LATER} also for group:legal, all",
        ],
    ),
    "that bars people": (
        {**ASKED, "barred": {"carol": "@starter", "ada": "first", "eve": "{requester}"}},
        ["not by carol (started the run), ada (answered first), eve (the run's requester)"],
    ),
    "with a held answer": (
        {**ANSWERED, "status": "held", "held_until": LATER, "answer": YES, "note": "half of it"},
        [
            BY,
            f"until {LATER}, and then it counts",
            "abeyance take-back r.1",
            'answer {"approved": true, "arguments": {"amount": 5}}',
            "note half of it",
        ],
    ),
    "with its deadline": (
        {
            **ASKED,
            "deadline": LATER,
            "on_timeout": "goto:late",
            "response_schema": {"type": "integer"},
        },
        [f"until {LATER}, then goto:late", "abeyance respond r.1 0"],
    ),
}


def holds(texts: list[str], expected: list[str]) -> bool:
    """Return whether these lines stand there, one after another."""
    return any(texts[n : n + len(expected)] == expected for n in range(len(texts)))


@pytest.mark.parametrize("case", RUNS)
def test_a_run(case: str) -> None:
    view, expected = RUNS[case]
    texts = [line.text for line in run_lines(view)]

    assert holds(texts, expected), texts


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question(case: str) -> None:
    entry, expected = QUESTIONS[case]
    texts = [line.text for line in interrupt_lines([entry])]

    assert holds(texts, expected), texts


def test_a_receipt_says_what_the_answer_did() -> None:
    receipt = {"interrupt_id": "r.1", "answered_by": "ada", "accepted_at": AT}
    receipts: list[dict[str, Any]] = [
        {**receipt, "status": "voted", "missing": 1},
        {**receipt, "status": "held", "held_until": LATER},
        {**receipt, "status": "answered", "asked_again": True},
    ]

    assert [line.text.partition("; ")[2] for line in receipt_lines(receipts)] == [
        "a vote; approvals that are missing: 1",
        f"held until {LATER}, and until then it can be taken back",
        "with other arguments it is asked again, with a new preview: approve that too",
    ]


def test_a_label_is_apart_from_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    show([Line("run", "r-1"), Line("delegations", "none\nat all")])

    assert capsys.readouterr().out == "run        r-1\ndelegations none\n           at all\n"
