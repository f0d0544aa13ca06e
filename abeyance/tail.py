"""One long poll on the history of a run, shared by all in this process who follow it.

The tail keeps the latest events once, for everybody; a follower is a number in that sequence. So a
follower costs nothing, nobody waits for the slowest, and who falls behind further than is kept loses
only their own place. A tail stops in the moment in which its last follower leaves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from abeyance import wire
from abeyance.cursor import is_later
from abeyance.errors import Unavailable
from abeyance.histories import Histories, Place, unknown
from abeyance.patience import NotFound
from abeyance.walk import Walk

KEPT: Final = 1_000
"""In events: how far a follower may fall behind."""


class Recent:
    """The latest events of a run in order: `KEPT`, and what was added last.

    `floor` is the cursor after which nothing is missing, None if that is not known.
    """

    def __init__(self, floor: str | None) -> None:
        self.floor = floor
        self.first = 0
        self._events: deque[wire.Event] = deque()
        self._numbers: dict[str, int] = {}

    @property
    def head(self) -> str:
        """The cursor of the latest event."""
        return self._events[-1].id if self._events else self.floor or ""

    def add(self, events: Iterable[wire.Event]) -> None:
        """Add events, all but those from before the head.

        More than `KEPT` make room first, so that of a sudden many a reader who was up to date loses none.
        """
        while len(self._events) > KEPT:
            self.floor = self._events.popleft().id
            del self._numbers[self.floor]
            self.first += 1
        head = self.head
        for event in events:
            if is_later(event.id, head):
                self._numbers[event.id] = self.first + len(self._events)
                self._events.append(event)

    def number_after(self, cursor: str) -> int | None:
        """The number of the event that follows a cursor, if nothing between the two is missing."""
        if cursor == self.floor:
            return self.first
        number = self._numbers.get(cursor)
        return None if number is None else number + 1

    def behind(self, number: int) -> int:
        """How many events there are from this number on."""
        return self.first + len(self._events) - number

    def at(self, number: int) -> wire.Event | None:
        """The event with this number, if it has come."""
        index = number - self.first
        return self._events[index] if index < len(self._events) else None


class Tail:
    """The tail of one run. `on_over` is called when it will read no more, for whatever reason.

    It begins when the first follower has come to the present, with the history that is open then. `lock`
    is for those who are on their way there, so that they do not all read the same.
    """

    def __init__(self, histories: Histories, run_id: str, on_over: Callable[[Tail], None]) -> None:
        self.run_id = run_id
        self.lock = asyncio.Lock()
        self.moved = asyncio.Event()
        self.recent: Recent | None = None
        self._histories = histories
        self._on_over = on_over
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_level = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether it reads, or has read."""
        return self._task is not None

    @property
    def is_over(self) -> bool:
        """Whether it will read no more."""
        return self._task is not None and self._task.done()

    def seat(self) -> Follower:
        """A new follower, who has to `leave`."""
        follower = Follower(self)
        self._followers.add(follower)
        return follower

    async def begin(self, walk: Walk) -> None:
        """Read the history that a reader has come to the end of, and be level with them."""
        self.recent = recent = Recent(walk.entered)
        self._task = asyncio.create_task(self._read(walk.execution, recent, walk.seen))
        self._task.add_done_callback(self._over)
        await self._is_level.wait()

    def leave(self, follower: Follower) -> None:
        """The follower reads no more; the last one ends the tail."""
        self._followers.discard(follower)
        if not self._followers:
            if self._task is not None:
                self._task.cancel()
            self._on_over(self)

    def raise_error(self) -> None:
        """Raise what has ended the tail before the run ended, if anything has."""
        error = None if self._task is None else self._task.exception()
        if isinstance(error, Unavailable):
            # Each follower gets an error of their own, because raising one adds to its traceback.
            raise Unavailable(str(error), retry_after=error.retry_after) from error
        if error is not None:
            raise error

    async def _read(self, execution: str, recent: Recent, level: str) -> None:
        place: Place | None = Place.beginning(self.run_id, execution)
        try:
            while place is not None:
                page = await self._histories.read(place, wait=True)
                recent.add(page.events)
                if not is_later(level, recent.head):
                    self._is_level.set()
                self._drop_the_slow(recent.first)
                self._move()
                place = page.then
        except NotFound:
            raise unknown(self.run_id) from None

    def _drop_the_slow(self, first: int) -> None:
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
        self._is_level.set()
        self._move()


class Follower:
    """One reader at a tail. `number` is that of the event to read next, None until `join`."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.number: int | None = None
        self.was_dropped = False

    def join(self, cursor: str) -> bool:
        """Go on with the tail after a cursor.

        False if the tail does not know what came after it, or if that is so much that the follower might
        be dropped before having had a chance.
        """
        recent = self.tail.recent
        number = None if recent is None else recent.number_after(cursor)
        if recent is None or number is None or recent.behind(number) > KEPT // 2:
            self.number = None
            return False
        self.number = number
        return True

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
                    f"this reader of the run {self.tail.run_id!r} was too slow: it fell more than {KEPT} "
                    "events behind and was dropped. Connect again with the last id received.",
                    retry_after=0.0,
                )
            recent, number = self.tail.recent, self.number
            if recent is None or number is None:
                raise RuntimeError("a follower reads on only after it has joined")
            event = recent.at(number)
            if event is not None:
                self.number = number + 1
                return event
            if self.tail.is_over:
                self.tail.raise_error()
                return None
            await self.tail.moved.wait()
