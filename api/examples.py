"""The examples of the OpenAPI document: one refund that waits for an approval."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel

from abeyance import views
from abeyance.agents.transcript_view import TranscriptItem


def listed(entry: dict[str, Any], next_cursor: str | None = None) -> dict[str, Any]:
    """Return a page with one entry."""
    return {"items": [entry], "next_cursor": next_cursor}


def _whole(model: type[BaseModel], fields: dict[str, Any]) -> dict[str, Any]:
    """Return an instance of a model as JSON, with its defaults."""
    return model.model_validate(fields).model_dump(mode="json")


INTERRUPT: Final = _whole(
    views.InterruptView,
    {
        "id": "refund-4711.b276f6238dab3ba5",
        "run_id": "refund-4711",
        "graph": "refund",
        "name": "approve",
        "kind": "question",
        "address": "graph:refund;node:approve",
        "prompt": "Refund 250 for A-17?",
        "reason": {"risk": "high"},
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
        "priority": "high",
        "risk": 80,
        "quorum": {"count": 2, "of": ["group:finance"], "veto": True},
        "not_by": ["@starter"],
        "barred": {"sam": "@starter"},
        "may_answer": True,
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
        "digest": "sha256:9b74c9897bac770ffc029102a200c5de9b74c9897bac770ffc029102a200c5de",
    },
)

LISTED_INTERRUPT: Final[dict[str, Any]] = {
    **INTERRUPT,
    "about": {"risk": "high"},
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

RUN: Final = _whole(
    views.RunView,
    {
        "run_id": "refund-4711",
        "graph": "refund",
        "graph_version": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "status": "awaiting-input",
        "labels": {"team": "support"},
        "started_by": "ada",
        "created_at": "2026-03-02T09:00:00Z",
        "updated_at": "2026-03-02T09:00:01Z",
        "interrupts": [INTERRUPT],
        "max_queue_size": 100,
        "metrics": {
            "messages_queued": 0,
            "messages_delivered": 0,
            "pause_count": 0,
            "resume_count": 0,
            "cancel_count": 0,
            "max_queue_depth": 0,
            "last_activity_at": "2026-03-02T09:00:01Z",
            "visits": 2,
        },
        "values": {"order_id": "A-17", "amount": 250.0, "risk": "high", "decision": None},
        "version": 2,
        "guarded_by": ["refunds:approve"],
    },
)

LISTED_RUN: Final[dict[str, Any]] = {
    **RUN,
    "interrupts": [LISTED_INTERRUPT],
    "values": {},
}

ACCEPTED: Final[dict[str, Any]] = {"run_id": "refund-4711"}

PAUSED_RUN: Final[dict[str, Any]] = {
    **RUN,
    "status": "paused",
    "paused": True,
    "pause": {
        "since": "2026-03-02T09:05:00Z",
        "actor": "ada",
        "reason": "audit",
        "mode": "after-node",
        "deadline": "2026-03-02T10:05:00Z",
        "on_timeout": "resume",
    },
}

ENDING_RUN: Final[dict[str, Any]] = {
    **RUN,
    "status": "ending",
    "outcome": "cancelled",
    "reason": "the order was withdrawn",
    "interrupts": [],
    "cancelled_by": "ada",
}

_VALUES: Final[dict[str, Any]] = {
    "order_id": "A-17",
    "amount": 250.0,
    "risk": "high",
    "decision": {"approved": True},
}

RESULT: Final[dict[str, Any]] = {
    "run_id": "refund-4711",
    "status": "completed",
    "outcome": "completed",
    "reason": None,
    "error": None,
    "values": _VALUES,
    "undelivered": [],
    "view": {
        **RUN,
        "status": "completed",
        "outcome": "completed",
        "ended_at": "2026-03-02T11:30:01Z",
        "interrupts": [],
        "values": _VALUES,
        "result": _VALUES,
    },
    "interrupts": [ANSWERED],
    "transcripts": {},
}

START: Final[dict[str, Any]] = {
    "graph": "refund",
    "input": {"order_id": "A-17", "amount": 250.0},
    "run_id": "refund-4711",
    "labels": {"team": "support"},
}

PAUSE: Final[dict[str, Any]] = {"reason": "audit", "timeout": "PT1H", "on_timeout": "resume"}
RESUME: Final[dict[str, Any]] = {"reason": "audit passed"}
CANCEL: Final[dict[str, Any]] = {"reason": "the order was withdrawn", "grace": "PT10S"}
VALUES: Final[dict[str, Any]] = {"patch": {"amount": 200.0}, "version": 2}

MIGRATE: Final[dict[str, Any]] = {
    "patch": {"cost_center": "C7"},
    "map": {"pay": "payout"},
    "dry_run": True,
}

MIGRATION: Final[dict[str, Any]] = {
    "run_id": "refund-4711",
    "dry_run": True,
    "before": "2c26b46b68ff",
    "after": "fcde2b2edba5",
    "nodes": {"approve": "approve"},
    "obstacles": [
        {
            "what": "value",
            "name": "cost_center",
            "why": "Field required",
            "remedy": "set the field by `patch`, or give it a default or a type that takes the value",
            "address": None,
        }
    ],
}

REWIND: Final[dict[str, Any]] = {"to": "refund-4711.0f1e2d3c4b5a6978", "dry_run": True}
REWOUND: Final[dict[str, Any]] = {
    "run_id": "refund-4711",
    "to": "refund-4711.0f1e2d3c4b5a6978",
    "dry_run": True,
    "discards": [
        {
            "id": "000000000004",
            "time": "2026-03-02T09:20:00Z",
            "type": "interrupt.answered",
            "run_id": "refund-4711",
            "address": "graph:refund;node:approve",
            "actor": "anna",
            "data": {"id": "refund-4711.0f1e2d3c4b5a6978", "name": "approve"},
        }
    ],
    "effects": [
        {
            "node": "refund.pay",
            "address": "graph:refund;node:pay",
            "at": "2026-03-02T09:20:00Z",
            "attempts": 1,
        }
    ],
}
RETRY: Final[dict[str, Any]] = {"patch": {"amount": 200.0}, "graph": "pinned"}
EVICT: Final[dict[str, Any]] = {"inactive_for": "P2D"}
EVICTED: Final[dict[str, Any]] = {"evicted": 1, "runs": ["refund-4711"]}
ERASING: Final[dict[str, Any]] = {"run_id": "refund-4711", "state": "erasing"}
TO_ALL: Final[dict[str, Any]] = {"text": "The customer accepts half of the amount."}
REACHED: Final[dict[str, Any]] = {"count": 1, "runs": ["refund-4711"]}
STEERED: Final[dict[str, Any]] = {**REACHED, "message_id": "note-1"}

PAUSE_MANY: Final[dict[str, Any]] = {
    "filter": {"status": ["running", "awaiting-input"], "label": ["team=support"]},
    "body": {"reason": "audit"},
}

RESUME_MANY: Final[dict[str, Any]] = {"filter": {"status": ["paused"], "graph": "refund"}}

CANCEL_MANY: Final[dict[str, Any]] = {
    "run_ids": ["refund-4711", "refund-4712"],
    "body": {"reason": "the orders were withdrawn"},
}

STEER_MANY: Final[dict[str, Any]] = {"run_ids": ["refund-4711", "refund-4712"], "body": TO_ALL}

RESPOND_MANY: Final[dict[str, Any]] = {
    "run_ids": ["refund-4711", "refund-4712"],
    "body": {"response": {"approved": True}, "note": "below the limit"},
}

DONE_TO_MANY: Final[dict[str, Any]] = {
    "results": [
        {"run_id": "refund-4711", "ok": True, "code": None, "detail": None},
        {
            "run_id": "refund-4712",
            "ok": False,
            "code": "unknown_run",
            "detail": "There is no run 'refund-4712', or its history is no longer kept.",
        },
    ],
    "succeeded": 1,
    "failed": 1,
    "next_cursor": None,
}

ACCEPTED_MESSAGE: Final[dict[str, Any]] = {**ACCEPTED, "message_id": "note-1"}

MESSAGE: Final[dict[str, Any]] = {
    "message_id": "note-1",
    "text": "The customer accepts half of the amount.",
    "target": "pay",
    "priority": "high",
}

MESSAGE_RECEIPT: Final[dict[str, Any]] = {
    "message_id": "note-1",
    "duplicate": False,
    "queue_depth": 1,
}

MESSAGE_PAGE: Final[dict[str, Any]] = {
    "items": [
        {
            **MESSAGE,
            "sender": "ada",
            "metadata": {},
            "parts": [],
            "action": None,
            "params": {},
            "sent_at": "2026-03-02T09:10:00Z",
            "expires_at": None,
        }
    ],
    "page": 1,
    "page_size": 50,
    "total": 1,
}

CLEARED: Final[dict[str, Any]] = {"cleared": 1}

SAID: Final = _whole(
    TranscriptItem,
    {
        "role": "assistant",
        "turn": 1,
        "at": "2026-03-02T09:00:02Z",
        "text": "I will refund half of the amount.",
        "calls": [
            {"call_id": "call_1", "tool": "transfer", "arguments": {"amount": 125.0, "to": "A-17"}}
        ],
        "model": "gpt-5",
        "usage": {"input_tokens": 412, "output_tokens": 31, "cached_tokens": 0},
        "finish_reason": "tool_call",
    },
)

AGENT: Final = "graph:refund;node:review;agent:clerk"

EVENT: Final[dict[str, Any]] = {
    "id": "000000000004",
    "time": "2026-03-02T09:00:01Z",
    "type": "interrupt.opened",
    "run_id": "refund-4711",
    "address": "graph:refund;node:approve",
    "actor": None,
    "data": {"id": "refund-4711.b276f6238dab3ba5", "name": "approve"},
}

EVENT_STREAM: Final = "\n".join(
    [f"id: {EVENT['id']}", f"event: {EVENT['type']}", f"data: {json.dumps(EVENT)}", "", ""]
)

STREAM_EVENT: Final[dict[str, Any]] = {
    **EVENT,
    "id": "000000018201-64c9a8a17f400",
    "graph": "refund",
    "event_id": EVENT["id"],
}

STREAM_OF_ALL: Final = "\n".join(
    [
        f"id: {STREAM_EVENT['id']}",
        f"event: {STREAM_EVENT['type']}",
        f"data: {json.dumps(STREAM_EVENT)}",
        *("", ""),
    ]
)

AUDIT: Final = (
    json.dumps(
        {
            "actor": "ada",
            "answer": True,
            "capability": "refunds:approve",
            "data": {"id": INTERRUPT["id"], "name": "approve"},
            "hash": "3c1c8d2e4b2f5d7d1f0cbb5ad64bb1fd9f3b2f9f0f2ee80d2a7f5f1f8a7a6d15",
            "id": EVENT["id"],
            "n": 5,
            "prev": "9a1f0e6f1b7c2a0f3f4f0d8d6cb3de8fda5cbb4b2e4c9e2f7c4e3ddc5d6b1a20",
            "run_id": "refund-4711",
            "time": "2026-03-02T09:04:10Z",
            "type": "interrupt.answered",
        },
        separators=(",", ":"),
    )
    + "\n"
)

ME: Final = {
    "subject": "ada",
    "capabilities": ["runs:read", "runs:respond", "refunds:approve"],
    "groups": ["finance"],
    "reads": {"team": ["finance"]},
    "authenticated_by": "token",
    "expires_at": "2026-03-02T17:00:00Z",
}

SIGN_IN: Final = {"token": "5d1c0f7e9b7f4a0f8f0f6a0c9f3b7d2e"}
SIGNED_IN: Final = {**ME, "authenticated_by": "session"}
SIGNED_OUT: Final = {"signed_out": True}
