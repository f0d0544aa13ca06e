"""Writes batches of many runs in one transaction, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from abeyance.errors import RecordsUnavailable, SettingsError, Unavailable
from abeyance.records.batch import Batch, Written
from abeyance.records.database import Database, Scope
from abeyance.records.writing import write

_MOST: Final = 100
"""How many batches are written in one transaction."""
_WAITING: Final = 1_000
"""How many batches wait at most: with more the database is as good as away."""
_SPARED: Final = 1.0
"""In seconds: how long nobody waits for a database that was late again and again."""
_AGAIN: Final = 3
"""So many times in a row it was late."""
_logger = logging.getLogger("abeyance.records")


@dataclass(frozen=True, slots=True)
class _Job:
    scope: Scope
    batch: Batch
    done: Future[Written] = field(default_factory=Future)


class Writer:
    """The one writer of a process. Its thread lives as long as there is something to write."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs: SimpleQueue[_Job | Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_at_work = False
        self._spared_until = 0.0
        self._late = 0

    def open(self, first: Callable[[], object]) -> None:
        """Open the database in the background, and call what has to be ready by then too."""
        self._jobs.put(first)
        self._begin()

    def tell(self, scope: Scope, batch: Batch) -> None:
        """Write a batch soon, unless the database is late or away: then it is dropped."""
        if time.monotonic() >= self._spared_until and self._jobs.qsize() < _WAITING:
            self._jobs.put(_Job(scope, batch))
            self._begin()

    async def write(self, scope: Scope, batch: Batch, *, patience: float) -> Written:
        """Write a batch, and wait so many seconds for it. If it is not begun then, it is not written.

        If the database was late three times in a row, or is away, nobody waits for it for a second,
        unless `patience` is more than that.
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
            if self._is_at_work:
                return
            self._is_at_work = True
        threading.Thread(target=self._work, name="records", daemon=True).start()

    def _work(self) -> None:
        while True:
            if jobs := self._waiting():
                self._write(jobs)
                continue
            with self._lock:
                if self._jobs.empty():
                    self._is_at_work = False
                    return

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

    def _open(self, first: Callable[[], object]) -> None:
        try:
            self._database.check()
            first()
        except (Unavailable, SettingsError) as error:
            _logger.warning("the records cannot be written: %s", error)

    def _write(self, jobs: Sequence[_Job]) -> None:
        try:
            written = self._transact(jobs)
        except (RecordsUnavailable, SQLAlchemyError) as error:
            if len(jobs) == 1 or isinstance(error, RecordsUnavailable):
                for job in jobs:
                    job.done.set_exception(error)
                return
            # One of them cannot be written, and must not hold back the others.
            for job in jobs:
                self._write([job])
        else:
            for job, each in zip(jobs, written, strict=True):
                job.done.set_result(each)

    def _transact(self, jobs: Sequence[_Job]) -> Sequence[Written]:
        written: list[Written] = []
        with self._database.writing() as connection:
            for scope, of_scope in groupby(jobs, key=lambda job: job.scope):
                deployment = self._database.deployment(connection, scope)
                batches = [job.batch for job in of_scope]
                written += write(connection, self._database.documents, deployment, batches)
        return written
