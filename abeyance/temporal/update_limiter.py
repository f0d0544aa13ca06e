"""Order at the door of one run: a few updates at a time, and reads that are shared.

The server admits ten updates in flight for a run and buffers one query while a task is pending; beyond
that it aborts or refuses. So a process sends at most four updates to one run at a time, answers first,
and callers who want to read a run while a read is under way share the next one. Not the one under way:
it may have begun before what the caller did just now.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MAX_CONCURRENT_UPDATES: Final = 4


class Turn(IntEnum):
    """Who goes first."""

    RESPOND = 0
    TAKE_MESSAGES = 1
    SEND_MESSAGE = 2


class UpdateLimiter:
    """Lets at most `AT_ONCE` callers for one run through, in the order of their turns."""

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Turn, int, asyncio.Future[None]]]] = {}
        self._arrivals = 0

    @asynccontextmanager
    async def turn(self, run_id: str, turn: Turn) -> AsyncIterator[None]:
        """Be inside for one run; waits while it is full."""
        if self._inside.get(run_id, 0) >= MAX_CONCURRENT_UPDATES:
            await self._queue(run_id, turn)
        else:
            self._inside[run_id] = self._inside.get(run_id, 0) + 1
        try:
            yield
        finally:
            self._leave(run_id)

    async def _queue(self, run_id: str, turn: Turn) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        heapq.heappush(self._waiting.setdefault(run_id, []), (turn, self._arrivals, place))
        try:
            await place
        except asyncio.CancelledError:
            # The place may have been given to a caller who gave up in the same moment.
            if place.done() and not place.cancelled():
                self._leave(run_id)
            raise

    def _leave(self, run_id: str) -> None:
        queue = self._waiting.get(run_id, [])
        while queue:
            _, _, place = heapq.heappop(queue)
            if not place.done():
                place.set_result(None)
                return
        self._waiting.pop(run_id, None)
        self._inside[run_id] -= 1
        if not self._inside[run_id]:
            del self._inside[run_id]


class SingleFlight(Generic[T]):
    """One read at a time for each run; callers that come during one share the next."""

    def __init__(self) -> None:
        self._current: dict[str, asyncio.Task[T]] = {}
        self._next: dict[str, asyncio.Task[T]] = {}

    async def read(self, run_id: str, fetch: Callable[[], Awaitable[T]]) -> T:
        """What `fetch` gives, begun no earlier than now."""
        # The next one first: it has not begun, also where the one before it is over already.
        task = self._next.get(run_id)
        if task is None:
            current = self._current.get(run_id)
            if current is None:
                task = self._begin(run_id, fetch)
            else:
                task = asyncio.create_task(self._after(current, run_id, fetch))
                self._next[run_id] = task
        return await asyncio.shield(task)

    def _begin(self, run_id: str, fetch: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        async def work() -> T:
            return await fetch()

        task = asyncio.create_task(work())
        self._current[run_id] = task
        task.add_done_callback(lambda done: self._end(run_id, done))
        return task

    def _end(self, run_id: str, task: asyncio.Task[T]) -> None:
        if self._current.get(run_id) is task:
            del self._current[run_id]
        if not task.cancelled():
            # Retrieved here too, because every caller may have gone.
            task.exception()

    async def _after(
        self, current: asyncio.Task[T], run_id: str, fetch: Callable[[], Awaitable[T]]
    ) -> T:
        await asyncio.wait({current})
        task = asyncio.current_task()
        self._next.pop(run_id, None)
        if task is not None:
            self._current[run_id] = task
            task.add_done_callback(lambda done: self._end(run_id, done))
        return await fetch()
