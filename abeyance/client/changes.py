"""Which runs of a deployment have changed, and what is new in their histories, beyond what a reader has;
and which notifications did not reach somebody. No worker has to be up.

The row of an open run has no length of its history, but its memo, which the run writes with each of its
facts. A run that waits for people has nothing but facts. So a row that is as it was needs no look at the
history, unless code of the run is at work: then activities start and end without a trace in the row.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Any, Final, Self

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names, views
from abeyance.client.listing import Listing, written
from abeyance.core.state import Status
from abeyance.errors import Unavailable, Unreadable
from abeyance.history.cursors import Cursor, Positions, recording_of
from abeyance.history.description import RPC, decoded
from abeyance.history.event_translation import HistoryState
from abeyance.history.reader import Histories, Page, Place
from abeyance.keyring import WrongKey
from abeyance.storage.blobs import BlobMissing
from abeyance.storage.converter import UNREADABLE, of_run
from abeyance.temporal.retry import NotFound
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
_ONE_RUNS: Final = (Unreadable, BlobMissing, WrongKey)
"""What is wrong with one run, so that the others can still be read."""
_AT_ONCE: Final = 10
"""How many histories are read at the same time."""
_logger = logging.getLogger("abeyance.stream")


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
            receivers=[_given_up(each) for each in receivers],
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


def _given_up(receiver: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return when a receiver was given up, and its row without that."""
    rest = dict(receiver)
    at = datetime.fromisoformat(rest.pop("at"))
    return (at - _EPOCH) // _MICROSECOND, rest


def _attribute(row: WorkflowExecutionInfo, name: str) -> Any:
    payload = row.search_attributes.indexed_fields.get(name)
    return None if payload is None or not payload.data else json.loads(payload.data)


def _labels(row: WorkflowExecutionInfo) -> dict[str, str]:
    words = _attribute(row, names.LABELS) or []
    pairs = [word.partition("=") for word in ([words] if isinstance(words, str) else words)]
    return {name: value for name, _, value in pairs}


def _written(moment: int) -> str:
    return written(_EPOCH + max(moment, 0) * _MICROSECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An event, with what it is ordered and selected by. `at` is in microseconds."""

    event: views.Event
    at: int
    capability: str | None
    graph: str
    labels: Mapping[str, str]

    @classmethod
    def of(cls, event: views.Event, row: Row) -> Item:
        """The item of an event of the run that has this row."""
        recording = recording_of(event)
        return cls(
            event=event,
            at=recording.at,
            capability=recording.capability,
            graph=row.graph,
            labels=row.labels,
        )


def failed_notifications(
    lost: Iterable[Lost], positions: Positions, until: int | None = None
) -> Iterator[list[Item]]:
    """What the feeds of runs do not have, because they had ended: who was not notified of something."""
    for each in lost:
        items = [
            Item(
                event=event, at=at, capability=each.capability, graph=each.graph, labels=each.labels
            )
            for at, event in _events_of(each)
            if (until is None or at <= until) and positions.is_new(event)
        ]
        if items:
            yield items


def _events_of(lost: Lost) -> Iterator[tuple[int, views.Event]]:
    for index, (at, receiver) in enumerate(lost.receivers):
        cursor = Cursor(run_id=lost.run_id, execution=lost.execution, birth=0, event=1, index=index)
        event = views.Event(
            id=str(cursor),
            time=datetime.fromtimestamp(at / 1_000_000, UTC),
            type="notification.failed",
            run_id=lost.run_id,
            data={"event": lost.about, **receiver, "id": lost.interrupt},
        )
        recording = views.Recording(origin=lost.execution, at=at, capability=lost.capability)
        yield at, event.recorded(recording)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the events of a deployment are read."""

    changes: Changes
    histories: Histories

    @classmethod
    def of(cls, temporal: TemporalClient, task_queue: str, patience: float) -> Self:
        """The sources of the runs of `task_queue`, retried for `patience` seconds."""
        return cls(
            changes=Changes(temporal, task_queue, patience=patience),
            histories=Histories(temporal, task_queue, patience=patience),
        )


def merged(by_run: Iterable[list[Item]]) -> Iterable[Item]:
    """The items of several runs by time, each run's in its own order."""
    return merge(*by_run, key=lambda item: (item.at, item.event.run_id))


class Reading:
    """Reads what is new in runs, beyond `positions`. It remembers its place in those that are active."""

    def __init__(self, histories: Histories, positions: Positions) -> None:
        self._histories = histories
        self._positions = positions
        self._markers: dict[str, int] = {}
        self._states: dict[str, HistoryState] = {}
        self._unreadable: set[str] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)

    def for_(self, positions: Positions) -> Self:
        """Go on beyond the positions of another reader, who has the same events."""
        self._positions = positions
        return self

    def skip(self, rows: Iterable[Row]) -> None:
        """Read nothing of these rows until they differ."""
        self._markers.update((row.execution, row.marker) for row in rows)

    async def new(self, rows: Sequence[Row], until: int | None = None) -> list[list[Item]]:
        """The new items of each run, until a moment if one is given. Raises Unavailable."""
        by_run: dict[str, list[Row]] = {}
        for row in rows:
            by_run.setdefault(row.run_id, []).append(row)
        listed = {row.execution for row in rows}
        self._markers = {key: self._markers[key] for key in self._markers.keys() & listed}
        self._states = {key: self._states[key] for key in self._states.keys() & listed}
        self._unreadable &= listed
        items = await asyncio.gather(*(self._of_run(each, until) for each in by_run.values()))
        return [each for each in items if each]

    async def _of_run(self, rows: Sequence[Row], until: int | None) -> list[Item]:
        items: list[Item] = []
        read: set[str] = set()
        for row in rows:
            is_known = self._markers.get(row.execution) == row.marker and not row.is_active
            if is_known or row.execution in read:
                continue
            async with self._room:
                try:
                    await self._of_execution(row, until, items, read)
                except NotFound:
                    # Deleted since it was listed.
                    pass
                except UNREADABLE as error:
                    if isinstance(error, Unavailable) and not isinstance(error, _ONE_RUNS):
                        raise
                    self._warn(row, error)
            if until is None:
                self._markers[row.execution] = row.marker
        return items

    async def _of_execution(
        self, row: Row, until: int | None, items: list[Item], read: set[str]
    ) -> None:
        state = self._states.pop(row.execution, None)
        page = await (self._first(row) if state is None else self._histories.newer(state))
        while True:
            read.add(page.state.execution)
            for event in page.events:
                item = Item.of(event, row)
                if until is not None and item.at > until:
                    return
                if self._positions.is_new(event):
                    items.append(item)
            # Reading a page takes the processor, which other calls of this process need too.
            await asyncio.sleep(0)
            if page.then is None:
                return
            if page.is_last:
                if until is None and row.is_active:
                    self._states[page.state.execution] = page.state
                return
            page = await self._histories.read(page.then)

    async def _first(self, row: Row) -> Page:
        """The first page of the history in which the new events begin."""
        page = await self._histories.read(Place.beginning(row.run_id, row.execution))
        if not page.state.previous or row.start <= self._positions.until:
            return page
        begin = await self._histories.reaching(row.run_id, row.execution, self._is_before)
        if begin == row.execution:
            return page
        return await self._histories.read(Place.beginning(row.run_id, begin))

    def _is_before(self, begun: HistoryState) -> bool:
        birth = self._positions.birth(begun.origin)
        return begun.recorded <= self._positions.until or (
            birth is not None and begun.birth <= birth
        )

    def _warn(self, row: Row, error: BaseException) -> None:
        if row.execution not in self._unreadable:
            self._unreadable.add(row.execution)
            _logger.warning(
                "run_id=%s | the events of this run cannot be read, and are left out of the stream: %s",
                row.run_id,
                error,
            )


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
            f"{_UNDELIVERED} AND TaskQueue = '{queue}'", limit=limit, rpc_timeout=RPC
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
