"""The command line: `abeyance`. Its exit codes are explained in `commands.exit`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from abeyance.cli.api_call import PANEL
from abeyance.cli.batch import bulk, clearing, conversing
from abeyance.cli.errors import ErrorText, ExitCode, leave, print_error
from abeyance.cli.graphs import charts
from abeyance.cli.lists import overview
from abeyance.cli.runs import calls
from abeyance.cli.steer import steering
from abeyance.cli.transcript import transcribing
from abeyance.cli.watch import watching
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.settings import Settings

_PANEL: Final = "Processes"
_STORAGE: Final = "Storage (ABEYANCE_STORAGE, TEMPORAL_ADDRESS)"

commands = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for of_runs in (calls, overview, watching, transcribing, steering, bulk):
    commands.add_typer(of_runs)
commands.add_typer(conversing, name="conversation", rich_help_panel=PANEL)
commands.add_typer(charts, name="graph", rich_help_panel="Graphs")
commands.add_typer(clearing, name="blobs", rich_help_panel=_STORAGE)

App = Annotated[
    str | None,
    typer.Argument(
        metavar="APP",
        help="The graphs, as package.module:attribute. Without it, ABEYANCE_APP.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Port = typer.Option(min=0, max=65_535, help="0 takes any port that is free.")
UI = Annotated[
    bool,
    typer.Option("--ui", help="Serve Temporal's UI too: no page of another site can call it."),
]
UIPort = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="Where --ui serves it; 0 takes any port that is free."),
]


@commands.callback(invoke_without_command=True)
def version(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None:
    """Durable human-in-the-loop runs of agent graphs, on Temporal."""
    if version:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as of

        try:
            ours = of("abeyance")
        except PackageNotFoundError:
            ours = "that is not installed"
        python = ".".join(map(str, sys.version_info[:3]))
        typer.echo(f"abeyance {ours}, temporalio {of('temporalio')}, Python {python}")
        raise typer.Exit


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def dev(
    app: App = None,
    *,
    api_port: Annotated[int, Port] = 8000,
    temporal_port: Annotated[int, Port] = 7233,
    ui: UI = False,
    ui_port: UIPort = 8233,
    data_dir: Annotated[
        Path, typer.Option(help="Where Temporal's state, large values and the logs are kept.")
    ] = Path(".abeyance"),
    in_memory: Annotated[
        bool, typer.Option("--in-memory", help="Keep no state: every run is lost at the end.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run Temporal, a worker and the API on this machine until Ctrl-C.

    Prints one line when all of it answers. The next start on the same data finds the same runs.
    """
    from abeyance.dev.stack import Plan, Stack, with_stack
    from abeyance.settings import load_settings

    plan = Plan(
        app=app,
        api_port=api_port,
        temporal_port=temporal_port,
        ui_port=ui_port if ui else None,
        data_dir=data_dir,
        in_memory=in_memory,
        directory=Path.cwd(),
        environment=os.environ,
        settings=load_settings(),
    )

    async def stay_up(stack: Stack) -> None:
        kept = None if in_memory else str(data_dir)
        if as_json:
            told = {"api_url": stack.api_url, "ui_url": stack.ui_url, "data_dir": kept}
            typer.echo(json.dumps(told))
        else:
            data = f"data in {kept}" if kept else "nothing is kept"
            shown = f"Temporal's UI {stack.ui_url}, " if stack.ui_url else ""
            typer.echo(
                f"abeyance is up: API {stack.api_url}, inbox {stack.inbox_url}, {shown}{data}"
            )
        await asyncio.get_running_loop().create_future()

    asyncio.run(with_stack(plan, stay_up, announce=print_error))


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def demo(
    *,
    answer: Annotated[
        Literal["approve", "reject"] | None,
        typer.Option(help="Answer for you, instead of asking in the terminal."),
    ] = None,
    api_port: Annotated[int, Port] = 0,
    temporal_port: Annotated[int, Port] = 0,
    ui: UI = False,
    ui_port: UIPort = 0,
) -> None:
    """Pay a folder of invoices, have an agent tidy another, and ask you first, on a stack of its own.

    The worker is killed while the first question is open, so that you see what becomes of it. The exit
    code is 0 only if both runs completed as they were answered.
    """
    from abeyance.cli.demo import run_demo

    ports = (api_port, temporal_port, ui_port if ui else None)
    done = asyncio.run(run_demo(answer, ports=ports))
    if done is None:
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.DONE if done else ExitCode.FAILED)


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def worker(
    app: App = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only see whether settings and graphs can be used.")
    ] = False,
) -> None:
    """Run a worker, against the Temporal that the environment names (TEMPORAL_ADDRESS, ...)."""
    from abeyance.app import load_graphs

    settings = _settings(app)
    load_graphs(settings.app)
    if check:
        return
    from abeyance.tracing import log_to_stderr
    from abeyance.worker import run as run_worker

    log_to_stderr()
    run_worker(settings)


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def api(
    app: App = None,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Port] = 8000,
) -> None:
    """Run the HTTP API, against the Temporal that the environment names (TEMPORAL_ADDRESS, ...)."""
    from abeyance.app import load_graphs

    settings = _settings(app)
    load_graphs(settings.app)
    from abeyance.api.app import serve
    from abeyance.tracing import log_to_stderr

    log_to_stderr()
    asyncio.run(serve(settings, host, port))


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def setup(
    *,
    retention: Annotated[
        str | None,
        typer.Option(
            help="Keep ended runs this long, as 30d or P30D. Without it, it is only reported.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prepare the Temporal namespace that the environment names. To do it again changes nothing.

    Registers the search attributes that workers write, tells how long ended runs are kept, and lets a
    janitor evict inactive runs where ABEYANCE_SESSION_INACTIVE_TIMEOUT is set.
    """
    from datetime import timedelta

    from abeyance.duration import seconds
    from abeyance.settings import load_settings
    from abeyance.temporal import connection, schedules
    from abeyance.temporal.connection import connect_temporal

    try:
        length = None if retention is None else timedelta(seconds=seconds(retention))
    except ValueError as error:
        raise SettingsError(f"--retention: {error}") from error

    settings = load_settings()
    inactive = settings.session_inactive_timeout

    async def prepare() -> None:
        temporal = await connect_temporal(settings=settings)
        added = await connection.register_search_attributes(temporal)
        if length is not None:
            await connection.set_retention(temporal, length)
        days = (await connection.retention(temporal)).total_seconds() / 86_400
        has_janitor = await schedules.schedule_janitor(temporal, settings.task_queue, inactive)
        name = temporal.namespace
        if as_json:
            told = {"namespace": name, "registered": list(added), "retention_days": days}
            if has_janitor:
                told["session_inactive_timeout"] = inactive
            typer.echo(json.dumps(told))
            return
        attributes = f"registered {', '.join(added)}" if added else "all are there"
        typer.echo(f"search attributes of {name!r}: {attributes}")
        typer.echo(f"retention of {name!r}: {days:g} days")
        if has_janitor:
            typer.echo(
                f"janitor of {settings.task_queue!r}: evicts what is inactive for {inactive:g} s"
            )

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
        return ExitCode.INTERRUPTED
    return ExitCode.DONE


def _settings(app: str | None) -> Settings:
    from abeyance.settings import load_settings

    settings = load_settings()
    return settings.model_copy(update={"app": app}) if app else settings
