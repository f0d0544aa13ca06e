"""Processes that tests kill: a Temporal server with its data on disk, and a worker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ports import free_port
from temporal_site import BINARY, UP_WITHIN

from abeyance import names
from abeyance.client import Client
from abeyance.errors import Unavailable
from abeyance.temporal.connection import connect_temporal

_ROOT = Path(__file__).parents[2]


class KillableServer:
    """Temporal's development server as a process, restartable on the same data and port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        attributes = [
            part
            for name in names.SEARCH_ATTRIBUTES
            for part in ("--search-attribute", f"{name}=Keyword")
        ]
        self._process = subprocess.Popen(
            [
                *(BINARY, "server", "start-dev", "--ip", "127.0.0.1", "--headless"),
                *("--port", str(self.port), "--log-level", "never"),
                *("--db-filename", str(self._folder / "temporal.db")),
                *("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"),
                *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=5000"),
                *attributes,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def client(self) -> Client:
        """Wait until the server responds, and return a client."""
        async with asyncio.timeout(UP_WITHIN.total_seconds()):
            while True:
                try:
                    temporal = await connect_temporal(f"127.0.0.1:{self.port}")
                except Unavailable:
                    await asyncio.sleep(0.05)
                else:
                    return Client(temporal, patience=30)


@asynccontextmanager
async def killable_server(folder: Path) -> AsyncIterator[KillableServer]:
    server = KillableServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


_WORKER = "from abeyance.worker import main; main()"
_KEEPING_WORKER = """
import asyncio, sys
from abeyance.app import load_graphs
from abeyance.storage.blobs import FolderBlobs
from abeyance.temporal.connection import connect_temporal
from abeyance.settings import load_settings
from abeyance.worker import make_worker

async def serve():
    settings = load_settings()
    temporal = await connect_temporal()
    blobs = FolderBlobs(sys.argv[1])
    async with make_worker(temporal, load_graphs(settings.app), settings, blobs=blobs):
        await asyncio.Event().wait()

asyncio.run(serve())
"""


@contextmanager
def worker_process(
    server: KillableServer | str,
    app: str,
    log: Path,
    *,
    blobs: Path | None = None,
    variables: Mapping[str, str] | None = None,
    imports: Sequence[Path] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker process, and kill it at the end if it still runs. `server` may be an address.

    The worker keeps large values in the folder `blobs`, or where its settings say. `imports` are more
    folders of modules, and `variables` more environment variables.
    """
    command = ["-c", _WORKER] if blobs is None else ["-c", _KEEPING_WORKER, str(blobs)]
    environment = {
        **os.environ,
        "ABEYANCE_APP": app,
        "TEMPORAL_ADDRESS": server if isinstance(server, str) else f"127.0.0.1:{server.port}",
        "PYTHONPATH": os.pathsep.join(map(str, [*imports, _ROOT, Path(__file__).parent])),
        **(variables or {}),
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            cwd=log.parent,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
