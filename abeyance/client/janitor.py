"""Finds the runs that Temporal ended by itself, which could not record it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from abeyance import names
from abeyance.client.listing import Listing, written
from abeyance.client.records import Records
from abeyance.records import endings
from abeyance.records.endings import End

_AT_FIRST: Final = timedelta(days=1)
"""How far back the first round looks: as long as no process may have looked."""
_OVERLAP: Final = timedelta(minutes=5)
"""How late visibility may list an end."""
_ENDED: Final = (
    f"WorkflowType = '{names.WORKFLOW}' AND ExecutionStatus IN ('Terminated', 'TimedOut')"
)


class Janitor:
    """Keeps the records true of what happens outside of the runs, one visibility query a round."""

    def __init__(self, listing: Listing, records: Records) -> None:
        self._listing = listing
        self._records = records
        self._until: datetime | None = None

    async def round(self) -> int:
        """Record the ends since the last round, and return how many were new. Raises Unavailable."""
        now = datetime.now(UTC)
        since = now - _AT_FIRST if self._until is None else self._until - _OVERLAP
        rows = await self._listing.all(f"{_ENDED} AND CloseTime >= '{written(since)}'")
        ended = [await self._end(row) for row in rows]
        found = await self._records.write(endings.end, ended) if ended else 0
        self._until = now
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
