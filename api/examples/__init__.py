"""The examples of the OpenAPI document: one refund that waits for an approval."""

from __future__ import annotations

from typing import Any

from abeyance.api.examples import accounts, batch, events, graphs, interrupts, messages, runs

__all__ = ["accounts", "batch", "events", "graphs", "interrupts", "listed", "messages", "runs"]


def listed(entry: dict[str, Any], next_cursor: str | None = None) -> dict[str, Any]:
    """Return a page with one entry."""
    return {"items": [entry], "next_cursor": next_cursor}
