"""Examples of what is done to several runs at once."""

from __future__ import annotations

from typing import Any, Final

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
