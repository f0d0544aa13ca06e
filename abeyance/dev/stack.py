"""The whole of Abeyance on one machine: Temporal, a worker and the API, as one group of processes.

What can be wrong with what was asked for is found before the first of them is started. After that the
group is whole, or it ends: see `supervise`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import httpx

from abeyance.dev import server as devserver
from abeyance.dev.parent_death import STDIN, leashed
from abeyance.dev.ports import claim_ports, closed_to_browsers, free_ports
from abeyance.dev.server import HOST, Ports
from abeyance.dev.signals import cancelled_by_signals
from abeyance.dev.supervisor import ProcessGroup, Program
from abeyance.errors import SettingsError, Unavailable
from abeyance.settings import Settings

T = TypeVar("T")

TEMPORAL: Final = "Temporal server"
WORKER: Final = "worker"
API: Final = "API"
"""What the programs of a stack are called."""

# Without -P the current directory would come first on the import path, and a folder of the user's
# that is called like one of our dependencies would be taken for it.
_PYTHON: Final = (sys.executable, "-P", "-m", "abeyance")
_WRONG_SETTINGS: Final = 2
"""The exit code by which our own commands say so."""
_START_SECONDS: Final = 60.0
# Together well under the ten seconds that a stop may take.
_PATIENCE: Final = 5.0
_PATIENCE_WITH_TEMPORAL: Final = 2.0
_SHUTDOWN_GRACE: Final = "4s"
_AUTHENTICATION: Final = ("ABEYANCE_TOKENS_FILE", "ABEYANCE_JWT_ISSUER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a stack is to be.

    `app` names the graphs; None leaves that to the environment. A port of 0 means any that is free;
    without a `ui_port` Temporal's UI is not served. `data_dir` gets Temporal's state, what is kept
    beside it, and the logs; with `in_memory` only the logs. `directory` is where the modules that `app`
    names are looked for. `environment` is what the processes are given, but for how Temporal is reached;
    `settings` are what they will read there, if it is to have a janitor where these ask for one.
    """

    app: str | None
    api_port: int
    temporal_port: int
    ui_port: int | None
    data_dir: Path
    in_memory: bool
    directory: Path
    environment: Mapping[str, str]
    settings: Settings | None = None


class Stack:
    """A stack that is up."""

    def __init__(self, group: ProcessGroup, *, api_port: int, ui_port: int | None) -> None:
        self.api_url = f"http://{HOST}:{api_port}"
        self.inbox_url = f"{self.api_url}/inbox"
        self.ui_url = None if ui_port is None else f"http://{HOST}:{ui_port}"
        self._group = group

    def pid(self, name: str) -> int | None:
        """The process that runs `TEMPORAL`, `WORKER` or `API` now; None between two of them."""
        return self._group.pid(name)

    def ui_page(self, run_id: str) -> str | None:
        """Where Temporal's UI shows a run, if it is served."""
        if self.ui_url is None:
            return None
        return f"{self.ui_url}/namespaces/{devserver.NAMESPACE}/workflows/{quote(run_id)}"


async def with_stack(
    plan: Plan, work: Callable[[Stack], Awaitable[T]], *, announce: Callable[[str], None]
) -> T | None:
    """Bring a stack up, do some work while it stands, and take it down.

    Returns what the work does, or None if a signal came first. `announce` is told of every process
    that ended and was started again. Raises SettingsError if what was asked for cannot be, and
    Unavailable if the stack cannot be kept up.
    """
    server = devserver.binary()
    with (
        claim_ports(plan.data_dir) as data_dir,
        _storage(plan, data_dir) as storage,
        _ports(plan) as (api_port, ui_port, ports),
    ):
        group = ProcessGroup(announce)
        stack = Stack(group, api_port=api_port, ui_port=ui_port)
        database = None if plan.in_memory else data_dir / "temporal.db"
        # Its pages have no token to show.
        is_open = not any(map(plan.environment.get, _AUTHENTICATION))
        codec = f"{stack.api_url}/codec" if is_open else None
        command = devserver.command(server, ports=ports, database=database, codec=codec)
        environment = {
            "ABEYANCE_SHUTDOWN_GRACE": _SHUTDOWN_GRACE,
            **(
                {"ABEYANCE_UI_ORIGIN": f"{stack.ui_url},http://localhost:{ui_port}"}
                if ui_port
                else {}
            ),
            **_environment(plan, ports.grpc),
            "ABEYANCE_STORAGE": storage,
        }

        async def whole() -> T:
            programs = _programs(plan, data_dir, command, environment, api_port)
            group.start(programs[TEMPORAL])
            await devserver.until_set_up(ports.grpc, timeout=_START_SECONDS, database=database)
            if plan.settings is not None:
                await devserver.schedule_rounds(ports.grpc, plan.settings)
            group.start(programs[WORKER])
            group.start(programs[API])
            await _until_ready(stack.api_url, logs=data_dir / "logs")
            async with _ui(plan, ui_port, ports.ui):
                return await work(stack)

        with cancelled_by_signals(group.kill):
            try:
                await _check_app(plan)
                return await group.while_whole(whole())
            except asyncio.CancelledError:
                return None
            finally:
                await group.stop(WORKER, API)
                await group.stop(TEMPORAL)


@contextlib.contextmanager
def _ports(plan: Plan) -> Iterator[tuple[int, int | None, Ports]]:
    """The ports of the API, of the UI that people open, and of Temporal's server, ours meanwhile."""
    wanted = {"--api-port": plan.api_port, "--temporal-port": plan.temporal_port}
    if plan.ui_port is not None:
        wanted["--ui-port"] = plan.ui_port
    # The UI's server too: what people open is ours, in front of it (`abeyance.api.temporal_ui`).
    with closed_to_browsers(HOST, 2 if plan.ui_port is None else 3) as (http, metrics, *ui):
        found = free_ports(HOST, wanted)
        ports = Ports(
            grpc=found["--temporal-port"], http=http, metrics=metrics, ui=ui[0] if ui else None
        )
        yield found["--api-port"], found.get("--ui-port"), ports


@contextlib.asynccontextmanager
async def _ui(plan: Plan, port: int | None, upstream: int | None) -> AsyncIterator[None]:
    if port is None:
        yield
        return
    from abeyance.api.temporal_ui import serve_ui  # noqa: PLC0415  (most stacks need no web server here)

    hosts = () if plan.settings is None else plan.settings.allowed_hosts
    async with serve_ui(f"http://{HOST}:{upstream}", host=HOST, port=port, hosts=hosts):
        yield


@contextlib.contextmanager
def _storage(plan: Plan, data_dir: Path) -> Iterator[str]:
    """Where the stack keeps what is large: for as long as Temporal keeps the rest."""
    if given := plan.environment.get("ABEYANCE_STORAGE"):
        yield given
    elif plan.in_memory:
        with tempfile.TemporaryDirectory(prefix="abeyance-blobs-") as folder:
            yield folder
    else:
        yield str(data_dir / "blobs")


def _programs(
    plan: Plan, data_dir: Path, server: list[str], environment: Mapping[str, str], api_port: int
) -> dict[str, Program]:
    logs = data_dir / "logs"
    for database in data_dir.glob("temporal.db*"):
        database.chmod(0o600)
    app = [plan.app] if plan.app else []
    commands = {
        TEMPORAL: server,
        WORKER: [*_PYTHON, "worker", *app],
        API: [*_PYTHON, "api", *app, "--host", HOST, "--port", str(api_port)],
    }
    lost = "its state was in memory only: every run is lost"
    programs = {
        name: Program(
            name=name,
            command=command,
            directory=plan.directory,
            environment=environment,
            log=logs / f"{name.split()[0].lower()}.log",
            patience=_PATIENCE_WITH_TEMPORAL if name == TEMPORAL else _PATIENCE,
            wrong_settings=None if name == TEMPORAL else _WRONG_SETTINGS,
            loses_its_state=lost if name == TEMPORAL and plan.in_memory else None,
            # Its database is for us alone. What the nodes of a worker write is their own affair.
            umask=0o077 if name == TEMPORAL else -1,
        )
        for name, command in commands.items()
    }
    for program in programs.values():
        if program.log.exists():
            program.log.replace(program.log.with_suffix(".previous.log"))
    return programs


def _environment(plan: Plan, temporal_port: int) -> Mapping[str, str]:
    # How another Temporal is reached is nothing to a worker that has its own: with the keys of a
    # cloud in its environment it would speak TLS to the server beside it.
    given = plan.environment.items()
    return {
        **{name: text for name, text in given if not name.startswith("TEMPORAL_")},
        "TEMPORAL_ADDRESS": f"{HOST}:{temporal_port}",
        "TEMPORAL_NAMESPACE": devserver.NAMESPACE,
        "TEMPORAL_CONFIG_FILE": os.devnull,
    }


async def _check_app(plan: Plan) -> None:
    # In a process of its own: what a user's module does when it is imported is not done to us.
    app = [plan.app] if plan.app else []
    process = await asyncio.create_subprocess_exec(
        *leashed(os.getpid(), [*_PYTHON, "worker", *app, "--check"]),
        cwd=plan.directory,
        env=plan.environment,
        stdin=STDIN,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        told = await process.stderr.read() if process.stderr else b""
        code = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if code != 0:
        lines = told.decode("utf-8", "replace").strip().splitlines() or [f"exit code {code}"]
        raise SettingsError(lines[-1].removeprefix("abeyance: "))


async def _until_ready(url: str, *, logs: Path) -> None:
    last = "no answer"
    try:
        # Without trust_env: a proxy of the environment knows nothing of this machine's loopback.
        async with asyncio.timeout(_START_SECONDS), httpx.AsyncClient(trust_env=False) as http:
            while True:
                try:
                    response = await http.get(f"{url}/readyz")
                    if response.is_success:
                        return
                    last = f"{response.status_code} {response.text[:500]}"
                except httpx.TransportError as error:
                    last = str(error) or type(error).__name__
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise Unavailable(
            f"the stack was not ready within {_START_SECONDS:g} s ({url}/readyz: {last}); its logs are "
            f"in {logs}"
        ) from error
