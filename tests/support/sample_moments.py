"""A moment of a run, as notification rules and receivers see it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from abeyance.notifications.moments import Moment

QUESTION: dict[str, Any] = {
    "id": "r.0123456789abcdef",
    "name": "approve",
    "prompt": "Pay 3 EUR?",
    "status": "open",
    "requested_capability": "refunds:approve",
    "deadline": "2026-03-04T09:00:00Z",
    "digest": "sha256:1",
    "assignees": [],
}


def moment(event: str = "interrupt.opened", **fields: Any) -> Moment:
    """Return a moment of the run `r`, with a question if the event is about one."""
    question = (
        {**QUESTION, **fields.pop("question", {})} if event.startswith("interrupt.") else None
    )
    given = {
        "key": "7",
        "time": datetime(2026, 3, 2, 9, tzinfo=UTC),
        "run_id": "r",
        "graph": "refund",
        "status": "awaiting-input",
        "interrupt": question,
        **fields,
    }
    return Moment(event=event, **given)
