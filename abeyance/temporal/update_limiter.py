"""Limit concurrent updates of one run, and share concurrent reads.

The server admits ten updates in flight per run, and aborts those beyond that. So a process sends at most
four updates to one run at a time, answers first, and callers that come during a read share the next one.
The current read may have begun before the caller's last change.
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
    """Priority of an update, highest first."""

    RESPOND = 0
    TAKE_MESSAGES = 1
    SEND_MESSAGE = 2


class UpdateLimiter:
    """Priority semaphore: at most MAX_CONCURRENT_UPDATES callers per run."""

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Turn, int, asyncio.Future[None]]]] = {}
        self._arrivals = 0

    @asynccontextmanager
    async def turn(self, run_id: str, turn: Turn) -> AsyncIterator[None]:
        """Acquire the semaphore of one run; wait while it is full."""
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
            # A caller may get its place at the moment of its cancellation: pass it on.
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
    """One read per run at a time; callers that come during a read share the next one."""

    def __init__(self) -> None:
        self._current: dict[str, asyncio.Task[T]] = {}
        self._next: dict[str, asyncio.Task[T]] = {}

    async def read(self, run_id: str, fetch: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a `fetch` that starts no earlier than now."""
        # The next read has not begun, even if the current one has just ended.
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
            # Mark as retrieved: all callers may be gone.
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
