"""Which runs of a deployment have changed, from Temporal's visibility: no worker has to be up.

The row of an open run has no length of its history, but its memo, which the run writes with each of its
facts. A run that waits for people has nothing but facts. So a row that is as it was needs no look at the
history, unless code of the run is at work: then activities start and end without a trace in the row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.client.listing import Listing, written
from abeyance.core.state import Status
from abeyance.errors import Unreadable
from abeyance.history.description import decoded
from abeyance.storage.converter import of_run

_RUNS: Final = f"WorkflowType = '{wire.WORKFLOW}'"
_MEMO: Final = (wire.MEMO_SUMMARY, wire.MEMO_FACTS)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_ROUNDED: Final = 1_000
"""In microseconds: stores round times that they return exactly."""
_LISTED: Final = 60_000_000
"""In microseconds: what began before is listed by now."""
_RECORDED: Final = 60_000_000
"""In microseconds: what a run writes is recorded within this time of the moment that it says."""
_MANY: Final = 300
"""How many runs, that began one after the other, are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An execution of a run as visibility shows it. `start` is in microseconds.

    `marker` differs once the run has written a fact, or has ended. `is_active`: more may have happened
    than the marker says.
    """

    run_id: str
    execution: str
    start: int
    is_open: bool
    is_active: bool
    graph: str
    labels: tuple[str, ...]
    marker: int
    raw: WorkflowExecutionInfo

    @classmethod
    def of(cls, row: WorkflowExecutionInfo) -> Row:
        """Read a row of visibility."""
        is_open = not row.HasField("close_time")
        memo = [row.memo.fields[name].data for name in _MEMO if name in row.memo.fields]
        status = _attribute(row, wire.STATUS)
        return cls(
            run_id=row.execution.workflow_id,
            execution=row.execution.run_id,
            start=row.start_time.ToMicroseconds(),
            is_open=is_open,
            is_active=is_open and status != Status.AWAITING_INPUT,
            graph=str(_attribute(row, wire.GRAPH) or ""),
            labels=tuple(_attribute(row, wire.LABELS) or ()),
            marker=hash((is_open, row.status, status, *memo)),
            raw=row,
        )


class Changes:
    """The changes of the runs that `listing` lists."""

    def __init__(self, temporal: TemporalClient, listing: Listing) -> None:
        self._temporal = temporal
        self._listing = listing

    async def rows(self, since: int, until: int | None = None) -> list[Row]:
        """The executions that were open at `since` or later and began until `until`, by their start."""
        query = f"{_RUNS} AND (CloseTime IS NULL OR CloseTime >= '{_written(since - _ROUNDED)}')"
        if until is not None:
            query += f" AND StartTime <= '{_written(until + _ROUNDED)}'"
        rows = [Row.of(row) for row in await self._listing.all(query)]
        return sorted(rows, key=lambda row: (row.start, row.execution))

    async def split(self, rows: Sequence[Row], since: int) -> tuple[list[Row], list[Row]]:
        """Return the rows that may have changed after `since`, and those of runs that only waited."""
        changed: list[Row] = []
        waiting: list[Row] = []
        for row in rows:
            (waiting if await self._has_waited(row, since) else changed).append(row)
        return changed, waiting

    async def _has_waited(self, row: Row, since: int) -> bool:
        if row.is_active or not row.is_open or not since:
            return False
        payload = row.raw.memo.fields.get(wire.MEMO_SUMMARY)
        if payload is None:
            return False
        try:
            summary = await decoded(of_run(self._temporal.data_converter, row.run_id), payload)
            written_at = datetime.fromisoformat(summary["updated_at"])
        except (Unreadable, LookupError, TypeError, ValueError):
            return False
        return (written_at - _EPOCH) // _MICROSECOND < since - _RECORDED

    async def stop_after(self, since: int) -> int | None:
        """How far to read, so that some hundreds of runs begin until then; None is to the end."""
        began = f"{_RUNS} AND StartTime > '{_written(since)}'"
        if await self._listing.count(began) <= _MANY:
            return None
        low, high = since, (datetime.now(UTC) - _EPOCH) // _MICROSECOND - _LISTED
        is_first = True
        while high - low > _ROUNDED:
            middle = high if is_first else (low + high) // 2
            is_first = False
            count = await self._listing.count(f"{began} AND StartTime <= '{_written(middle)}'")
            if count > _MANY:
                high = middle
            else:
                low = middle
                if count > _MANY // 2:
                    break
        # If very many began at the same moment, they are read at once.
        return max(low, since + _ROUNDED)


def _attribute(row: WorkflowExecutionInfo, name: str) -> Any:
    payload = row.search_attributes.indexed_fields.get(name)
    return None if payload is None or not payload.data else json.loads(payload.data)


def _written(moment: int) -> str:
    return written(_EPOCH + max(moment, 0) * _MICROSECOND)
