"""The records while workers are killed, and while the database is locked or killed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from killable import KillableServer, killable_server, worker_process
from killed_graphs import asking
from postgres import Cluster, running_cluster
from sqlalchemy import select
from temporal_site import ANYBODY, eventually, replay
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient

from abeyance import names, projections, views
from abeyance.client import Client
from abeyance.errors import RecordsUnavailable, Unavailable
from abeyance.records import runs
from abeyance.records.database import Database
from abeyance.records.documents import Transaction
from abeyance.records.tables import events
from abeyance.records.tables import runs as rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_RUNS = 20
_UNTOLD = ("updated_at", "metrics", "running", "retrying")
"""Fields that change without an event of the run, so no batch is written for them."""
_LOCKER = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
while True:
    held.execute("BEGIN IMMEDIATE")
    time.sleep(8)
    held.execute("ROLLBACK")
    time.sleep(1)
"""


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let another process lock the database for 8 of every 9 seconds: longer than a writer waits."""
    process = subprocess.Popen([sys.executable, "-c", _LOCKER, str(file)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def killed(cluster: Cluster) -> Iterator[None]:
    """Kill and restart the database server again and again; it is up at the end."""
    is_over = threading.Event()

    def kill() -> None:
        while not is_over.wait(4):
            cluster.kill()
            is_over.wait(3)
            cluster.start()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        try:
            yield
        finally:
            is_over.set()
            killing.result()


@contextlib.contextmanager
def harmed(
    kind: str, folder: Path
) -> Iterator[tuple[str, Callable[[], AbstractContextManager[None]]]]:
    """Yield the URL of a database, and a context manager that disturbs it."""
    if kind == "SQLite locked":
        file = folder / "records.db"
        yield f"sqlite:///{file}", lambda: locked(file)
        return
    with running_cluster(synchronous_commit="on") as cluster, cluster.database() as url:
        yield url, lambda: killed(cluster)


def _records(event: HistoryEvent) -> bool:
    ordered = event.activity_task_scheduled_event_attributes
    return ordered.activity_type.name == names.RECORD_ACTIVITY


class Site:
    """A Temporal server, and workers that write the records into a database."""

    def __init__(
        self, folder: Path, server: KillableServer, temporal: TemporalClient, url: str
    ) -> None:
        self._folder, self._server = folder, server
        self._database, self._variables = Database(url), {"ABEYANCE_DATABASE_URL": url}
        self._client = Client(temporal, patience=30, records=self._database)
        self.names = [f"r{number}" for number in range(_RUNS)]

    def close(self) -> None:
        self._database.close()

    def has_database(self) -> bool:
        """Return whether a worker has created the database."""
        with contextlib.suppress(RecordsUnavailable):
            self._database.check()
            return True
        return False

    def worker(self) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        log = self._folder / "worker.log"
        return worker_process(self._server, "killed_graphs:graphs", log, variables=self._variables)

    async def started(self, name: str) -> None:
        await self._client.runs.start(asking, run_id=name)

    async def has_killed_workers(self) -> None:
        """Kill four workers at work, and one after the database was away for too long."""
        for _ in range(4):
            with self.worker():
                await asyncio.sleep(4)
        with self.worker():
            await eventually(self.was_away, seconds=120)

    async def was_away(self) -> bool:
        """Return whether a run waits, or has waited, for the database in a regular activity."""
        for name in self.names:
            history = await self._client.temporal.get_workflow_handle(name).fetch_history()
            if any(map(_records, history.events)):
                return True
        return False

    async def answered(self, response: bool, number: int) -> None:
        """Answer the question of each run; repeat the call until it succeeds."""
        await asyncio.gather(*(self._answered(name, response, number) for name in self.names))

    async def _answered(self, name: str, response: bool, number: int) -> None:
        run = self._client.run(name)
        key = f"{name}-{number}"
        while True:
            try:
                await run.respond(response=response, principal=ANYBODY, key=key)
            except Unavailable:
                continue
            return

    async def waited(self, *until: str) -> None:
        waiting = (
            self._client.run(name).wait(until=frozenset(until), timeout=200) for name in self.names
        )
        await asyncio.gather(*waiting)

    async def differences(self) -> list[str]:
        """Return how the records differ from the runs, once all writes have had time to finish."""
        for _ in range(40):
            left = [each for name in self.names if (each := await self._difference(name))]
            if not left:
                break
            await asyncio.sleep(0.5)
        return left

    async def _difference(self, name: str) -> str:
        handle = self._client.temporal.get_workflow_handle(name)
        view = await handle.query("state", result_type=views.RunView)
        with self._database.reading() as connection:
            (deployment,) = connection.execute(select(rows.c.deployment).distinct()).scalars()
            tx = Transaction(connection, self._database.documents, deployment)
            kept = runs.run(tx, name)
            of_run = select(events.c.number).join(rows).where(rows.c.run_id == name)
            numbers = connection.execute(of_run.order_by(events.c.number)).scalars().all()
        if kept is None:
            return f"{name} is not there"
        if not view.ended_at:
            kept = kept.model_copy(update={each: getattr(view, each) for each in _UNTOLD})
        # The view that the run itself gives leaves out large parts.
        bare = {"answer": None, "preview": None}
        asked = [projections.short(each).model_copy(update=bare) for each in kept.interrupts]
        kept = kept.model_copy(update={"interrupts": asked})
        if kept != view:
            return f"{name} is {view}, and the records have {kept}"
        if [*numbers] != [*range(1, len(numbers) + 1)]:
            return f"{name} has the events {numbers}"
        return ""

    async def replayed(self) -> int:
        """Replay all histories. Return how often the database was away too long for a workflow task."""
        activities = 0
        for name in self.names:
            execution = None
            while execution != "":
                handle = self._client.temporal.get_workflow_handle(name, run_id=execution)
                history = await handle.fetch_history()
                await replay(history)
                activities += sum(map(_records, history.events))
                began = history.events[0].workflow_execution_started_event_attributes
                execution = began.continued_execution_run_id
        return activities


@pytest.mark.parametrize("kind", ["SQLite locked", "PostgreSQL killed"])
async def test_records_at_rest_equal_the_runs_and_histories_replay(
    tmp_path: Path, kind: str
) -> None:
    async with killable_server(tmp_path) as server:
        client = await server.client()
        with (
            harmed(kind, tmp_path) as (url, harm),
            contextlib.closing(Site(tmp_path, server, client.temporal, url)) as site,
        ):
            await _test_at_rest(site, harm)


async def _test_at_rest(site: Site, harm: Callable[[], AbstractContextManager[None]]) -> None:
    with site.worker():
        await eventually(site.has_database, seconds=60)
    for name in site.names:
        await site.started(name)
    with harm():
        await site.has_killed_workers()
    with site.worker():
        await site.waited("awaiting-input")
        while_asking = await site.differences()
    answering = asyncio.create_task(site.answered(True, 1))
    with harm():
        await site.has_killed_workers()
    with site.worker():
        await answering
        await site.waited("awaiting-input")
        await site.answered(False, 2)
        await site.waited("completed")
        at_the_end = await site.differences()
    away = await site.replayed()

    assert away > 0
    assert while_asking == []
    assert at_the_end == []
