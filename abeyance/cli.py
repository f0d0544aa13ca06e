"""The command line: `abeyance`.

Exit codes: 0 done, 1 the API refused it (or a run did not complete), 2 wrong usage or configuration,
3 something that is needed cannot be reached or kept up, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from abeyance.calls import calls
from abeyance.errors import AbeyanceError, GraphError, Refusal, SettingsError, Unavailable
from abeyance.exit import leave

if TYPE_CHECKING:
    from abeyance.graph import Graph
    from abeyance.settings import Settings

commands = typer.Typer(
    help="Durable human-in-the-loop runs of agent graphs, on Temporal.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
commands.add_typer(calls)

_PANEL: Final = "Processes"
_INTERRUPTED: Final = 130

App = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The graphs, as package.module:attribute. Without it, ABEYANCE_APP.",
        show_default=False,
    ),
]
Port = typer.Option(min=0, max=65_535, help="0 takes any port that is free.")


@commands.command(rich_help_panel=_PANEL)
def dev(
    app: App = None,
    *,
    api_port: Annotated[int, Port] = 8000,
    temporal_port: Annotated[int, Port] = 7233,
    ui_port: Annotated[int, Port] = 8233,
    data_dir: Annotated[
        Path, typer.Option(help="Where Temporal's state and the logs are kept.")
    ] = Path(".abeyance"),
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Keep no state: every run is lost at the end.")
    ] = False,
) -> None:
    """Run Temporal, a worker and the API on this machine until Ctrl-C.

    Prints one line when all of it answers. The next start on the same data finds the same runs.
    """
    from abeyance.dev import Plan, Stack, with_stack

    plan = Plan(
        app=app,
        api_port=api_port,
        temporal_port=temporal_port,
        ui_port=ui_port,
        data_dir=data_dir,
        in_memory=in_memory,
        directory=Path.cwd(),
        environment=os.environ,
    )

    async def stay_up(stack: Stack) -> None:
        kept = "nothing is kept" if in_memory else f"data in {data_dir}"
        typer.echo(f"abeyance is up: API {stack.api_url}, Temporal's UI {stack.ui_url}, {kept}")
        await asyncio.get_running_loop().create_future()

    asyncio.run(with_stack(plan, stay_up, announce=_complain))


@commands.command(rich_help_panel=_PANEL)
def demo(
    *,
    answer: Annotated[
        Literal["approve", "reject"] | None,
        typer.Option(help="Answer for you, instead of asking in the terminal."),
    ] = None,
    api_port: Annotated[int, Port] = 0,
    temporal_port: Annotated[int, Port] = 0,
    ui_port: Annotated[int, Port] = 0,
) -> None:
    """Pay a folder of invoices, on a stack of its own, and ask you first.

    The worker is killed while the question is open, so that you see what becomes of it. The exit code
    is 0 only if the run completed as it was answered.
    """
    from abeyance.demo import run_demo

    ports = (api_port, temporal_port, ui_port)
    done = asyncio.run(run_demo(answer, ports=ports))
    if done is None:
        raise typer.Exit(_INTERRUPTED)
    raise typer.Exit(0 if done else 1)


@commands.command(rich_help_panel=_PANEL)
def worker(
    app: App = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only see whether settings and graphs can be used.")
    ] = False,
) -> None:
    """Run a worker, against the Temporal that the environment names (TEMPORAL_ADDRESS, ...)."""
    settings = _settings(app)
    _load_graphs(settings.app)
    if check:
        return
    from abeyance.signals import stopped_by_signals
    from abeyance.worker import serve

    async def work() -> None:
        with stopped_by_signals() as stop:
            await serve(settings, stop)

    _log()
    asyncio.run(work())


@commands.command(rich_help_panel=_PANEL)
def api(
    app: App = None,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Port] = 8000,
) -> None:
    """Run the HTTP API, against the Temporal that the environment names (TEMPORAL_ADDRESS, ...)."""
    settings = _settings(app)
    _load_graphs(settings.app)
    from abeyance.api.app import serve

    _log()
    asyncio.run(serve(settings, host, port))


@commands.command(rich_help_panel=_PANEL)
def setup(
    *,
    retention: Annotated[
        str | None,
        typer.Option(
            help="Keep ended runs this long, as 30d or P30D. Without it, it is only reported.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Prepare the Temporal namespace that the environment names. To do it again changes nothing.

    Registers the search attributes that workers write, and tells how long ended runs are kept.
    """
    from datetime import timedelta

    from abeyance import namespace
    from abeyance.connection import connect_temporal
    from abeyance.duration import seconds

    try:
        length = None if retention is None else timedelta(seconds=seconds(retention))
    except ValueError as error:
        raise SettingsError(f"--retention: {error}") from error

    async def prepare() -> None:
        temporal = await connect_temporal()
        added = await namespace.register_search_attributes(temporal)
        told = f"registered {', '.join(added)}" if added else "all are there"
        typer.echo(f"search attributes of {temporal.namespace!r}: {told}")
        if length is not None:
            await namespace.set_retention(temporal, length)
        kept = await namespace.retention(temporal)
        typer.echo(f"retention of {temporal.namespace!r}: {kept.total_seconds() / 86_400:g} days")

    asyncio.run(prepare())


def main() -> None:
    """Run the command that the arguments name, and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A prompt may hold letters that this terminal does not know: better a question mark than none.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    code = run()
    leave(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, those of the process unless given.

    Returns the exit code.
    """
    try:
        commands(arguments)
    except SystemExit as leaving:
        # What the command line itself finds wrong, and the codes that a command ends with.
        return leaving.code if isinstance(leaving.code, int) else 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except AbeyanceError as error:
        _complain(_told(error))
        return _exit_code(error)
    return 0


def _exit_code(error: AbeyanceError) -> int:
    match error:
        case SettingsError() | GraphError():
            return 2
        case Unavailable():
            return 3
        case _:
            return 1


def _told(error: AbeyanceError) -> str:
    match error:
        case GraphError():
            # All faults in one line: it may be the last line of a log that somebody passes on.
            return " ".join(str(error).split())
        case Refusal():
            return f"{error.code}: {error.message}"
        case _:
            return str(error)


def _complain(text: str) -> None:
    from abeyance.terminal import readable

    typer.echo(f"abeyance: {readable(text)}", err=True)


def _settings(app: str | None) -> Settings:
    from abeyance.settings import load_settings

    settings = load_settings()
    return settings.model_copy(update={"app": app}) if app else settings


def _load_graphs(app: str | None) -> Mapping[str, Graph]:
    from abeyance.app import load_graphs

    try:
        return load_graphs(app)
    except AbeyanceError:
        raise
    except Exception as error:
        # A module that is imported may raise anything. Whatever it is, its author has to see where.
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        raise SettingsError(
            f"{app!r} cannot be loaded: {type(error).__name__}: {' '.join(str(error).split())} "
            f"({last.filename}, line {last.lineno})"
        ) from error


def _log() -> None:
    import logging

    from abeyance.telemetry import quiet_the_sdk

    form = "%(asctime)s %(levelname)s %(name)s | %(message)s"
    logging.basicConfig(level=logging.INFO, format=form)
    quiet_the_sdk()
