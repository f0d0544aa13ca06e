"""An event loop whose time passes at once when nothing is left to do at this time."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from abeyance.activities import node

EPOCH = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


_MOST_SECONDS = 3 * 86_400.0


class Stalled(AssertionError):
    """Somebody waits, and nothing will ever happen."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop without input and output: its callbacks run in the order of their time."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        self._selector = self

    def time(self) -> float:
        return self._seconds

    def select(self, timeout: float | None) -> tuple[()]:
        """Let time pass, which is all that is waited for."""
        if timeout is None:
            raise Stalled("everybody waits for something that nobody does")
        self._seconds += timeout
        if self._seconds > _MOST_SECONDS:
            raise Stalled("after days the schedule has not come to its end")
        return ()

    def _process_events(self, events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 as an executor does it
            done.set_exception(error)
        return done

    def wall(self) -> datetime:
        """The time of day."""
        return EPOCH + timedelta(seconds=self._seconds)


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop of virtual time, by which this process and its ids go meanwhile."""
    loop = VirtualLoop()
    ids = Random(0)

    class Now(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return loop.wall()

    def identifier() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    kept = (time.monotonic, uuid.uuid4, node.datetime)  # type: ignore[attr-defined]
    time.monotonic, uuid.uuid4 = loop.time, identifier
    node.datetime = Now  # type: ignore[attr-defined]
    try:
        yield loop
    finally:
        time.monotonic, uuid.uuid4, node.datetime = kept  # type: ignore[attr-defined]
        loop.close()
