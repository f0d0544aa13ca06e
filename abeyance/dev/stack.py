"""The local stack: Temporal, a worker and the API as one group of processes, with or without PostgreSQL.

Settings, ports and graphs are checked before the first process starts. After that either all processes
run, or the group ends (see `supervisor`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx

from abeyance import names
from abeyance.dev import server as devserver
from abeyance.dev.parent_death import STDIN, leashed
from abeyance.dev.ports import claim_ports, closed_to_browsers, free_ports
from abeyance.dev.postgres import Cluster
from abeyance.dev.server import HOST, Ports
from abeyance.dev.signals import cancelled_by_signals
from abeyance.dev.supervisor import Program, Supervisor, together
from abeyance.errors import RecordsUnavailable, SettingsError, Unavailable

T = TypeVar("T")

TEMPORAL: Final = "Temporal server"
WORKER: Final = "worker"
API: Final = "API"
POSTGRES: Final = "PostgreSQL server"
"""Names of the programs of a stack."""

# Without -P the current directory would be first on the import path, and a folder of the user could
# shadow a dependency.
_PYTHON: Final = (sys.executable, "-P", "-m", "abeyance")
_WRONG_SETTINGS: Final = 2
"""The exit code of our commands for wrong settings."""
_START_SECONDS: Final = 60.0
_READY_SECONDS: Final = 180.0
_PATIENT_SECONDS: Final = 10.0
"""Seconds after which a start that takes long says what it waits for."""
# Their sum is below the ten seconds that a stop may take.
_PATIENCE: Final = 7.0
_PATIENCE_WITH_TEMPORAL: Final = 2.0
# Six seconds later a worker says which attempts its end interrupts: one that is killed before has made
# them.
_SHUTDOWN_GRACE: Final = "1s"
_AUTHENTICATION: Final = ("ABEYANCE_TOKENS_FILE", "ABEYANCE_JWT_ISSUER")
_STORAGE: Final = "ABEYANCE_STORAGE"
_DATABASE_URL: Final = "ABEYANCE_DATABASE_URL"
_RELOAD_SECONDS: Final = 0.3
"""Seconds between two looks at the files of an application."""
_SUFFIXES: Final = (".py", ".yaml", ".yml")
_IGNORED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Configuration of a stack.

    `app` names the graphs; None uses the environment. A port of 0 picks a free one; without a `ui_port`
    Temporal's UI is not served. `data_dir` gets Temporal's state, records, blobs and logs; with
    `in_memory` only the logs. Modules of `app` are imported from `directory`. `environment` is passed to
    the processes, except for the Temporal connection. With `reload` worker and API are restarted when a
    file of `directory` changes. With `postgres` the records are in a PostgreSQL of the stack's own, below
    `data_dir`.
    """

    app: str | None
    api_port: int
    temporal_port: int
    ui_port: int | None
    data_dir: Path
    in_memory: bool
    directory: Path
    environment: Mapping[str, str]
    reload: bool = False
    postgres: bool = False


class Stack:
    """A running stack."""

    def __init__(
        self,
        parts: Mapping[str, Supervisor],
        *,
        api_port: int,
        ui_port: int | None,
        database_url: str,
    ) -> None:
        self.api_url = f"http://{HOST}:{api_port}"
        self.inbox_url = f"{self.api_url}/inbox"
        self.ui_url = None if ui_port is None else f"http://{HOST}:{ui_port}"
        self.database_url = database_url
        self._parts = parts

    def pid(self, name: str) -> int | None:
        """Return the process id of one of its programs; None during a restart."""
        return self._parts[name].pid


async def with_stack(
    plan: Plan, work: Callable[[Stack], Awaitable[T]], *, announce: Callable[[str], None]
) -> T | None:
    """Start a stack, do some work, and stop the stack.

    Return the result of the work, or None if a signal came first. `announce` gets a message for every
    restart of a process, and for every visit that the worker reports as blocked. Raises SettingsError for
    an invalid plan, and Unavailable if the stack fails.
    """
    server = devserver.binary()
    with (
        claim_ports(plan.data_dir) as data_dir,
        _folder(plan, data_dir) as folder,
        _ports(plan) as (api_port, ports),
    ):
        cluster = _cluster(plan, folder)
        data = _data(plan, folder, cluster)
        api_url = f"http://{HOST}:{api_port}"
        database = None if plan.in_memory else data_dir / "temporal.db"
        # The codec is called from the UI's pages, which send no token.
        is_open = not any(map(plan.environment.get, _AUTHENTICATION))
        codec = f"{api_url}/codec" if is_open else None
        command = devserver.command(server, ports=ports, database=database, codec=codec)
        environment = {
            # The base of links in notifications.
            "ABEYANCE_URL": api_url,
            **(
                {"ABEYANCE_UI_ORIGIN": f"http://{HOST}:{ports.ui},http://localhost:{ports.ui}"}
                if ports.ui
                else {}
            ),
            **_environment(plan, ports.grpc),
            "ABEYANCE_SHUTDOWN_GRACE": _SHUTDOWN_GRACE,
            **data,
        }
        programs = _programs(plan, data_dir, command, environment, api_port)
        if cluster is not None:
            programs.append(_postgres(cluster, data_dir))
        parts = {program.name: Supervisor(program, announce) for program in programs}
        temporal, worker, api, *others = parts.values()
        stack = Stack(parts, api_port=api_port, ui_port=ports.ui, database_url=data[_DATABASE_URL])
        # Before the code is loaded: what is saved while the stack starts is a change too.
        files = _Files(plan.directory, ignored=data_dir) if plan.reload else None

        def kill() -> None:
            for part in parts.values():
                part.kill()

        with cancelled_by_signals(kill):
            try:
                await _check_app(plan, environment)
                if cluster is not None:
                    cluster.make()
                async with together(temporal.keep(), *(other.keep() for other in others)):
                    await asyncio.gather(
                        devserver.until_set_up(
                            ports.grpc, timeout=_START_SECONDS, database=database
                        ),
                        prepare_records(data[_DATABASE_URL]),
                    )
                    async with together(worker.keep(), api.keep()):
                        await _until_ready(api_url, logs=data_dir / "logs", announce=announce)
                        if files is None:
                            return await work(stack)
                        # A defect in it ends the stack: nobody would see that changes have no effect.
                        async with together(
                            _reload(plan, environment, files, [worker, api], announce)
                        ):
                            return await work(stack)
            except asyncio.CancelledError:
                return None


@contextlib.contextmanager
def _ports(plan: Plan) -> Iterator[tuple[int, Ports]]:
    """Reserve the ports of the API and of Temporal's server."""
    requested = {"--api-port": plan.api_port, "--temporal-port": plan.temporal_port}
    if plan.ui_port is not None:
        requested["--ui-port"] = plan.ui_port
    with closed_to_browsers(HOST, 2) as (http, metrics):
        free = free_ports(HOST, requested)
        ports = Ports(
            grpc=free["--temporal-port"], http=http, metrics=metrics, ui=free.get("--ui-port")
        )
        yield free["--api-port"], ports


async def _reload(
    plan: Plan,
    environment: Mapping[str, str],
    files: _Files,
    parts: Sequence[Supervisor],
    announce: Callable[[str], None],
) -> None:
    """Restart worker and API whenever files of the application change, if they can be loaded."""
    while True:
        first, *others = await files.changed()
        try:
            await _check_app(plan, environment)
        except SettingsError as error:
            announce(f"{error}; the former code keeps running until a file changes")
            continue
        more = f" and {len(others)} others" if others else ""
        announce(f"{first.name}{more} changed: the worker and the API are restarted")
        for part in parts:
            part.restart()


class _Files:
    """The Python and YAML files below a directory, as they were last seen.

    Skips hidden folders, virtual environments, and the folder `ignored`. They are polled, because a few
    hundred files take milliseconds, and no library is needed for them.
    """

    def __init__(self, directory: Path, *, ignored: Path) -> None:
        self._directory = directory
        self._ignored = ignored.resolve()
        self._seen = dict(self._versions())

    async def changed(self) -> list[Path]:
        """Wait until files have changed, and change no further; return them."""
        before = self._seen
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            after = await asyncio.to_thread(lambda: dict(self._versions()))
            is_settled, self._seen = after == self._seen, after
            if is_settled and after != before:
                return sorted({path for path, _ in before.items() ^ after.items()})

    def _versions(self) -> Iterator[tuple[Path, int]]:
        for folder, folders, files in os.walk(self._directory):
            here = Path(folder)
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".")
                and name not in _IGNORED
                and not (here / name / "pyvenv.cfg").exists()
                and (here / name).resolve() != self._ignored
            ]
            for path in (here / name for name in files if name.endswith(_SUFFIXES)):
                # An editor may have replaced it just now, or it is not ours to read.
                with contextlib.suppress(OSError):
                    yield path, path.stat().st_mtime_ns


@contextlib.contextmanager
def _folder(plan: Plan, data_dir: Path) -> Iterator[Path]:
    """Yield the folder of blobs and records, which live as long as Temporal's state."""
    if not plan.in_memory:
        yield data_dir
        return
    with tempfile.TemporaryDirectory(prefix="abeyance-", ignore_cleanup_errors=True) as lost:
        yield Path(lost)


def _cluster(plan: Plan, folder: Path) -> Cluster | None:
    if not plan.postgres:
        return None
    if plan.environment.get(_DATABASE_URL):
        raise SettingsError(
            f"--postgres starts a database, and {_DATABASE_URL} names another: unset it, or leave out "
            "--postgres"
        )
    return Cluster(folder / "postgres", *free_ports(HOST, {"--postgres": 0}).values())


def _data(plan: Plan, folder: Path, cluster: Cluster | None) -> Mapping[str, str]:
    """Return the settings with the places of blobs and records."""
    records = f"sqlite:///{folder / 'records.db'}" if cluster is None else cluster.url()
    defaults = {_STORAGE: str(folder / "blobs"), _DATABASE_URL: records}
    return {name: plan.environment.get(name) or default for name, default in defaults.items()}


async def prepare_records(url: str) -> None:
    """Create or upgrade the tables of a database whose server is being started.

    Raises RecordsUnavailable if the database does not answer within a minute.
    """
    from abeyance.records.database import Database  # noqa: PLC0415  (it takes long to import)

    database = Database(url)
    clock = asyncio.get_running_loop().time
    until = clock() + _START_SECONDS
    try:
        while True:
            try:
                await asyncio.to_thread(database.create_or_upgrade)
                return
            except RecordsUnavailable as error:
                if clock() > until:
                    raise database.explained(error) from error
            await asyncio.sleep(0.1)
    finally:
        database.close()


def _postgres(cluster: Cluster, data_dir: Path) -> Program:
    log = data_dir / "logs" / "postgresql.log"
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    return Program(
        name=POSTGRES,
        command=cluster.command(),
        directory=cluster.data,
        # The user who runs it must not get the keys in our environment.
        environment={"LC_ALL": "C"},
        log=log,
        patience=_PATIENCE_WITH_TEMPORAL,
        owner=cluster.owner,
        # It waits for nobody who is connected.
        stops_by=signal.SIGINT,
    )


def _programs(
    plan: Plan, data_dir: Path, server: list[str], environment: Mapping[str, str], api_port: int
) -> list[Program]:
    logs = data_dir / "logs"
    for database in data_dir.glob("temporal.db*"):
        database.chmod(0o600)
    app = [plan.app] if plan.app else []
    commands = {
        TEMPORAL: server,
        WORKER: [*_PYTHON, "worker", *app],
        API: [*_PYTHON, "api", *app, "--host", HOST, "--port", str(api_port)],
    }
    lost = "its state was in memory: all runs are lost"
    programs = [
        Program(
            name=name,
            command=command,
            directory=plan.directory,
            environment=environment,
            log=logs / f"{name.split()[0].lower()}.log",
            patience=_PATIENCE_WITH_TEMPORAL if name == TEMPORAL else _PATIENCE,
            wrong_settings=None if name == TEMPORAL else _WRONG_SETTINGS,
            awaits_change=plan.reload,
            announced=names.BLOCKED_LINE if name == WORKER else None,
            loses_its_state=lost if name == TEMPORAL and plan.in_memory else None,
            # Only the owner may read the database. Files that nodes write keep the usual umask.
            umask=0o077 if name == TEMPORAL else -1,
        )
        for name, command in commands.items()
    ]
    for program in programs:
        if program.log.exists():
            program.log.replace(program.log.with_suffix(".previous.log"))
    return programs


def _environment(plan: Plan, temporal_port: int) -> Mapping[str, str]:
    # Drop the configuration of another Temporal: with the keys of a cloud in its environment a worker
    # would speak TLS to the local server.
    variables = plan.environment.items()
    return {
        **{name: text for name, text in variables if not name.startswith("TEMPORAL_")},
        "TEMPORAL_ADDRESS": f"{HOST}:{temporal_port}",
        "TEMPORAL_NAMESPACE": devserver.NAMESPACE,
        "TEMPORAL_CONFIG_FILE": os.devnull,
    }


async def _check_app(plan: Plan, environment: Mapping[str, str]) -> None:
    # In a separate process, because importing a user's module has side effects.
    app = [plan.app] if plan.app else []
    process = await asyncio.create_subprocess_exec(
        *leashed(os.getpid(), [*_PYTHON, "worker", *app, "--check"]),
        cwd=plan.directory,
        env=environment,
        stdin=STDIN,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        output = await process.stderr.read() if process.stderr else b""
        code = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if code != 0:
        told = output.decode("utf-8", "replace").strip() or f"exit code {code}"
        _, mark, error = f"\n{told}".rpartition("\nabeyance: ")
        # Without the mark it is the traceback of a module: its last line says what it was.
        raise SettingsError(error if mark else told.splitlines()[-1])


async def _until_ready(url: str, *, logs: Path, announce: Callable[[str], None]) -> None:
    """Wait until the API is ready, and announce every ten seconds what it waits for.

    Raises Unavailable if that takes minutes.
    """
    clock = asyncio.get_running_loop().time
    began = told = clock()
    # Without trust_env: a proxy cannot reach the loopback of this machine.
    async with httpx.AsyncClient(trust_env=False) as http:
        while True:
            try:
                response = await http.get(f"{url}/readyz")
                if response.is_success:
                    return
                last = str(response.json().get("detail") or response.status_code)
            except httpx.ConnectError:
                # Nothing is wrong: its program takes so long to start.
                last = "the API is not up yet"
            except (httpx.TransportError, ValueError) as error:
                last = f"the API does not answer ({str(error) or type(error).__name__})"
            if (now := clock()) - began > _READY_SECONDS:
                raise Unavailable(
                    f"the stack is not ready after {_READY_SECONDS:g} s ({url}/readyz: {last}): see the "
                    f"logs in {logs}"
                )
            if now - told > _PATIENT_SECONDS:
                told = now
                announce(f"still starting: {last}")
            await asyncio.sleep(0.1)
