"""The stream of the events of all runs of a deployment, read from their histories.

It costs the runs nothing, and nothing is read while nobody listens. A listener first reads what was
recorded since its cursor, by itself. Then it joins the others of this process, for whom one poller asks
visibility which runs have changed, and reads what is new in their histories.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import views
from abeyance.client.changes import Item, Reading, Sources, failed_notifications, merged
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.filters import EventFilter
from abeyance.history.cursors import SPAN, Positions
from abeyance.history.description import RPC
from abeyance.history.feed import Numbered

_PAUSE: Final = 0.5
_SHARE: Final = 3
_LONGEST_PAUSE: Final = 3.0
"""A poll is followed by a pause of `_SHARE` times its own length, within these bounds in seconds."""
_PAGE_SECONDS: Final = 8.0
"""After this a page ends, however short it is."""
_READERS: Final = 3
"""How many readers go through the past at the same time. Each reads hundreds of histories."""
_PATIENCE: Final = 60.0
_PAGE_PATIENCE: Final = 10.0
"""In seconds: how long an unreachable Temporal is retried."""
_SECOND: Final = 1_000_000
_HOUR: Final = 3_600 * _SECOND
_CLOCKS: Final = 600 * _SECOND
"""In microseconds: how far the clocks of Temporal and of this machine may differ, and how late a change
may be listed."""


class _Tail(Numbered[Item]):
    """The poller that all listeners share, and the latest items that it found.

    It continues from what a first listener has, its `positions` and its `reading`. `kept` is how many
    items a listener may fall behind. `moved` is set, and replaced, after each poll. All that was recorded
    until `passed` was found.
    """

    def __init__(self, sources: Sources, positions: Positions, reading: Reading, kept: int) -> None:
        super().__init__(kept)
        self.passed = 0
        self.moved = asyncio.Event()
        self._sources = sources
        self._task = asyncio.create_task(self._poll(positions, reading))
        self._task.add_done_callback(self._over)

    @property
    def is_over(self) -> bool:
        """Whether the poller has stopped."""
        return self._task.done()

    def stop(self) -> None:
        """Stop the poller."""
        self._task.cancel()

    def error(self) -> BaseException:
        """The error that stopped the poller, for one of its listeners."""
        error = None if self._task.cancelled() else self._task.exception()
        if error is None or isinstance(error, Unavailable):
            # Each listener gets its own, because raising one extends its traceback.
            return Unavailable(
                str(error or "the stream has ended: go on from the last id received")
            )
        return error

    async def _poll(self, positions: Positions, reading: Reading) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began, now = clock(), _now()
            items = await reading.new(await self._sources.changes.rows(_lately(positions)))
            lost = await self._sources.changes.lost(_lately(positions))
            items += failed_notifications(lost, positions)
            found = [item for item in merged(items) if positions.is_new(item.event)]
            self.drop()
            for item in found:
                positions.add(item.event)
                self.items.append(item)
            self.passed = _passed(now)
            self._move()
            await asyncio.sleep(min(max(_PAUSE, _SHARE * (clock() - began)), _LONGEST_PAUSE))

    def _move(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            # Retrieved here too, because every listener may have left.
            task.exception()
        self._move()


@dataclass(frozen=True, slots=True)
class Following:
    """An open stream. Close it, or use it with `aclosing(following.events)`.

    `cursor` returns the cursor after all that was read, also of events that the filter left out.
    """

    events: AsyncGenerator[views.StreamEvent, None]
    cursor: Callable[[], str]


class Stream:
    """The stream of the runs of a deployment: of a Temporal namespace, those of `task_queue`.

    A listener that falls more than `kept` events behind is dropped.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, kept: int = 5_000) -> None:
        self._temporal = temporal
        self._deployment = f"{temporal.namespace} {task_queue}"
        self._sources = Sources.of(temporal, task_queue, _PATIENCE)
        self._at_once = Sources.of(temporal, task_queue, _PAGE_PATIENCE)
        self._kept = kept
        self._room = asyncio.Semaphore(_READERS)
        self._listeners = 0
        self._tail: _Tail | None = None

    @property
    def is_polling(self) -> bool:
        """Whether somebody listens."""
        return self._tail is not None

    async def page(
        self,
        after: str | None = None,
        *,
        limit: int = 100,
        filters: EventFilter | None = None,
        since: datetime | None = None,
    ) -> tuple[list[views.StreamEvent], str]:
        """Return at most `limit` events after the cursor `after`, oldest first, and the next cursor.

        None as `after` is before the first event after `since`, or the oldest that Temporal has. A page
        may be shorter than `limit` and not be the last: there is nothing more yet if it is empty and its
        cursor the same as before. Raises the refusals `invalid_body` for what is no cursor of this
        deployment, and `gone`, with the `oldest` cursor, for one that is older than what Temporal keeps;
        and Unavailable.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: a page holds at least one event")
        filters = filters or EventFilter()
        positions = await self._positions(after, since)
        events: list[views.StreamEvent] = []
        reading = Reading(self._at_once.histories, positions)
        past = self._past(self._at_once, positions, reading, seconds=_PAGE_SECONDS)
        async with aclosing(past) as items:
            async for item in items:
                if _fits(item, filters):
                    events.append(self._shown(item, positions))
                    if len(events) == limit:
                        break
        return events, positions.cursor(self._deployment)

    async def opened(
        self,
        after: str | None = None,
        *,
        filters: EventFilter | None = None,
        since: datetime | None = None,
    ) -> Following:
        """Follow the stream from the cursor `after` on, without end; None begins with the first event
        after `since`, or with the oldest.

        Raises the refusals of `page`. The events raise Unavailable if the listener fell too far behind,
        or Temporal cannot be reached: who continues from the last cursor misses nothing.
        """
        positions = await self._positions(after, since)
        events = self._follow(positions, filters or EventFilter())
        return Following(events, lambda: positions.cursor(self._deployment))

    async def _positions(self, after: str | None, since: datetime | None) -> Positions:
        if after is None:
            return Positions(0 if since is None else max(0, int(since.timestamp() * _SECOND)))
        positions = Positions.read(self._deployment, after)
        if positions.until and positions.until < (oldest := await self._oldest()):
            raise Refusal(
                Code.GONE,
                "The events after this cursor are no longer kept: continue from the oldest cursor, and "
                "list the runs to see what was missed.",
                # Not the very oldest, which is gone before anybody asks for it.
                oldest=Positions(oldest + _CLOCKS).cursor(self._deployment),
            )
        return positions

    async def _oldest(self) -> int:
        """The moment, in microseconds, since when Temporal has the runs that have ended."""
        request = DescribeNamespaceRequest(namespace=self._temporal.namespace)
        service = self._temporal.workflow_service
        try:
            described = await service.describe_namespace(request, timeout=RPC)
        except RPCError:
            # Credentials that may not read the namespace, or a moment without Temporal.
            return 0
        kept = described.config.workflow_execution_retention_ttl.ToTimedelta()
        return _now() - int(kept.total_seconds() * _SECOND) if kept else 0

    async def _past(
        self,
        sources: Sources,
        positions: Positions,
        reading: Reading,
        *,
        seconds: float = math.inf,
    ) -> AsyncGenerator[Item, None]:
        """Yield the items up to the present, by time, and add them to the positions.

        It reads the runs that began one after the other, some hundreds at a time. After `seconds` it
        ends, though not amid those.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while True:
            since, began = positions.until, _now()
            async with self._room:
                until = await sources.changes.stop_after(since)
                rows = await sources.changes.rows(since, until)
                changed, waiting = await sources.changes.split(rows, since)
                items = await reading.new(changed, until)
                reading.skip(waiting)
                lost = await sources.changes.lost(since)
            items += failed_notifications(lost, positions, until)
            for item in merged(items):
                if positions.is_new(item.event):
                    positions.add(item.event)
                    yield item
            positions.advance(_passed(began) if until is None else until)
            if until is None or clock() > deadline:
                return

    async def _follow(
        self, positions: Positions, filters: EventFilter
    ) -> AsyncGenerator[views.StreamEvent, None]:
        self._listeners += 1
        try:
            reading = Reading(self._sources.histories, positions)
            tail: _Tail | None = None
            while tail is None:
                before = self._running()
                end = 0 if before is None else before.end
                async with aclosing(self._past(self._sources, positions, reading)) as items:
                    async for item in items:
                        if _fits(item, filters):
                            yield self._shown(item, positions)
                tail = self._running()
                if tail is None:
                    copied = positions.copy()
                    reading.for_(copied)
                    self._tail = tail = _Tail(self._sources, copied, reading, self._kept)
                elif tail is not before or end < tail.first:
                    # It may have begun, or have dropped items, while the past was read.
                    tail = None
            # It may have been first to see some: all that it has kept are compared.
            number = tail.first
            while True:
                moved = tail.moved
                if number < tail.first:
                    raise Unavailable(
                        f"this reader of the stream was too slow: it fell more than {self._kept} events "
                        "behind and was dropped. Connect again with the last id received.",
                        retry_after=0.0,
                    )
                if number < tail.end:
                    item = tail.at(number)
                    number += 1
                    if positions.is_new(item.event):
                        positions.add(item.event)
                        if _fits(item, filters):
                            yield self._shown(item, positions)
                elif tail.is_over:
                    raise tail.error()
                else:
                    positions.advance(tail.passed)
                    await moved.wait()
        finally:
            self._listeners -= 1
            if not self._listeners and self._tail is not None:
                self._tail.stop()
                self._tail = None

    def _running(self) -> _Tail | None:
        return None if self._tail is None or self._tail.is_over else self._tail

    def _shown(self, item: Item, positions: Positions) -> views.StreamEvent:
        """The event as it is shown in the stream, to a reader who has everything up to it."""
        event = item.event
        fields = {name: getattr(event, name) for name in views.Event.model_fields}
        fields["id"] = positions.cursor(self._deployment)
        return views.StreamEvent(**fields, graph=item.graph, event_id=event.id)


def _fits(item: Item, filters: EventFilter) -> bool:
    return filters.selects(item.event.type, item.graph, item.capability) and (
        filters.reads.may_read(item.labels)
    )


def _lately(positions: Positions) -> int:
    """Since when changes that are found now may have been recorded."""
    return max(positions.newest - SPAN, 0)


def _now() -> int:
    return int(time.time() * _SECOND)


def _passed(began: int) -> int:
    """The moment until which everything was found by who began to look at `began`.

    A full hour, so that cursors do not change while nothing happens.
    """
    return max(0, began - _CLOCKS) // _HOUR * _HOUR
