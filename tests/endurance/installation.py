"""A whole installation on this machine: Temporal, PostgreSQL, two workers, an API, a tool server.

Each is a process that can be killed and started again. Workers and the API reach Temporal through a
proxy, which can delay or drop their connections.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from killable import KillableServer, killable_server
from office_graphs import LEDGER, TOOLS_URL
from ports import free_port
from postgres import Cluster, running_cluster
from proxy import Proxy
from temporal_site import eventually

_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parents[1]
_TOOLS: Final = _ROOT / "tests" / "agents" / "mcp_servers.py"
_WORKER: Final = "from abeyance.worker import main; main()"
_API: Final = """\
import asyncio, sys
from abeyance.api.app import serve
from abeyance.settings import load_settings
asyncio.run(serve(load_settings(), "127.0.0.1", int(sys.argv[1])))
"""
_UP_WITHIN: Final = 120


@dataclass
class Program:
    """A process that can be started again after a kill."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *self.command],
                env={**os.environ, **self.environment},
                cwd=self.log.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )

    def kill(self) -> None:
        """Kill the process as kill -9 does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    def assert_alive(self) -> None:
        """Fail if the process ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            text = self.log.read_text("utf-8")[-4_000:]
            raise AssertionError(f"{self.name} ended by itself:\n{text}")


@dataclass
class Installation:
    """The processes, the ledger of their side effects, and the folder that switches faults on."""

    temporal: KillableServer
    postgres: Cluster
    network: Proxy
    workers: Sequence[Program]
    api: Program
    tools: Program
    url: str
    ledger: Path
    faults: Path

    @property
    def programs(self) -> Sequence[Program]:
        return [*self.workers, self.api, self.tools]

    def bookings(self) -> list[tuple[str, str, str]]:
        """Return the side effects: idempotency key, run and item of each call."""
        lines = self.ledger.read_text("utf-8").splitlines()
        return [(key, run_id, item) for key, run_id, item in map(str.split, lines)]

    async def ready(self) -> None:
        """Wait until the API is up and sees a worker."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as http:

            async def is_ready() -> bool:
                self.api.assert_alive()
                try:
                    return (await http.get("/readyz")).status_code == httpx.codes.OK
                except httpx.TransportError:
                    return False

            await eventually(is_ready, seconds=_UP_WITHIN)


async def work_beside(
    watch: Coroutine[Any, Any, None], work: Iterable[Coroutine[Any, Any, None]]
) -> None:
    """Do all the work at once beside `watch`, which never ends, but may fail and so stop the work."""
    async with asyncio.TaskGroup() as everything:
        watching = everything.create_task(watch)
        async with asyncio.TaskGroup() as working:
            for each in work:
                working.create_task(each)
        watching.cancel()


@asynccontextmanager
async def installation(folder: Path) -> AsyncIterator[Installation]:
    """Yield an installation that is up, and kill all its processes at the end."""
    ledger, faults = folder / "ledger", folder / "faults"
    ledger.touch()
    faults.mkdir()
    ports = [free_port() for _ in range(3)]
    variables = {
        "ABEYANCE_APP": "office_graphs:graphs",
        "ABEYANCE_STORAGE": str(folder / "storage"),
        "ABEYANCE_STORAGE_SHARED": "true",
        "ABEYANCE_SHUTDOWN_GRACE": "0.5s",
        "FAULTS": str(faults),
        LEDGER: str(ledger),
        TOOLS_URL: f"http://127.0.0.1:{ports[2]}/mcp",
        "TEMPORAL_ADDRESS": f"127.0.0.1:{ports[0]}",
        "PYTHONPATH": os.pathsep.join(
            map(str, [_HERE / "faults", _HERE, _ROOT, _ROOT / "tests" / "support"])
        ),
    }

    def program(name: str, *command: str) -> Program:
        return Program(name, command, variables, folder / f"{name}.log")

    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(killable_server(folder))
        network = await stack.enter_async_context(Proxy(ports[0], temporal.port))
        # A commit that PostgreSQL has confirmed must survive its kill.
        postgres = stack.enter_context(running_cluster(synchronous_commit="on"))
        variables["ABEYANCE_DATABASE_URL"] = stack.enter_context(postgres.database())
        await temporal.client()
        made = Installation(
            temporal=temporal,
            postgres=postgres,
            network=network,
            workers=[program(f"worker-{number}", "-c", _WORKER) for number in (1, 2)],
            api=program("api", "-c", _API, str(ports[1])),
            tools=program(
                "tools",
                *(str(_TOOLS), "http", str(folder), "--stateless", "--port", str(ports[2])),
            ),
            url=f"http://127.0.0.1:{ports[1]}",
            ledger=ledger,
            faults=faults,
        )
        try:
            for each in made.programs:
                each.start()
            await made.ready()
            yield made
        finally:
            for each in made.programs:
                each.kill()
