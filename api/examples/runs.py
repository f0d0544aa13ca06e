"""Examples of a run, and what is done to it."""

from __future__ import annotations

from typing import Any, Final

from abeyance.api.examples.interrupts import ANSWERED, INTERRUPT, LISTED_INTERRUPT

RUN: Final[dict[str, Any]] = {
    "run_id": "refund-4711",
    "graph": "refund",
    "graph_version": "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "status": "awaiting-input",
    "outcome": None,
    "reason": None,
    "paused": False,
    "pause": None,
    "conversation_id": None,
    "session_type": "agent",
    "labels": {"team": "support"},
    "started_by": "ada",
    "forked_from": None,
    "created_at": "2026-03-02T09:00:00Z",
    "updated_at": "2026-03-02T09:00:01Z",
    "ended_at": None,
    "running": [],
    "agents": [],
    "interrupts": [INTERRUPT],
    "queue_depth": 0,
    "max_queue_size": 100,
    "todos": [],
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
    "result": None,
    "undelivered": [],
    "rejected": [],
    "blocked": [],
    "guarded_by": ["refunds:approve"],
    "error": None,
    "beside": [],
    "cancelled_by": None,
    "degraded": False,
    "archived": False,
}

LISTED_RUN: Final[dict[str, Any]] = {
    **RUN,
    "interrupts": [LISTED_INTERRUPT],
    "max_queue_size": 0,
    "metrics": None,
    "values": {},
    "version": 0,
    "degraded": True,
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

RETRY: Final[dict[str, Any]] = {"patch": {"amount": 200.0}, "graph": "pinned"}

FORK: Final[dict[str, Any]] = {"back": 1, "run_id": "refund-4711-again"}

FORKED: Final[dict[str, Any]] = {
    "run_id": "refund-4711-again",
    "forked_from": "refund-4711",
    "interrupts": [
        {**INTERRUPT, "id": "refund-4711-again.5c6ffbdd40d9556b", "run_id": "refund-4711-again"}
    ],
}

EVICT: Final[dict[str, Any]] = {"inactive_for": "P2D"}

EVICTED: Final[dict[str, Any]] = {"evicted": 1, "runs": ["refund-4711"]}

ERASING: Final[dict[str, Any]] = {"run_id": "refund-4711", "state": "erasing", "forks": []}
