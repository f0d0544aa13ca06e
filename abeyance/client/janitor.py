"""Finds what runs cannot record themselves: an end by Temporal, or that no worker can continue them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.service import RPCError

from abeyance import names
from abeyance.client.listing import OPEN_RUNS, RUNS, Listing, written
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.errors import Refusal, Unavailable, Unreadable
from abeyance.history.description import ENDINGS, RunDescription
from abeyance.history.hindrance import hindered
from abeyance.records import discards, outside, runs
from abeyance.records.batch import Batch
from abeyance.records.outside import End
from abeyance.temporal.retry import NotFound
from abeyance.util import gather_limited
from abeyance.views import ENDED_OUTSIDE, BlockedView

_AT_FIRST: Final = timedelta(days=1)
"""How far back the first round looks for runs that Temporal has ended."""
_OVERLAP: Final = timedelta(minutes=5)
"""How late visibility may list an end."""
_MOST_HINDERED: Final = 500
"""After a bad deploy all runs may be hindered, and each takes a call to Temporal."""
_LOST_AT_ONCE: Final = 100
_HINDERED: Final = (
    f"{OPEN_RUNS} AND ({names.REPORTED_PROBLEMS} IS NOT NULL OR ExecutionStatus = 'Paused')"
)


class Janitor:
    """Keeps the records true when runs change from outside, with two visibility queries a round."""

    def __init__(self, line: WorkflowRpc, listing: Listing, records: Records) -> None:
        self._line = line
        self._listing = listing
        self._records = records
        self._until: datetime | None = None

    async def round(self) -> int:
        """Record the ends that runs did not record, and which runs are hindered now.

        A run that ends while the database is away does not wait for it. Return how many ends were new.
        Raises Unavailable.
        """
        now = datetime.now(UTC)
        since = now - _AT_FIRST if self._until is None else self._until - _OVERLAP
        recent = now - _OVERLAP if self._until is None else since
        rows = await self._listing.all(
            f"{RUNS} AND ((ExecutionStatus IN ('Terminated', 'TimedOut') AND CloseTime >= "
            f"'{written(since)}') OR CloseTime >= '{written(recent)}')"
        )
        rows.sort(key=lambda row: row.start_time.ToNanoseconds())
        found = await self.settle(*rows)
        self._until = now
        await self._records.write(outside.hinder, await self._hindered())
        return found

    async def begun(self, run_id: str) -> None:
        """Record an open run that has handed nothing over, because no worker has begun it yet."""
        with suppress(Refusal):
            described = await self._line.described(run_id)
            if described.is_running:
                view = described.degraded_view().model_copy(update={"degraded": False})
                origin = described.start.get("origin") or described.first
                await self._records.started(view, origin)

    async def found(self, described: RunDescription) -> None:
        """Record at once that Temporal has ended a run, because a caller was refused for that reason.

        While the database is away, a later round does it.
        """
        if described.shown_status in ENDED_OUTSIDE:
            with suppress(Unavailable):
                await self.settle(described.info)

    async def missed(self, run_id: str) -> None:
        """Record at once that Temporal has deleted an open run, because a caller was refused for that
        reason.
        """
        with suppress(Unavailable):
            standing = await self._records.read(discards.standing, run_id)
            if standing is None or standing.status in ENDINGS:
                return
            try:
                # A later run may have the id meanwhile.
                await self._line.describe(run_id)
            except NotFound:
                at, origin = datetime.now(UTC), standing.origin
                await self._records.write(outside.lose, [run_id], at=at, origin=origin)

    async def lose(self, *, among: Collection[str], at: datetime) -> int:
        """Record as ended the open runs that Temporal does not have, and return their number.

        Raises Unavailable.
        """
        run_ids = [*among]
        are_there = await gather_limited(run_ids, self._is_there)
        missing = [each for each, is_there in zip(run_ids, are_there, strict=True) if not is_there]
        ended = 0
        for first in range(0, len(missing), _LOST_AT_ONCE):
            chunk = missing[first : first + _LOST_AT_ONCE]
            ended += await self._records.write(outside.lose, chunk, at=at)
        return ended

    async def _is_there(self, run_id: str) -> bool:
        try:
            # Unlike `described`, this does not record itself that the run is lost.
            await self._line.describe(run_id)
        except NotFound:
            return False
        return True

    async def settle(self, *executions: WorkflowExecutionInfo) -> int:
        """Record the ends of the runs that have ended, and return how many were new.

        If a run has several `executions`, the newest comes last.
        """
        newest = {each.execution.workflow_id: each.execution.run_id for each in executions}
        missed = await self._records.read(runs.unsettled, newest)
        # The recorded end may come from a workflow task that was done again.
        missed |= {
            each.execution.workflow_id
            for each in executions
            if names.MEMO_UNRECORDED in each.memo.fields
        }
        ended = [*filter(None, [await self._end(run_id) for run_id in sorted(missed)])]
        return await self._records.write(outside.end, ended) if ended else 0

    async def _hindered(self) -> dict[str, list[BlockedView]]:
        # Temporal before 1.30 has no such attribute.
        rows: list[WorkflowExecutionInfo] = []
        with suppress(RPCError):
            rows = await self._listing.all(_HINDERED)
        found = {}
        for row in rows[:_MOST_HINDERED]:
            described = await self._listing.described(row)
            view = await hindered(self._line.temporal, described, described.degraded_view())
            found[described.run_id] = [why for why in view.blocked if why.address is None]
        return found

    async def _end(self, run_id: str) -> End | Batch | None:
        try:
            described = await self._line.described(run_id)
            if described.is_running:
                # A later run has the id.
                return None
            left = await self._line.left_by(described)
        except (Refusal, Unreadable):
            # The run is erased or deleted, or this process lacks a key.
            return None
        if left is None or isinstance(left, Batch):
            return left
        origin = described.start.get("origin") or described.first
        return End(origin=origin, view=left, execution=described.execution)
