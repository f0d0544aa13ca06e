"""Examples of the OpenAPI document: of requests, and of responses that are text."""

from __future__ import annotations

import json
from typing import Any, Final

INTERRUPT_ID: Final = "refund-4711.b276f6238dab3ba5"

ANSWER_TO_ONE: Final[dict[str, Any]] = {
    "response": {"approved": True},
    "note": "called the customer",
}

ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "several": {"value": {"responses": {INTERRUPT_ID: {"approved": True}}}},
    "one": {"value": {"interrupt_id": INTERRUPT_ID, "response": {"approved": True}}},
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

TAKE_BACK: Final[dict[str, Any]] = {"note": "That was the wrong order."}
DEADLINE: Final[dict[str, Any]] = {"timeout": "P2D", "on_timeout": "goto:escalate"}

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

REWIND: Final[dict[str, Any]] = {"to": "refund-4711.0f1e2d3c4b5a6978", "dry_run": True}
RETRY: Final[dict[str, Any]] = {"patch": {"amount": 200.0}, "graph": "pinned"}
EVICT: Final[dict[str, Any]] = {"inactive_for": "P2D"}
TO_ALL: Final[dict[str, Any]] = {"text": "The customer accepts half of the amount."}
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

MESSAGE: Final[dict[str, Any]] = {
    "message_id": "note-1",
    "text": "The customer accepts half of the amount.",
    "target": "pay",
    "priority": "high",
}

AGENT: Final = "graph:refund;node:review;agent:clerk"

_EVENT: Final[dict[str, Any]] = {
    "id": "000000000004",
    "time": "2026-03-02T09:00:01Z",
    "type": "interrupt.opened",
    "run_id": "refund-4711",
    "address": "graph:refund;node:approve",
    "actor": None,
    "data": {"id": INTERRUPT_ID, "name": "approve"},
}


def _sent(event: dict[str, Any]) -> str:
    return f"id: {event['id']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n"


EVENT_STREAM: Final = _sent(_EVENT)
STREAM_OF_ALL: Final = _sent(
    {**_EVENT, "id": "000000018201-64c9a8a17f400", "graph": "refund", "event_id": _EVENT["id"]}
)

AUDIT: Final = (
    json.dumps(
        {
            "actor": "ada",
            "answer": True,
            "capability": "refunds:approve",
            "data": {"id": INTERRUPT_ID, "name": "approve"},
            "hash": "3c1c8d2e4b2f5d7d1f0cbb5ad64bb1fd9f3b2f9f0f2ee80d2a7f5f1f8a7a6d15",
            "id": _EVENT["id"],
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

_PAID: Final = {"order_id": "A-17", "amount": 250.0, "decision": {"approved": True}}
RESULT: Final[dict[str, Any]] = {
    "run_id": "refund-4711",
    "status": "completed",
    "outcome": "completed",
    "values": _PAID,
    "view": {
        "run_id": "refund-4711",
        "graph": "refund",
        "graph_version": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "status": "completed",
        "outcome": "completed",
        "created_at": "2026-03-02T09:00:00Z",
        "updated_at": "2026-03-02T11:30:01Z",
        "ended_at": "2026-03-02T11:30:01Z",
        "result": _PAID,
    },
}
"""The result of a run. Made of its schema, it would have the view of a run that has not ended."""

SIGN_IN: Final = {"token": "5d1c0f7e9b7f4a0f8f0f6a0c9f3b7d2e"}
