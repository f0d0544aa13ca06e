"""The command line: `abeyance`. See `abeyance.cli.errors` for its exit codes."""

from __future__ import annotations

import asyncio
import codecs
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.exceptions import TyperException

from abeyance.cli.answers import answering, people
from abeyance.cli.api_call import PrintJson, call_as
from abeyance.cli.approvals import reporting
from abeyance.cli.audit import auditing
from abeyance.cli.control import controlling, moving, steering
from abeyance.cli.doctor import examination, unshared_records
from abeyance.cli.errors import (
    ErrorText,
    ExitCode,
    code_of_output,
    leave,
    print_error,
    usage_text,
)
from abeyance.cli.formatting import readable
from abeyance.cli.graphs import charts
from abeyance.cli.runs import calls, overview
from abeyance.cli.slack import slack_commands
from abeyance.cli.tokens import tokens
from abeyance.cli.transcript import transcribing
from abeyance.cli.watch import watching
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.authoring.graph import Graph
    from abeyance.check import RunsReport
    from abeyance.settings import Settings

_PANEL: Final = "Processes"
_TOLD_EVERY: Final = 100

commands = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for of_runs in (
    calls,
    answering,
    controlling,
    people,
    moving,
    overview,
    reporting,
    watching,
    transcribing,
    steering,
    auditing,
    examination,
    slack_commands,
):
    commands.add_typer(of_runs)
commands.add_typer(charts, name="graph", rich_help_panel="Graphs")
commands.add_typer(tokens, name="token", rich_help_panel="Operation")

App = Annotated[
    str | None,
    typer.Argument(
        metavar="APP", help="The graphs, as package.module:attribute. Default: ABEYANCE_APP."
    ),
]
Port = typer.Option(min=0, max=65_535, help="Port to listen on; 0 picks a free one.")
UI = Annotated[
    bool,
    typer.Option("--ui", help="Also serve Temporal's UI."),
]
UIPort = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port of Temporal's UI; 0 picks a free one.")
]


@commands.callback(invoke_without_command=True)
def version(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Print the versions and exit.")
    ] = False,
    subject: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="The caller, for an API without authentication such as that of `abeyance dev`.",
        ),
    ] = None,
) -> None:
    """Durable human-in-the-loop runs of agent graphs, on Temporal."""
    call_as(subject)
    if version:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as of

        try:
            ours = of("abeyance")
        except PackageNotFoundError:
            ours = "(not installed)"
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
        Path, typer.Option(help="Directory for Temporal's state, large values and logs.")
    ] = Path(".abeyance"),
    in_memory: Annotated[
        bool,
        typer.Option("--in-memory", help="Keep state in memory only: all runs are lost on exit."),
    ] = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            help="Restart worker and API when a .py or .yaml file below this directory changes.",
        ),
    ] = False,
    postgres: Annotated[
        bool,
        typer.Option("--postgres", help="Keep the records in PostgreSQL, which is started too."),
    ] = False,
    as_json: PrintJson = False,
) -> None:
    """Run Temporal, a worker and the API on this machine until Ctrl-C.

    Prints one line when everything is ready. Starting again with the same data finds the same runs.
    """
    from abeyance.dev.stack import Plan, Stack, with_stack
    from abeyance.settings import unknown_settings

    # The messages of its processes about them go to their logs.
    for warning in unknown_settings(os.environ):
        print_error(warning)
    plan = Plan(
        app=app,
        api_port=api_port,
        temporal_port=temporal_port,
        ui_port=ui_port if ui else None,
        data_dir=data_dir,
        in_memory=in_memory,
        directory=Path.cwd(),
        environment=os.environ,
        reload=reload,
        postgres=postgres,
    )

    async def stay_up(stack: Stack) -> None:
        folder = None if in_memory else str(data_dir)
        if as_json:
            addresses = {"api_url": stack.api_url, "ui_url": stack.ui_url, "data_dir": folder}
            typer.echo(json.dumps({**addresses, "database_url": stack.database_url}))
        else:
            data = f"data in {folder}" if folder else "no data is stored"
            shown = f"Temporal's UI {stack.ui_url}, " if stack.ui_url else ""
            records = f"records in {stack.database_url}, " if postgres else ""
            typer.echo(
                f"abeyance is up: API {stack.api_url}, inbox {stack.inbox_url}, {shown}{records}{data}"
            )
        await asyncio.get_running_loop().create_future()

    asyncio.run(with_stack(plan, stay_up, announce=print_error))


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def worker(
    app: App = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Check settings, graphs and what they need, then exit.")
    ] = False,
    against_runs: Annotated[
        bool,
        typer.Option(
            "--against-runs",
            help="With --check: also list the open runs that this code would block.",
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="With --against-runs: look at every run, not at one of each graph."
        ),
    ] = False,
) -> None:
    """Run a worker. The environment configures the Temporal connection (TEMPORAL_ADDRESS, ...).

    With --check --against-runs the exit code is 1 if this code would block an open run, or if runs would
    wait for something else: missing search attributes, a build that no worker has.
    """
    from abeyance.app import load_graphs

    if (against_runs and not check) or (every and not against_runs):
        raise SettingsError(
            "--against-runs needs --check, and --all needs both: write --check --against-runs --all"
        )
    settings = _settings(app)
    graphs = load_graphs(settings.app)
    if check:
        raise typer.Exit(_check_worker(settings, graphs, against_runs=against_runs, every=every))
    _check_records(settings)
    from abeyance.tracing import log_to_stderr
    from abeyance.worker import run as run_worker

    log_to_stderr()
    run_worker(settings)


def _check_worker(
    settings: Settings, graphs: Mapping[str, Graph], *, against_runs: bool, every: bool
) -> ExitCode:
    """Check this process, and the open runs if asked for, print the result, and return the exit code."""
    from abeyance.check import check_process, check_runs

    process = asyncio.run(check_process(settings, graphs))
    for line in process.checked:
        typer.echo(readable(line))
    for warning in process.warnings:
        print_error(f"warning: {warning}")
    if not against_runs:
        return ExitCode.DONE
    from abeyance.temporal.connection import connect_temporal

    async def check() -> RunsReport:
        temporal = await connect_temporal(settings=settings)
        return await check_runs(temporal, settings.task_queue, graphs, every=every)

    report = asyncio.run(check())
    _print_report(report)
    for fault in report.faults:
        print_error(fault)
    return ExitCode.FAILED if report.blocks or report.faults else ExitCode.DONE


def _print_report(report: RunsReport) -> None:
    blocked = {run_id for run_ids in report.blocks.values() for run_id in run_ids}
    typer.echo(
        f"open runs: {report.open}; looked at closely: {report.replayed}; would block: {len(blocked)}"
    )
    for block, run_ids in sorted(
        report.blocks.items(), key=lambda item: (item[0].node, item[0].code)
    ):
        typer.echo(readable(f"{block.node}: {block.code}: {block.text}"))
        typer.echo(readable(f"  remedy: {block.remedy}"))
        for run_id in sorted(run_ids):
            typer.echo(f"  {run_id}")


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def api(
    app: App = None,
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Port] = 8000,
) -> None:
    """Run the HTTP API. The environment configures the Temporal connection (TEMPORAL_ADDRESS, ...)."""
    from abeyance.app import load_graphs

    settings = _settings(app)
    load_graphs(settings.app)
    _check_records(settings)
    from abeyance.api.app import serve
    from abeyance.temporal.workers import event_loop, use_process_runtime
    from abeyance.tracing import log_to_stderr

    log_to_stderr()
    use_process_runtime()
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(serve(settings, host, port))


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def reindex(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Ids of runs. Default: all that Temporal has.")
    ] = None,
    *,
    adopt: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE_ID",
            help="Id of a namespace that Temporal has lost: its records become those of this one.",
        ),
    ] = None,
    restored: Annotated[
        bool,
        typer.Option(
            "--restored",
            help="Temporal is from a backup: what was recorded since then is taken back.",
        ),
    ] = False,
) -> None:
    """Make the records of runs anew from their histories in Temporal.

    For a database that was lost, or restored from a backup. Run `abeyance setup` before, if it is empty.
    Workers may run meanwhile: only what is missing is added. What Temporal has deleted, delegations,
    and that a grant was revoked, cannot be made anew. Exits with 1 if a history could not be
    replayed, or Temporal lists no such run.

    Without ids, open runs that Temporal does not have any more end as `terminated`. With --adopt or
    --restored, run it before workers and APIs start.
    """
    from abeyance.client import Client
    from abeyance.reindex import Reindexed
    from abeyance.reindex import reindex as made_anew
    from abeyance.settings import load_settings
    from abeyance.temporal.connection import has_namespace

    settings = load_settings()
    _check_records(settings, are_needed=True)

    def tell(done: int, all_: int) -> None:
        if done % _TOLD_EVERY == 0 or done == all_:
            typer.echo(f"{done:,} of {all_:,} runs", err=True)

    async def make() -> Reindexed:
        client = await Client.connect(settings=settings)
        if adopt is not None:
            if await has_namespace(client.temporal, adopt):
                raise SettingsError(
                    f"--adopt: Temporal has the namespace {adopt!r}: it is not lost"
                )
            await client.records.adopt(adopt)
        return await made_anew(
            client.temporal, client, runs or (), is_restored=restored, progress=tell
        )

    found = asyncio.run(make())
    for run_id, why in sorted(found.failures.items()):
        print_error(f"the run {run_id!r} has no complete records: {why}")
    lost = f"; lost: {found.lost}" if found.lost else ""
    typer.echo(f"runs: {found.runs}; not replayed: {len(found.failures)}{lost}")
    if found.failures:
        raise typer.Exit(ExitCode.FAILED)


@commands.command(cls=ErrorText, rich_help_panel=_PANEL)
def setup(
    *,
    retention: Annotated[
        str | None,
        typer.Option(
            help="How long to keep ended runs, such as 30d or P30D. Default: leave unchanged."
        ),
    ] = None,
    as_json: PrintJson = False,
) -> None:
    """Prepare the Temporal namespace and the database, which have to exist; again, it changes nothing.

    Registers the search attributes, creates the tables of ABEYANCE_DATABASE_URL or upgrades them to this
    release, and prints the retention of ended runs.
    """
    from datetime import timedelta

    from abeyance.duration import in_days, seconds
    from abeyance.errors import RecordsUnavailable
    from abeyance.records.database import Database
    from abeyance.settings import load_settings
    from abeyance.temporal import connection
    from abeyance.temporal.connection import connect_temporal

    try:
        length = None if retention is None else timedelta(seconds=seconds(retention))
    except ValueError as error:
        raise SettingsError(f"--retention: {error}") from error

    settings = load_settings()
    database = Database(settings.database_url)

    async def prepare() -> None:
        temporal = await connect_temporal(settings=settings)
        added = await connection.register_search_attributes(temporal)
        try:
            prepared = await asyncio.to_thread(database.create_or_upgrade)
        except RecordsUnavailable as error:
            raise database.explained(error) from error
        if length is not None:
            await connection.set_retention(temporal, length)
        kept = await connection.retention(temporal)
        name = temporal.namespace
        if as_json:
            report = {
                "namespace": name,
                "registered": list(added),
                "records": prepared,
                "retention_days": kept / timedelta(days=1),
            }
            typer.echo(json.dumps(report))
            return
        attributes = f"registered {', '.join(added)}" if added else "already registered"
        typer.echo(f"search attributes of {name!r}: {attributes}")
        typer.echo(f"records in {database.place}: {prepared}")
        typer.echo(f"retention of {name!r}: {in_days(kept)}")

    asyncio.run(prepare())


def _check_records(settings: Settings, *, are_needed: bool = False) -> None:
    """Raise SettingsError if this release cannot use the database as it is; warn if others may not.

    If it is away, warn of that too, or raise RecordsUnavailable.
    """
    from abeyance.errors import RecordsUnavailable
    from abeyance.records.database import Database

    if (warning := unshared_records(settings)) is not None:
        print_error(f"warning: {warning}")
    database = Database(settings.database_url)
    try:
        database.check()
    except RecordsUnavailable as error:
        if are_needed:
            raise database.explained(error) from error
        # Runs go on without it, and what they record is written later.
        print_error(f"warning: {database.explained(error)}")
    finally:
        database.close()


def main() -> None:
    """Run the command line and exit."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Python has no stream for one that is closed (`>&-`).
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    # A prompt may hold characters that the terminal cannot encode: print them as JSON escapes them.
    codecs.register_error("json", _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="json")
    code = run()
    leave(code)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101  (nothing is decoded)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        code = commands(arguments, "abeyance", standalone_mode=False) or ExitCode.DONE
        sys.stdout.flush()
    except TyperException as error:
        # This is about the options before a command, or its name. Typer has no public name for `help is
        # shown`.
        if type(error).__name__ != "NoArgsIsHelpError":
            print_error(usage_text(error))
        elif text := error.format_message():
            typer.echo(text, err=True)
        return ExitCode.USAGE
    except SystemExit as leaving:
        if isinstance(leaving.__context__, OSError):
            # Typer leaves with 1, which is the code of a run that failed.
            return code_of_output(leaving.__context__)
        return leaving.code if isinstance(leaving.code, int) else ExitCode.DONE
    except OSError as error:
        return code_of_output(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return code


def _settings(app: str | None) -> Settings:
    from abeyance.settings import load_settings

    settings = load_settings()
    return settings.model_copy(update={"app": app}) if app else settings
