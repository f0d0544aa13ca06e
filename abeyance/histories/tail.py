"""One long poll on the history of a run, shared by all in this process who follow it.

The tail keeps the latest events once, for everybody; a follower is a number in that sequence. So a
follower costs nothing, nobody waits for the slowest, and who falls behind further than is kept loses
only their own place. A tail stops in the moment in which its last follower leaves.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable

from abeyance import wire
from abeyance.errors import Unavailable
from abeyance.histories.cursor import is_later, order
from abeyance.histories.pages import Histories, Place
from abeyance.histories.source import Execution, unknown_run
from abeyance.histories.walk import Walk
from abeyance.temporal.retry import NotFound


class Recent:
    """The latest events of a run in order: `kept`, and what was added last. They are numbered from 0."""

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first = 0
        self._events: deque[wire.Event] = deque()
        self._dropped = ""

    @property
    def end(self) -> int:
        """The number of the event that comes next."""
        return self.first + len(self._events)

    def add(self, events: Iterable[wire.Event]) -> None:
        """Add events, all but those that are no later than the latest.

        More than `kept` make room first, so that of a sudden many a reader who was up to date loses none.
        """
        while len(self._events) > self.kept:
            self._dropped = self._events.popleft().id
            self.first += 1
        latest = self._events[-1].id if self._events else self._dropped
        self._events.extend(event for event in events if is_later(event.id, latest))

    def number_after(self, cursor: str) -> int | None:
        """The number of the first event that is later than a cursor, None if it may be dropped."""
        if is_later(self._dropped, cursor):
            return None
        return self.first + bisect_right(self._events, order(cursor), key=lambda e: order(e.id))

    def at(self, number: int) -> wire.Event:
        """The event with this number."""
        return self._events[number - self.first]


class Tail:
    """The tail of one run, from the beginning of its newest execution on.

    `kept` is how many events a follower may fall behind. `is_level` is set when it has read what there
    was when it began. `moved` is set, and replaced, when it has read more. `on_over` is called when it
    will read no more, for whatever reason.
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
        self._has_whole_run = newest.first == newest.id
        self._followers: set[Follower] = set()
        self._task = asyncio.create_task(self._read(newest))
        self._task.add_done_callback(self._over)

    @property
    def is_over(self) -> bool:
        """Whether it will read no more."""
        return self._task.done()

    def has(self, walk: Walk) -> bool:
        """Whether it reads, or has read, the history that a reader is in."""
        return walk.execution in self._executions or (self._has_whole_run and not walk.seen)

    def seat(self) -> Follower:
        """A new follower, who has to `leave`."""
        follower = Follower(self)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        """The follower reads no more; the last one ends the tail."""
        self._followers.discard(follower)
        if not self._followers:
            self._task.cancel()
            self._on_over(self)

    def raise_error(self) -> None:
        """Raise what has ended the tail before the run ended, if anything has."""
        error = self._task.exception() if self.is_over else None
        if isinstance(error, Unavailable):
            # Each follower gets an error of their own, because raising one adds to its traceback.
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
                    self._executions.add(place.known.execution)
                self.recent.add(page.events)
                if page.is_last:
                    # Only without waiting can one tell that there is nothing more. From here on it is
                    # read with waiting, which has to begin at the beginning once more.
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
            # Looked at here too, because every follower may have gone.
            task.exception()
        self._on_over(self)
        self.is_level.set()
        self._move()


class Follower:
    """One reader at a tail. `number` is that of the event to read next, None until `join`."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.number: int | None = None
        self.was_dropped = False
        self._seen = ""

    def join(self, walk: Walk) -> bool:
        """Go on with the tail from where a reader is.

        False if the tail does not know what comes next there, or if so much has come since that the
        follower might be dropped before having had a chance.
        """
        self._seen = walk.seen
        recent = self.tail.recent
        number = recent.number_after(walk.seen) if self.tail.has(walk) else None
        is_near = number is not None and recent.end - number <= recent.kept // 2
        self.number = number if is_near else None
        return is_near

    def leave(self) -> None:
        """Read no more."""
        self.tail.leave(self)

    async def next(self) -> wire.Event | None:
        """The next event as soon as it is there; None after the last.

        Raises Unavailable if the follower fell too far behind, or Temporal has gone away.
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
                # A reader may come with something that the tail has yet to read.
                if is_later(event.id, self._seen):
                    return event
            elif self.tail.is_over:
                self.tail.raise_error()
                return None
            else:
                await self.tail.moved.wait()
