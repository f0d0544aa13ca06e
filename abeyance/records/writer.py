"""Writes batches of many runs in one transaction, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby, islice
from queue import Empty, SimpleQueue
from typing import Final

from abeyance.errors import RecordsUnavailable, SettingsError, Unavailable
from abeyance.records.batch import Batch, Written, merged
from abeyance.records.database import Database, Scope
from abeyance.records.writing import write

_MOST: Final = 100
"""How many batches are written in one transaction."""
_WAITING: Final = 1_000
"""The most batches that wait: with more, the database counts as away."""
_GATHERED: Final = 0.2
"""In seconds: how long told news waits for more news of its run, or for a batch that includes it."""
_SPARED: Final = 1.0
"""In seconds: how long no caller waits for a database that was late again and again."""
_AGAIN: Final = 3
"""How many times in a row it has to be late for that."""
_LONGEST_PAUSE: Final = 30.0
"""In seconds: the longest pause before the writer tries again to reach a database that was away."""
_logger = logging.getLogger("abeyance.records")


@dataclass(frozen=True, slots=True)
class _Job:
    scope: Scope
    batch: Batch
    done: Future[Written] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class News:
    """A batch for which nobody waits, and which is written when it is `due`. `scope` may have to ask
    Temporal.
    """

    scope: Callable[[], Scope]
    batch: Batch
    due: float


class UnwrittenNews:
    """News that is not written yet: one batch for each run, which combines all its news."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_runs: OrderedDict[str, News] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of_runs)

    def add(self, told: News) -> None:
        """Add news of a run, before or after the news that is here."""
        origin = told.batch.origin
        with self._lock:
            if (other := self._of_runs.get(origin)) is not None:
                told = News(told.scope, merged(other.batch, told.batch), other.due)
            self._of_runs[origin] = told
            if len(self._of_runs) > _WAITING:
                self._of_runs.popitem(last=False)

    def take(self, now: float) -> Sequence[News]:
        """Take the news that is due, at most as much as one transaction writes."""
        with self._lock:
            due = (origin for origin, told in self._of_runs.items() if told.due <= now)
            return [self._of_runs.pop(origin) for origin in [*islice(due, _MOST)]]

    def recorded(self, batch: Batch) -> None:
        """Forget the news of a run from before a written batch, which includes it."""
        with self._lock:
            told = self._of_runs.get(batch.origin)
            if told is not None and told.batch.number < batch.number and not told.batch.is_whole:
                del self._of_runs[batch.origin]

    @property
    def due(self) -> float:
        """The time at which the next news is due; infinity if there is none."""
        with self._lock:
            return min((told.due for told in self._of_runs.values()), default=math.inf)


class Writer:
    """The one writer of a process. Its thread lives as long as there is something to write."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs: SimpleQueue[_Job | Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_at_work = False
        self._news = threading.Event()
        self._spared_until = 0.0
        self._late = 0
        self._unwritten = UnwrittenNews()
        self._pause = 0.0
        self._retry_at = 0.0

    def open(self, first: Callable[[], object]) -> None:
        """Open the database in the background, and then call `first`, which has to be ready as well."""
        self._jobs.put(first)
        self._begin()

    def tell(self, scope: Callable[[], Scope], batch: Batch) -> None:
        """Write a batch soon, once the database can take it, unless this process ends before.

        Nobody waits for it. While the database is away, it is written with what its run tells later.
        """
        self._unwritten.add(News(scope, batch, time.monotonic() + _GATHERED))
        self._begin()

    async def write(self, scope: Scope, batch: Batch, *, patience: float) -> Written:
        """Write a batch, and wait `patience` seconds for it. A write that has not begun then is dropped.

        After the database was late three times in a row, or away, a call returns `late` at once for a
        second, unless its `patience` is longer than that.
        """
        if patience <= _SPARED and time.monotonic() < self._spared_until:
            return Written(status="late")
        if self._jobs.qsize() >= _WAITING:
            return Written(status="away")
        job = _Job(scope, batch)
        self._jobs.put(job)
        self._begin()
        waiting = asyncio.wrap_future(job.done)
        done, _ = await asyncio.wait({waiting}, timeout=patience)
        if not done:
            waiting.cancel()
            self._late += 1
            if self._late >= _AGAIN:
                self._spare()
            return Written(status="late")
        self._late = 0
        match waiting.exception():
            case None:
                return waiting.result()
            case RecordsUnavailable() as error:
                self._spare()
                _logger.warning("code=%s | the records are behind: %s", error.code, error)
                return Written(status="away")
            case error:
                raise error

    def _spare(self) -> None:
        self._spared_until = time.monotonic() + _SPARED

    def _begin(self) -> None:
        with self._lock:
            self._news.set()
            if self._is_at_work:
                return
            self._is_at_work = True
        threading.Thread(target=self._work, name="records", daemon=True).start()

    def _work(self) -> None:
        while True:
            if jobs := self._waiting():
                self._write(jobs)
            if told := self._due_news():
                self._write_news(told)
            if not (jobs or told or self._rests()):
                return

    def _rests(self) -> bool:
        """Wait for something to write. Return False if there is nothing, and the thread may end."""
        with self._lock:
            if self._jobs.empty() and not self._unwritten:
                self._is_at_work = False
                return False
        if self._jobs.empty():
            due = max(self._retry_at, self._unwritten.due)
            self._news.wait(max(0.0, due - time.monotonic()))
        self._news.clear()
        return True

    def _waiting(self) -> Sequence[_Job]:
        jobs: list[_Job] = []
        while len(jobs) < _MOST:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                break
            if not isinstance(job, _Job):
                self._open(job)
            elif job.done.set_running_or_notify_cancel():
                jobs.append(job)
        return jobs

    def _due_news(self) -> Sequence[News]:
        now = time.monotonic()
        return [] if now < self._retry_at else self._unwritten.take(now)

    def _write_news(self, told: Sequence[News]) -> None:
        try:
            self._transact([_Job(each.scope(), each.batch) for each in told])
        except Unavailable as error:
            _logger.debug("what runs have told is written later: %s", error)
            for each in told:
                self._unwritten.add(each)
            self._pause = min(max(_SPARED, 2 * self._pause), _LONGEST_PAUSE)
            self._retry_at = time.monotonic() + self._pause
        except Exception as error:  # noqa: BLE001 the run's next batch has it, and raises the error
            if len(told) == 1:
                _logger.warning("what a run has told cannot be written: %s", error)
                return
            for each in told:
                self._write_news([each])
        else:
            self._pause = 0.0

    def _open(self, first: Callable[[], object]) -> None:
        try:
            self._database.check()
            first()
        except (Unavailable, SettingsError) as error:
            _logger.warning("the records cannot be written: %s", error)

    def _write(self, jobs: Sequence[_Job]) -> None:
        try:
            written = self._transact(jobs)
        except Exception as error:  # noqa: BLE001 it is raised to the callers that wait
            if len(jobs) == 1 or isinstance(error, RecordsUnavailable):
                for job in jobs:
                    job.done.set_exception(error)
                return
            # One of the batches cannot be written, and must not hold back the others.
            for job in jobs:
                self._write([job])
        else:
            self._retry_at = self._pause = 0.0
            for job, each in zip(jobs, written, strict=True):
                if each.status == "written":
                    self._unwritten.recorded(job.batch)
                job.done.set_result(each)

    def _transact(self, jobs: Sequence[_Job]) -> Sequence[Written]:
        written: list[Written] = []
        with self._database.writing() as connection:
            for scope, of_scope in groupby(jobs, key=lambda job: job.scope):
                tx = self._database.transaction(connection, scope)
                written += write(tx, [job.batch for job in of_scope])
        return written
