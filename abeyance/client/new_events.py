"""What is new in the histories of a deployment's runs, beyond what a reader has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from typing import Final, Self

from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.client.changes import Changes, Lost, Row
from abeyance.errors import Unavailable, Unreadable
from abeyance.history.cursors import Cursor, Positions, recording_of
from abeyance.history.event_translation import HistoryState
from abeyance.history.reader import Histories, Page, Place
from abeyance.storage.blobs import BlobMissing
from abeyance.storage.converter import UNREADABLE
from abeyance.temporal.retry import NotFound

_ONE_RUNS: Final = (Unreadable, BlobMissing)
"""What is wrong with one run, so that the others can still be read."""
_AT_ONCE: Final = 10
"""How many histories are read at the same time."""
_logger = logging.getLogger("abeyance.stream")


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
