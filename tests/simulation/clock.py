"""An event loop in virtual time: when nothing is left to do, time jumps to the next callback."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from random import Random
from typing import Any
from weakref import WeakSet

from abeyance.activities import attempt, node
from abeyance.client import grants

EPOCH = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


_BY_THE_CLOCK = (attempt, node, grants)
_MOST_SECONDS = 3 * 86_400.0


class Stalled(AssertionError):
    """Raised when something waits and nothing will ever happen, or when a schedule does not end."""


class _Call:
    """A callback that the loop will call, without the debugging data that asyncio's handles keep."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback, self.args = callback, args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without input and output. It runs callbacks in the order of their times, and
    callbacks of the same time in the order in which they were scheduled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._calls: deque[_Call] = deque()
        self._later: list[tuple[float, int, _Call]] = []
        self._number = 0

    def time(self) -> float:
        return self._seconds

    def get_debug(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(callback, args, context)
        self._calls.append(call)
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        return self.call_at(self._seconds + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(callback, args, context)
        self._number += 1
        heappush(self._later, (when, self._number, call))
        return call

    def _run_once(self) -> None:
        """Call the callbacks that are due. If none is, first jump to the time of the next one."""
        calls, later = self._calls, self._later
        while later and later[0][2].is_cancelled:
            heappop(later)
        if not calls and not self._stopping:  # type: ignore[attr-defined]
            if not later:
                raise Stalled("everybody waits for something that nobody does")
            self._seconds = max(self._seconds, later[0][0])
            if self._seconds > _MOST_SECONDS:
                raise Stalled("after days the schedule has not come to its end")
        while later and later[0][0] <= self._seconds:
            calls.append(heappop(later)[2])
        for _ in range(len(calls)):
            call = calls.popleft()
            if not call.is_cancelled:
                self._call(call)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        return self.call_soon(callback, *args, context=context)

    def _call(self, call: _Call) -> None:
        try:
            call.context.run(call.callback, *call.args)
        except Exception as error:  # noqa: BLE001 as asyncio does it
            self.call_exception_handler({"message": str(error), "exception": error})

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 as an executor does it
            done.set_exception(error)
        return done

    def wall(self) -> datetime:
        """Return the virtual date and time."""
        return EPOCH + timedelta(seconds=self._seconds)


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """Yield a virtual loop; meanwhile this process takes its time from it, and draws repeatable ids."""
    loop = VirtualLoop()
    ids = Random(0)

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return loop.wall()

    def identifier() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    kept = time.monotonic, uuid.uuid4
    time.monotonic, uuid.uuid4 = loop.time, identifier
    for module in _BY_THE_CLOCK:
        module.datetime = Now  # type: ignore[attr-defined]
    try:
        yield loop
    finally:
        time.monotonic, uuid.uuid4 = kept
        for module in _BY_THE_CLOCK:
            module.datetime = datetime  # type: ignore[attr-defined]
        loop.close()
