"""Finds what runs cannot record themselves: that Temporal ended them, or that no worker can go on."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.client.listing import OPEN_RUNS, Listing, written
from abeyance.client.records import Records
from abeyance.history.hindrance import hindered
from abeyance.records import outside
from abeyance.records.outside import End
from abeyance.views import BlockedView

_AT_FIRST: Final = timedelta(days=1)
"""How far back the first round looks: as long as no process may have looked."""
_OVERLAP: Final = timedelta(minutes=5)
"""How late visibility may list an end."""
_ENDED: Final = (
    f"WorkflowType = '{names.WORKFLOW}' AND ExecutionStatus IN ('Terminated', 'TimedOut')"
)
_HINDERED: Final = (
    f"{OPEN_RUNS} AND ({names.REPORTED_PROBLEMS} IS NOT NULL OR ExecutionStatus = 'Paused')"
)


class Janitor:
    """Keeps the records true of what happens outside of the runs, by two visibility queries a round."""

    def __init__(self, temporal: TemporalClient, listing: Listing, records: Records) -> None:
        self._temporal = temporal
        self._listing = listing
        self._records = records
        self._until: datetime | None = None

    async def round(self) -> int:
        """Record the ends since the last round, and which runs are hindered now.

        Return how many ends were new. Raises Unavailable.
        """
        now = datetime.now(UTC)
        since = now - _AT_FIRST if self._until is None else self._until - _OVERLAP
        rows = await self._listing.all(f"{_ENDED} AND CloseTime >= '{written(since)}'")
        ended = [await self._end(row) for row in rows]
        found = await self._records.write(outside.end, ended) if ended else 0
        self._until = now
        await self._records.write(outside.hinder, await self._hindered())
        return found

    async def _hindered(self) -> dict[str, list[BlockedView]]:
        # Temporal before 1.30 has no such attribute.
        rows: list[WorkflowExecutionInfo] = []
        with suppress(RPCError):
            rows = await self._listing.all(_HINDERED)
        found = {}
        for row in rows:
            described = await self._listing.described(row)
            view = await hindered(self._temporal, described, described.degraded_view())
            found[described.run_id] = [why for why in view.blocked if why.address is None]
        return found

    async def _end(self, row: WorkflowExecutionInfo) -> End:
        described = await self._listing.described(row)
        view = described.degraded_view()
        return End(
            run_id=described.run_id,
            status=view.status,
            reason=view.reason,
            at=view.updated_at,
        )
