"""What contenders run on: a Temporal server, the database of the records and workers, as processes of
their own.

The server is started as `abeyance dev` starts it (one shard that looks for work as often as it likes,
SQLite with a write-ahead log), new for every trial, so that no trial finds what another one left. So is
PostgreSQL, if the records are to be in one.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from temporalio.client import Client
from temporalio.service import GrpcCompression
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from abeyance.dev import server as devserver
from abeyance.dev.parent_death import STDIN, Owner, leashed
from abeyance.dev.ports import closed_to_browsers, free_ports
from abeyance.dev.postgres import Cluster
from abeyance.dev.stack import prepare_records
from abeyance.temporal.connection import data_converter

_HERE: Final = Path(__file__).parent
_READY_SECONDS: Final = 180.0
_LOOK_EVERY: Final = 0.05
_URL: Final = "ABEYANCE_DATABASE_URL"
DATABASE: Final = "BENCH_DATABASE"
"""The variable that says where the records are: in `sqlite`, or in `postgres`."""
OURS: Final = "from abeyance.worker import main; main()"
"""The program of Abeyance's worker."""
_API: Final = """\
import asyncio, sys
from abeyance.api.app import serve
from abeyance.settings import load_settings
from abeyance.temporal.workers import event_loop
with asyncio.Runner(loop_factory=event_loop) as runner:
    runner.run(serve(load_settings(), "127.0.0.1", int(sys.argv[1])))
"""


class Processes:
    """The processes that work for a contender, by what they do; this one is the `client`."""

    def __init__(self, **others: int) -> None:
        self._others = others

    def cpu_seconds(self) -> Mapping[str, float]:
        """How much processor time each has taken so far. Others are known on Linux only."""
        spent = {"client": time.process_time()}
        for name, pid in self._others.items():
            if (ticks := _ticks(pid)) is not None:
                spent[name] = ticks / os.sysconf("SC_CLK_TCK")
        return spent

    def memory(self) -> Mapping[str, int]:
        """How many bytes of each of the others are in main memory; known on Linux only."""
        resident = {}
        for name, pid in self._others.items():
            statm = Path(f"/proc/{pid}/statm")
            if statm.exists():
                pages = int(statm.read_text(encoding="utf-8").split()[1])
                resident[name] = pages * os.sysconf("SC_PAGE_SIZE")
        return resident


def _ticks(pid: int) -> int | None:
    """The processor time of a process and of all that it started; None if it is not there."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program, in brackets, may hold spaces. The 12th to 15th field after it are user and
    # system time, of the process and of its children that have ended.
    own = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return own + sum(_ticks(int(child)) or 0 for child in children.split())


class Server:
    """A Temporal server that is up."""

    def __init__(self, port: int, pid: int, metrics: int) -> None:
        self.address = f"{devserver.HOST}:{port}"
        self.pid = pid
        self.metrics = f"http://{devserver.HOST}:{metrics}/metrics"


@asynccontextmanager
async def temporal_server(folder: Path) -> AsyncIterator[Server]:
    """A Temporal server with its data in a folder, until the context ends. The records are beside it."""
    # For the processes that are started later, and for the client in this one.
    os.environ[_URL] = f"sqlite:///{folder.absolute()}/records.db"
    (port,) = free_ports(devserver.HOST, {"server": 0}).values()
    with closed_to_browsers(devserver.HOST, 2) as (http, metrics):
        ports = devserver.Ports(grpc=port, http=http, metrics=metrics)
        database = folder / "temporal.db"
        command = devserver.command(devserver.binary(), ports=ports, database=database)
        with _process(command, os.environ, folder / "server.log") as pid:
            await devserver.until_set_up(port, timeout=_READY_SECONDS, database=database)
            yield Server(port, pid, metrics)


async def connected(address: str) -> Client:
    """The connection of what is written by hand: it converts as ours does, and compresses as little."""
    return await Client.connect(
        address, data_converter=data_converter(), grpc_compression=GrpcCompression.NONE
    )


@contextmanager
def worker(
    server: Server,
    program: str,
    folder: Path,
    *,
    app: str | None = None,
    storage: Path | None = None,
) -> Iterator[int]:
    """A worker in a Python process, until the context ends; what runs it is `program`."""
    command = [sys.executable, "-c", program]
    environment = {**_environment(server, app)}
    if storage is not None:
        environment["ABEYANCE_STORAGE"] = str(storage)
    with _process(command, environment, folder / "worker.log") as pid:
        yield pid


@asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """The URL of a database with the tables of the records, and the process of its server.

    As with SQLite, what was written survives the end of the process, and not a power cut.
    """
    cluster = Cluster(folder / "postgres", *free_ports(devserver.HOST, {"database": 0}).values())
    cluster.make()
    command, log = cluster.command(fsync="off"), folder / "postgres.log"
    with _process(command, {}, log, cwd=cluster.data, owner=cluster.owner) as pid:
        await prepare_records(cluster.url())
        yield cluster.url(), pid


@asynccontextmanager
async def served(
    folder: Path, program: str, *, app: str | None = None, storage: Path | None = None
) -> AsyncIterator[tuple[Server, Processes]]:
    """A server and a worker, until the context ends. The records are where `DATABASE` says."""
    async with AsyncExitStack() as opened:
        server, others = await opened.enter_async_context(temporal_server(folder)), {}
        if program == OURS and os.environ.get(DATABASE) == "postgres":
            os.environ[_URL], others["database"] = await opened.enter_async_context(
                postgres(folder)
            )
        pid = opened.enter_context(worker(server, program, folder, app=app, storage=storage))
        yield server, Processes(server=server.pid, worker=pid, **others)


@asynccontextmanager
async def by_hand(
    folder: Path, module: str, *arguments: str
) -> AsyncIterator[tuple[Client, Processes]]:
    """The floor: a connection, with a server and a worker that is the `main` of a module."""
    program = f"from {module} import main; main(*{arguments!r})"
    async with served(folder, program) as (server, processes):
        yield await connected(server.address), processes


async def serve(
    queue: str,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]] = (),
    **options: Any,
) -> None:
    """Be the worker of the floor."""
    restrictions = SandboxRestrictions.default.with_passthrough_all_modules()
    serving = Worker(
        await connected(os.environ["TEMPORAL_ADDRESS"]),
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        **options,
    )
    await serving.run()


class Api:
    """An HTTP API that is up, and the client of it."""

    def __init__(self, http: httpx.AsyncClient, pid: int) -> None:
        self.http = http
        self.pid = pid


@asynccontextmanager
async def api(server: Server, folder: Path, *, app: str) -> AsyncIterator[Api]:
    """An API in a process of its own, once it sees a worker, until the context ends."""
    (port,) = free_ports(devserver.HOST, {"api": 0}).values()
    command = [sys.executable, "-c", _API, str(port)]
    url = f"http://{devserver.HOST}:{port}"
    with _process(command, _environment(server, app), folder / "api.log") as pid:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            async with asyncio.timeout(_READY_SECONDS):
                while not await _is_ready(http):
                    await asyncio.sleep(_LOOK_EVERY)
            yield Api(http, pid)


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _environment(server: Server, app: str | None) -> Mapping[str, str]:
    here = [str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(here),
        "TEMPORAL_ADDRESS": server.address,
        **({} if app is None else {"ABEYANCE_APP": app}),
    }


@contextmanager
def _process(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    cwd: Path | None = None,
    owner: Owner | None = None,
) -> Iterator[int]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            leashed(os.getpid(), command, owner=owner),
            env=environment,
            cwd=cwd,
            stdin=STDIN,
            stdout=out,
            stderr=out,
        )
    try:
        yield process.pid
    except BaseException as error:
        said = log.read_text(encoding="utf-8", errors="replace").strip()
        if said:
            error.add_note(f"the end of {log.name}: {said[-2000:]}")
        raise
    finally:
        process.kill()
        process.wait()
