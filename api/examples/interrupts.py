"""Examples of questions, their answers, and who gives them."""

from __future__ import annotations

from typing import Any, Final

INTERRUPT: Final[dict[str, Any]] = {
    "id": "refund-4711.b276f6238dab3ba5",
    "run_id": "refund-4711",
    "graph": "refund",
    "name": "approve",
    "kind": "question",
    "address": "graph:refund;node:approve",
    "prompt": "Refund 250 for A-17?",
    "reason": {"risk": "high"},
    "payload": None,
    "preview": None,
    "response_schema": {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}},
        "required": ["approved"],
    },
    "requested_capability": "refunds:approve",
    "created_at": "2026-03-02T09:00:01Z",
    "deadline": "2026-03-04T09:00:01Z",
    "on_timeout": "goto:escalate",
    "assignees": ["group:finance"],
    "assignees_only": False,
    "priority": "high",
    "risk": 80,
    "quorum": {"count": 2, "of": ["group:finance"], "veto": True},
    "hold": None,
    "not_by": ["@starter"],
    "claim": None,
    "barred": {"sam": "@starter"},
    "warnings": [],
    "may_answer": True,
    "may_answer_for": [],
    "why_not": None,
    "decisions": None,
    "reminders": ["2026-03-03T09:00:01Z"],
    "escalations": [
        {
            "at": "2026-03-03T15:00:01Z",
            "to": ["group:directors"],
            "requested_capability": "refunds:director",
        }
    ],
    "calendar": "DE-BY",
    "status": "open",
    "votes": [
        {
            "by": "bob",
            "on_behalf_of": None,
            "at": "2026-03-02T10:00:00Z",
            "answer": {"approved": True},
            "answer_sha256": "sha256:"
            "9ea1e86ff3f8ddbb7d2ee8bd4c2bf5d8e5ab0b8d4d6b9a9a5f6fb2d9d7d6c0a1",
            "note": None,
        }
    ],
    "missing": 1,
    "held_until": None,
    "parent": None,
    "parents": [],
    "is_root_cause": True,
    "digest": "sha256:9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de",
    "answered_by": None,
    "on_behalf_of": None,
    "answered_at": None,
    "answer_sha256": None,
    "answer": None,
    "note": None,
    "settled_at": None,
    "settled_reason": None,
    "abridged": False,
    "degraded": False,
}

LISTED_INTERRUPT: Final[dict[str, Any]] = {
    **INTERRUPT,
    "reason": None,
    "response_schema": None,
    "on_timeout": None,
}

ANSWERED: Final[dict[str, Any]] = {
    **INTERRUPT,
    "status": "answered",
    "answered_by": "ada",
    "answered_at": "2026-03-02T11:30:00Z",
    "answer_sha256": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    "answer": {"approved": True},
    "note": "called the customer",
    "settled_at": "2026-03-02T11:30:00Z",
}

RECEIPTS: Final[dict[str, Any]] = {
    "receipts": [
        {
            "interrupt_id": "refund-4711.b276f6238dab3ba5",
            "status": "answered",
            "answered_by": "ada",
            "accepted_at": "2026-03-02T11:30:00Z",
            "replayed": False,
        }
    ]
}

ANSWER_TO_ONE: Final[dict[str, Any]] = {
    "response": {"approved": True},
    "note": "called the customer",
}

ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "several": {"value": {"responses": {INTERRUPT["id"]: {"approved": True}}}},
    "one": {"value": {"interrupt_id": INTERRUPT["id"], "response": {"approved": True}}},
    "the only open one": {"value": {"response": {"approved": True}}},
}

CLAIM: Final[dict[str, Any]] = {"for": "PT30M"}

REASSIGN: Final[dict[str, Any]] = {"to": ["group:finance"], "note": "I am away until Monday."}

DELEGATE: Final[dict[str, Any]] = {
    "to": "bob",
    "capabilities": ["refunds:approve"],
    "until": "2026-03-16T00:00:00Z",
    "reason": "parental leave",
}

DELEGATION: Final[dict[str, Any]] = {
    "id": "9f86d081884c7d65",
    "by": "ada",
    "to": "bob",
    "capabilities": ["refunds:approve"],
    "from": "2026-03-02T09:00:00Z",
    "until": "2026-03-16T00:00:00Z",
    "reason": "parental leave",
    "created_at": "2026-03-02T09:00:00Z",
}

TAKE_BACK: Final[dict[str, Any]] = {"note": "That was the wrong order."}

DEADLINE: Final[dict[str, Any]] = {"timeout": "P2D", "on_timeout": "goto:escalate"}
