"""Share concurrent reads: callers that come during a read share the next one.

The current read may have begun before the caller's last change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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
