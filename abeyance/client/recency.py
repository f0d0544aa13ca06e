"""The open runs of a deployment by when they were active last, as far as visibility knows.

Runs write their activity down at most once a minute, so what is told here may be a minute too early,
and the list itself is a moment late.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from abeyance import wire
from abeyance.client.listing import OPEN_RUNS, RUNS, Listing, written


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Active:
    """An open run, and when it was active last."""

    last_activity_at: datetime
    run_id: str


class Recency:
    """The open runs of a listing; those that end already are not counted."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._open = f"{OPEN_RUNS} AND {wire.STATUS} != 'ending'"

    async def count(self, *, beside: Collection[str] = ()) -> int:
        """How many runs are open, beside these."""
        query = f"{self._open} AND {_among(beside, 'NOT IN')}" if beside else self._open
        return await self._listing.count(query)

    async def over(self, among: Collection[str]) -> int:
        """How many of these runs have ended, or end already."""
        ended = f"(CloseTime IS NOT NULL OR {wire.STATUS} = 'ending')"
        query = f"{RUNS} AND {ended} AND {_among(among)}"
        return await self._listing.count(query) if among else 0

    async def runs(self, *, inactive_since: datetime | None = None) -> list[Active]:
        """The open runs, the least recently active first; with a time, those not active after it."""
        query = self._open
        if inactive_since is not None:
            bound = written(inactive_since.astimezone(UTC))
            query += (
                f" AND StartTime <= '{bound}'"
                f" AND ({wire.ACTIVITY} IS NULL OR {wire.ACTIVITY} <= '{bound}')"
            )
        return sorted(map(_active, await self._listing.all(query)))


def _among(run_ids: Collection[str], how: str = "IN") -> str:
    # No character of a run's id has to be quoted.
    return f"WorkflowId {how} (" + ", ".join(f"'{run_id}'" for run_id in sorted(run_ids)) + ")"


def _active(row: WorkflowExecutionInfo) -> Active:
    moment = row.start_time.ToDatetime(tzinfo=UTC)
    if (payload := row.search_attributes.indexed_fields.get(wire.ACTIVITY)) is not None:
        moment = max(moment, datetime.fromisoformat(json.loads(payload.data)))
    return Active(last_activity_at=moment, run_id=row.execution.workflow_id)
