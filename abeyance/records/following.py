"""Following: one thread of a process notices new records, and wakes all callers that wait for them.

The thread lives as long as a caller waits, and a moment longer for the next one. It has a connection of
its own: PostgreSQL tells it of each transaction that writes, and in a file of SQLite it polls a counter.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from abeyance.errors import RecordsUnavailable
from abeyance.records import events, runs
from abeyance.records.database import Database

_AGAIN: Final = 1.0
"""In seconds: the pause after a connection was lost."""
_GATHERED: Final = 0.005
"""In seconds: all that is recorded in this time wakes a caller once."""
_logger = logging.getLogger("abeyance.records")


_LINGERS: Final = 0.5
"""In seconds: how long the thread stays after the last caller, which often waits again."""


class Changes:
    """Tells that something was recorded since the last call of `next`; with a `run_id`, only events of
    that run, and with `until`, only once the run has one of these statuses.

    The first call returns at once, so a caller that waits and then reads misses nothing.
    """

    def __init__(self, run_id: str | None, until: frozenset[str] | None) -> None:
        self.run_id = run_id
        self._until = until
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._moved.set()
        self._statuses: frozenset[str] = frozenset()

    async def next(self, timeout: float) -> frozenset[str]:
        """Return once something was recorded since the call before, or after so many seconds.

        The result is the statuses of the run at that event; none if they are unknown.
        """
        # Not `wait_for`, which forgets a cancellation that comes with a change (Python 3.11).
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._moved.wait()
        self._moved.clear()
        statuses, self._statuses = self._statuses, frozenset()
        return statuses

    def tell(self, changed: Mapping[str, frozenset[str]]) -> None:
        """Wake the caller if it waits for one of these runs with new events, by their statuses."""
        if self.run_id is None:
            self.wake()
        elif self.run_id in changed:
            statuses = changed[self.run_id]
            if self._until is None or statuses & self._until:
                self.wake(statuses)

    def wake(self, statuses: frozenset[str] = frozenset()) -> None:
        """Wake the caller that waits. Any thread may call this."""
        # If a reader was never closed, its event loop may be over.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._move, statuses)

    def _move(self, statuses: frozenset[str]) -> None:
        self._statuses = statuses
        self._moved.set()


class Following:
    """The one follower of a database in a process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._waiting: set[Changes] = set()
        self._thread: threading.Thread | None = None
        self._position = 0
        self._needed_at = time.monotonic()

    @property
    def is_at_work(self) -> bool:
        """Whether somebody waits, or did a moment ago."""
        return self._thread is not None

    @property
    def followed(self) -> Sequence[str | None]:
        """For each caller that waits, the id of the run that it waits for, None for any run."""
        with self._lock:
            return [each.run_id for each in self._waiting]

    @contextmanager
    def changes(
        self, run_id: str | None = None, *, until: frozenset[str] | None = None
    ) -> Iterator[Changes]:
        """Yield the changes that are recorded from now on."""
        changes = Changes(run_id, until)
        with self._lock:
            self._waiting.add(changes)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="following", daemon=True)
                self._thread.start()
        try:
            yield changes
        finally:
            with self._lock:
                self._waiting.discard(changes)

    def _work(self) -> None:
        try:
            while self._is_needed():
                try:
                    self._follow()
                except RecordsUnavailable as error:
                    _logger.warning(
                        "code=%s | the records cannot be followed: %s", error.code, error
                    )
                    time.sleep(_AGAIN)
        finally:
            # Even after a bug, the next caller starts a new thread.
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _follow(self) -> None:
        with self._database.watching() as has_changed:
            with self._database.reading() as connection:
                self._position = events.newest(connection)
            # Nothing has noticed the changes before this connection was there.
            self._wake(None)
            while self._is_needed():
                if has_changed():
                    self._wake(self._changed_runs())
                    time.sleep(_GATHERED)

    def _is_needed(self) -> bool:
        with self._lock:
            now, is_current = time.monotonic(), self._thread is threading.current_thread()
            if self._waiting:
                self._needed_at = now
            elif is_current and now - self._needed_at > _LINGERS:
                # Clear it under the lock: the next caller starts a thread only if there is none.
                self._thread, is_current = None, False
            return is_current

    def _changed_runs(self) -> Mapping[str, frozenset[str]]:
        """Return the statuses of the runs that have new events since the call before."""
        with self._database.reading() as connection:
            self._position, changed = runs.changed(connection, self._position)
        return changed

    def _wake(self, changed: Mapping[str, frozenset[str]] | None) -> None:
        """Wake the callers that wait for these changes, by run id, or all callers for None."""
        with self._lock:
            waiting = [*self._waiting]
        for each in waiting:
            if changed is None:
                each.wake()
            else:
                each.tell(changed)
