"""Which runs of a deployment have changed, and which notifications did not reach somebody, from
Temporal's visibility: no worker has to be up.

The row of an open run has no length of its history, but its memo, which the run writes with each of its
facts. A run that waits for people has nothing but facts. So a row that is as it was needs no look at the
history, unless code of the run is at work: then activities start and end without a trace in the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.client.listing import Listing, written
from abeyance.core.state import Status
from abeyance.errors import Unavailable, Unreadable
from abeyance.history.description import decoded
from abeyance.storage.converter import of_run
from abeyance.util import notification_queue

_RUNS: Final = f"WorkflowType = '{names.WORKFLOW}'"
_LOST: Final = (
    f"WorkflowType = '{names.NOTIFICATION_WORKFLOW}' "
    f"AND (ExecutionStatus = 'Failed' OR {names.STATUS} = 'failed')"
)
_MEMO: Final = (names.MEMO_SUMMARY, names.MEMO_FACTS)
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
    labels: Mapping[str, str]
    marker: int
    raw: WorkflowExecutionInfo

    @classmethod
    def of(cls, row: WorkflowExecutionInfo) -> Row:
        """Read a row of visibility."""
        is_open = not row.HasField("close_time")
        memo = [row.memo.fields[name].data for name in _MEMO if name in row.memo.fields]
        status = _attribute(row, names.STATUS)
        return cls(
            run_id=row.execution.workflow_id,
            execution=row.execution.run_id,
            start=row.start_time.ToMicroseconds(),
            is_open=is_open,
            is_active=is_open and status != Status.AWAITING_INPUT,
            graph=str(_attribute(row, names.GRAPH) or ""),
            labels=_labels(row),
            marker=hash((is_open, row.status, status, *memo)),
            raw=row,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A notification that did not reach somebody, of which its run was not told because it had ended.

    `receivers` are rows of `wire.Undelivered`, each with when it was given up, in microseconds.
    """

    execution: str
    run_id: str
    graph: str
    labels: Mapping[str, str]
    about: str
    interrupt: str | None
    capability: str | None
    receivers: Sequence[tuple[int, Mapping[str, Any]]]


class Changes:
    """The changes of the runs of `task_queue`. `patience` is how many seconds a call is retried."""

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._listing = Listing(temporal, task_queue, patience=patience)
        self._notifications = Listing(temporal, notification_queue(task_queue), patience=patience)

    async def rows(self, since: int, until: int | None = None) -> list[Row]:
        """The executions that were open at `since` or later and began until `until`, by their start."""
        query = f"{_RUNS} AND (CloseTime IS NULL OR CloseTime >= '{_written(since - _ROUNDED)}')"
        if until is not None:
            query += f" AND StartTime <= '{_written(until + _ROUNDED)}'"
        rows = [Row.of(row) for row in await self._listing.all(query)]
        return sorted(rows, key=lambda row: (row.start, row.execution))

    async def lost(self, since: int) -> list[Lost]:
        """The notifications that were open at `since` or later and did not reach somebody."""
        recent = f"(CloseTime IS NULL OR CloseTime >= '{_written(since - _ROUNDED)}')"
        query = f"{_LOST} AND {recent}"
        rows = await self._notifications.all(query)
        return [lost for row in rows if (lost := await self._lost(row)) is not None]

    async def _lost(self, row: WorkflowExecutionInfo) -> Lost | None:
        fields = row.memo.fields
        if not {names.MEMO_MOMENT, names.MEMO_UNREPORTED} <= fields.keys():
            return None
        converter = of_run(self._temporal.data_converter, row.execution.workflow_id)
        try:
            moment = await decoded(converter, fields[names.MEMO_MOMENT])
            receivers = await decoded(converter, fields[names.MEMO_UNREPORTED])
        except Unreadable:
            return None
        return Lost(
            execution=row.execution.run_id,
            run_id=moment["run_id"],
            graph=moment["graph"],
            labels=moment["labels"],
            about=moment["event"],
            interrupt=moment["interrupt"],
            capability=moment["capability"],
            receivers=[_given_up(each, row) for each in receivers],
        )

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
        payload = row.raw.memo.fields.get(names.MEMO_SUMMARY)
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
        if await self._listing.count(f"{began} AND StartTime <= '{_written(high)}'") <= _MANY:
            # What began in the last minute is read at once, however much it is.
            return None
        while high - low > _ROUNDED:
            middle = (low + high) // 2
            count = await self._listing.count(f"{began} AND StartTime <= '{_written(middle)}'")
            if count > _MANY:
                high = middle
            else:
                low = middle
                if count > _MANY // 2:
                    break
        # If very many began at the same moment, they are read at once.
        return max(low, since + _ROUNDED)


def _given_up(
    receiver: Mapping[str, Any], row: WorkflowExecutionInfo
) -> tuple[int, dict[str, Any]]:
    """Return when a receiver was given up, and its row without that."""
    rest = dict(receiver)
    # Earlier versions wrote no time.
    at = rest.pop("at", None)
    when = row.close_time.ToMicroseconds()
    return (when if at is None else (datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND), rest


def _attribute(row: WorkflowExecutionInfo, name: str) -> Any:
    payload = row.search_attributes.indexed_fields.get(name)
    return None if payload is None or not payload.data else json.loads(payload.data)


def _labels(row: WorkflowExecutionInfo) -> dict[str, str]:
    words = _attribute(row, names.LABELS) or []
    pairs = [word.partition("=") for word in ([words] if isinstance(words, str) else words)]
    return {name: value for name, _, value in pairs}


def _written(moment: int) -> str:
    return written(_EPOCH + max(moment, 0) * _MICROSECOND)


_RPC: Final = timedelta(seconds=5)
_UNDELIVERED: Final = (
    f"WorkflowType = '{names.NOTIFICATION_WORKFLOW}' "
    f"AND (ExecutionStatus IN ('Failed', 'Terminated') OR {names.STATUS} = 'failed')"
)
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNotification:
    """A notification about an event of a run, and why some receivers did not get it."""

    event: str
    run_id: str
    reasons: tuple[str, ...]


async def undelivered(
    temporal: TemporalClient, task_queue: str, *, limit: int
) -> list[LostNotification]:
    """Return the latest of them that Temporal still knows, newest first. Raises Unavailable."""
    queue = notification_queue(task_queue).replace("'", "''")
    found = []
    try:
        async for row in temporal.list_workflows(
            f"{_UNDELIVERED} AND TaskQueue = '{queue}'", limit=limit, rpc_timeout=_RPC
        ):
            memo = await row.memo()
            found.append(_lost_notification(memo))
    except RPCError as error:
        raise Unavailable(f"Temporal does not list notifications: {error.message}") from error
    return found


def _lost_notification(memo: Any) -> LostNotification:
    moment = memo.get(names.MEMO_MOMENT) or {}
    rows = memo.get(names.MEMO_UNDELIVERED) or []
    return LostNotification(
        event=str(moment.get("event")),
        run_id=str(moment.get("run_id")),
        reasons=tuple(f"{row['receiver']}: {row['reason']}" for row in rows[:_SHOWN]),
    )
