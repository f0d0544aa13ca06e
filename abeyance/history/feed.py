"""The event feed of runs: one long poll on a run's history, shared by its followers in this process.

A tail keeps the latest events once, and a follower is an index into them. So a follower costs little and
none waits for the slowest; one that falls too far behind is dropped. A tail stops when its last follower
leaves.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar, cast

from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.core import live_text
from abeyance.core.live_text import LiveText
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.client import Execution, unknown_run
from abeyance.history.cursors import is_later, order
from abeyance.history.deleted_runs import DeletedRuns
from abeyance.history.event_translation import HistoryState
from abeyance.history.reader import TURN_ENDS, Histories, HistoryWalk, Place
from abeyance.temporal.retry import NotFound
from abeyance.temporal.update_limiter import SingleFlight

T = TypeVar("T")


class Numbered(Generic[T]):
    """The latest `kept` items and those added last, in order, numbered from 0."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first = 0
        self.items: deque[T] = deque()
        self.dropped: T | None = None

    @property
    def end(self) -> int:
        """The number of the item that comes next."""
        return self.first + len(self.items)

    def at(self, number: int) -> T:
        return self.items[number - self.first]

    def drop(self) -> None:
        """Drop old items, before new ones are added: so a burst drops none that an up-to-date reader
        still needs.
        """
        while len(self.items) > self.kept:
            self.dropped = self.items.popleft()
            self.first += 1


class Recent(Numbered[views.Event]):
    """The latest `kept` events of a run and those added last."""

    def add(self, events: Iterable[views.Event]) -> list[views.Event]:
        """Add the events that are later than the latest, and return those."""
        self.drop()
        latest = self.items[-1] if self.items else self.dropped
        fresh = [event for event in events if latest is None or is_later(event.id, latest.id)]
        self.items.extend(fresh)
        return fresh

    def number_after(self, cursor: str) -> int | None:
        """The number of the first event after a cursor, None if that may be dropped already."""
        if self.dropped is not None and is_later(self.dropped.id, cursor):
            return None
        return self.first + bisect_right(self.items, order(cursor), key=lambda e: order(e.id))


class Tail:
    """The tail of one run, from the beginning of its newest execution on.

    `kept` is how many events a follower may fall behind. `is_level` is set once the tail has read what
    there was when it began. `moved` is set, and replaced, after each read. `on_over` is called when the
    tail stops, for whatever reason.
    """

    def __init__(
        self,
        histories: Histories,
        run_id: str,
        newest: Execution,
        *,
        kept: int,
        on_over: Callable[[Tail], None],
    ) -> None:
        self.run_id = run_id
        self.recent = Recent(kept)
        self.is_level = asyncio.Event()
        self.moved = asyncio.Event()
        self._histories = histories
        self._on_over = on_over
        self._executions = {newest.id}
        self._has_whole_run = newest.origin == newest.id
        self._followers: set[Follower] = set()
        self.live = histories.live_texts(run_id, self._move)
        self._task = asyncio.create_task(self._read(newest))
        self._task.add_done_callback(self._over)

    @property
    def is_over(self) -> bool:
        """Whether the tail has stopped."""
        return self._task.done()

    def has(self, walk: HistoryWalk) -> bool:
        """Whether the tail reads, or has read, the history that a walk is in."""
        return walk.execution in self._executions or (self._has_whole_run and not walk.seen)

    def seat(self, *, hears_models: bool) -> Follower:
        """A new follower, which has to `leave`."""
        follower = Follower(self, hears_models=hears_models)
        self._followers.add(follower)
        if hears_models:
            self.live.enter()
        return follower

    def leave(self, follower: Follower) -> None:
        """Remove a follower; the last one stops the tail."""
        if follower in self._followers and follower.hears_models:
            self.live.leave()
        self._followers.discard(follower)
        if not self._followers:
            self._task.cancel()
            self._on_over(self)

    def raise_error(self) -> None:
        """Raise the error that stopped the tail before the run ended, if one did."""
        error = self._task.exception() if self.is_over else None
        if isinstance(error, Unavailable):
            # Each follower gets its own error, because raising one extends its traceback.
            raise Unavailable(str(error), retry_after=error.retry_after) from error
        if error is not None:
            raise error

    async def _read(self, newest: Execution) -> None:
        place: Place | None = Place.beginning(self.run_id, newest.id)
        wait = False
        try:
            while place is not None:
                page = await self._histories.read(place, wait=wait)
                place = page.then
                if place is not None:
                    self._executions.add(place.state.execution)
                # The first read with `wait` has all events once more.
                self.live.heed(self.recent.add(page.events))
                if page.is_last:
                    # Only a read without `wait` shows that there is nothing more. Reads with `wait`
                    # have to begin at the beginning again.
                    wait = True
                    self.is_level.set()
                self._drop_the_slow()
                self._move()
        except NotFound:
            raise unknown_run(self.run_id) from None

    def _drop_the_slow(self) -> None:
        first = self.recent.first
        slow = [each for each in self._followers if each.number is not None and each.number < first]
        for follower in slow:
            follower.was_dropped = True
            self.leave(follower)

    def _move(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            # Retrieved here too, because every follower may have left.
            task.exception()
        self._on_over(self)
        self.is_level.set()
        self._move()


class Follower:
    """One reader of a tail. `number` is that of the next event to read, None until `join`.

    With `hears_models` it also gets what models say, whenever it has read all events.
    """

    def __init__(self, tail: Tail, *, hears_models: bool) -> None:
        self.tail = tail
        self.number: int | None = None
        self.was_dropped = False
        self.hears_models = hears_models
        self._heard: dict[str, LiveText] = {}
        self._seen = ""

    def join(self, walk: HistoryWalk) -> bool:
        """Continue a walk with the tail.

        False if the tail lacks the next event, or if the follower is so far behind that it might be
        dropped at once.
        """
        self._seen = walk.seen
        recent = self.tail.recent
        number = recent.number_after(walk.seen) if self.tail.has(walk) else None
        is_near = number is not None and recent.end - number <= recent.kept // 2
        self.number = number if is_near else None
        return is_near

    def leave(self) -> None:
        """Stop reading."""
        self.tail.leave(self)

    def _delta(self) -> views.ModelDelta | None:
        latest = self.tail.live.latest if self.hears_models else {}
        for address in {**self._heard, **latest}:
            now = latest.get(address)
            new = live_text.news(self._heard.pop(address, None), now)
            if now is not None:
                self._heard[address] = now
            if new is not None and address in self.tail.live.turns:
                return views.ModelDelta(
                    time=datetime.now(UTC),
                    run_id=self.tail.run_id,
                    address=address,
                    data=views.NewText(turn=new.turn, offset=new.offset, text=new.text),
                )
        return None

    async def next(self) -> views.Event | views.ModelDelta | None:
        """Wait for the next event; None after the last.

        Raises Unavailable if the follower fell too far behind, or Temporal cannot be reached.
        """
        while True:
            if self.was_dropped:
                raise Unavailable(
                    f"this reader of the run {self.tail.run_id!r} was too slow: it fell more than "
                    f"{self.tail.recent.kept} events behind and was dropped. Connect again with the last "
                    "id received.",
                    retry_after=0.0,
                )
            if self.number is None:
                raise RuntimeError("a follower reads on only after it has joined")
            if self.number < self.tail.recent.end:
                event = self.tail.recent.at(self.number)
                self.number += 1
                # The walk may have read events that the tail has yet to read.
                if event.type in TURN_ENDS:
                    self._heard.pop(event.address or "", None)
                if is_later(event.id, self._seen):
                    return event
            elif (delta := self._delta()) is not None:
                return delta
            elif self.tail.is_over:
                self.tail.raise_error()
                return None
            else:
                await self.tail.moved.wait()


_PAGE_PATIENCE: Final = 10.0


class Feed:
    """The feeds of the runs of one deployment: of a Temporal namespace, those of `task_queue`.

    At most `most_tails` runs are followed at a time, each by any number of followers. A follower that
    falls more than `kept` events behind is dropped. `patience` is how many seconds an unreachable
    Temporal is retried.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        deleted: DeletedRuns | None = None,
        *,
        most_tails: int = 500,
        kept: int = 1_000,
        patience: float = 60.0,
    ) -> None:
        self._deleted = DeletedRuns(temporal, task_queue) if deleted is None else deleted
        self._histories = Histories(temporal, task_queue, patience=patience)
        self._at_once = Histories(temporal, task_queue, patience=min(patience, _PAGE_PATIENCE))
        self._most_tails = most_tails
        self._kept = kept
        self._tails: dict[str, Tail] = {}
        self._newest: SingleFlight[Execution] = SingleFlight()

    @property
    def tails(self) -> int:
        """How many runs are being followed."""
        return len(self._tails)

    async def page(
        self, run_id: str, after: str | None, limit: int
    ) -> tuple[list[views.Event], str | None]:
        """Return at most `limit` events after the cursor `after`, and the cursor of the next page.

        None as `after` is before the oldest event. The next cursor is None once the run has ended and
        all its events were returned. Raises the refusals `unknown_run`, `erased`,
        `invalid_body` for what is no cursor of this run, and `gone`, with the `oldest` cursor, for one
        whose history is no longer kept, and without it for a run that only the archive has; and
        Unavailable.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: a page holds at least one event")
        async with self._deleted.explained(run_id):
            return await self._page(run_id, after, limit)

    async def _page(
        self, run_id: str, after: str | None, limit: int
    ) -> tuple[list[views.Event], str | None]:
        walk = HistoryWalk(self._at_once, run_id, after)
        events: list[views.Event] = []
        while len(events) < limit and not (walk.has_ended or walk.is_at_present):
            events += await walk.step()
        if not walk.is_at_present:
            # The run has ended, or may have: only of an open one there is nothing more at present.
            await self._deleted.refuse_erased(run_id)
        if walk.has_ended and len(events) <= limit:
            return events, None
        if events:
            return events[:limit], events[:limit][-1].id
        return [], after or str(await self._at_once.oldest(run_id))

    async def since(self, run_id: str, execution: str, event: int) -> list[views.Event]:
        """Return what came after an event of a history, at the cost of what is new.

        The ids of the events are no cursors. Raises the refusal `unknown_run`, and Unavailable.
        """
        state = HistoryState(run_id=run_id, execution=execution, last=event)
        try:
            page = await self._at_once.newer(state)
            events = [*page.events]
            while page.then is not None and not page.is_last:
                page = await self._at_once.read(page.then)
                events += page.events
        except NotFound:
            raise unknown_run(run_id) from None
        return events

    async def follow(self, run_id: str, after: str | None) -> AsyncGenerator[views.Event, None]:
        """Yield the events after the cursor `after`, and new ones until the run has ended.

        Raises as `opened`; and Unavailable for a follower that fell too far behind, or if Temporal cannot
        be reached. A caller that continues from the last id misses nothing.
        """
        async with aclosing(await self.opened(run_id, after)) as events:
            async for event in events:
                yield event

    async def opened(self, run_id: str, after: str | None) -> AsyncGenerator[views.Event, None]:
        """Follow as `follow`, and raise a refusal before the first event comes.

        Raises the refusals of `page`, `too_many_runs` if as many runs are followed as may be, and
        Unavailable. The generator has to be closed, or read to its end.
        """
        events = await self.watched(run_id, after, hears_models=False)
        return cast("AsyncGenerator[views.Event, None]", events)

    async def watched(
        self, run_id: str, after: str | None, *, hears_models: bool = True
    ) -> AsyncGenerator[views.Event | views.ModelDelta, None]:
        """Follow as `opened`, and with `hears_models` also yield what models say while they speak."""
        events = self._events(run_id, after, hears_models=hears_models)
        # The first item is None, after which nothing is refused.
        async with self._deleted.explained(run_id):
            await anext(events)
        return cast("AsyncGenerator[views.Event | views.ModelDelta, None]", events)

    async def _events(
        self, run_id: str, after: str | None, *, hears_models: bool
    ) -> AsyncGenerator[views.Event | views.ModelDelta | None, None]:
        walk = HistoryWalk(self._histories, run_id, after)
        is_open = False
        follower = await self._seat(run_id, hears_models=hears_models)
        try:
            if follower is not None:
                await follower.tail.is_level.wait()
                follower.tail.raise_error()
            while follower is None or not follower.join(walk):
                # Read before the step, so that a move during the step is not missed.
                moved = None if follower is None else follower.tail.moved
                fresh = await walk.step()
                if not is_open:
                    is_open = True
                    yield None
                for event in fresh:
                    yield event
                if walk.has_ended:
                    return
                if not walk.is_at_present:
                    continue
                if follower is None or moved is None or follower.tail.is_over:
                    follower = await self._seat(run_id, hears_models=hears_models)
                elif not follower.join(walk):
                    # The tail is a moment behind this walk.
                    await moved.wait()
            if not is_open:
                yield None
            while (latest := await follower.next()) is not None:
                yield latest
        finally:
            if follower is not None:
                follower.leave()

    async def _seat(self, run_id: str, *, hears_models: bool) -> Follower | None:
        """A follower of the run's tail; None if the run has ended."""
        tail = self._tails.get(run_id)
        if tail is not None:
            return tail.seat(hears_models=hears_models)
        newest = await self._newest.read(run_id, lambda: self._histories.newest(run_id))
        if not newest.is_running:
            await self._deleted.refuse_erased(run_id)
            return None
        tail = self._tails.get(run_id)
        if tail is None:
            if len(self._tails) >= self._most_tails:
                raise Refusal(
                    Code.TOO_MANY_RUNS,
                    f"{self._most_tails} runs are followed through this process, which is its limit: try "
                    f"another process, try later, or read the events of {run_id!r} page by page.",
                    limit=self._most_tails,
                    run_id=run_id,
                )
            tail = Tail(self._histories, run_id, newest, kept=self._kept, on_over=self._forget)
            self._tails[run_id] = tail
        return tail.seat(hears_models=hears_models)

    def _forget(self, tail: Tail) -> None:
        if self._tails.get(tail.run_id) is tail:
            del self._tails[tail.run_id]
