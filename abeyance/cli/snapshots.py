"""Commands that take a run apart: migrate it to today's graph, retry it, fork it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    RunId,
    exchange,
    json_given,
    run_path,
    show_results,
    with_api,
)
from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.cli.formatting import Line, interrupt_lines, run_lines, show, show_table
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from abeyance.http import Connection

moving = typer.Typer()

_PAGE: Final = "500"
_OPEN: Final = "running,awaiting-input,paused"

Patch = Annotated[
    str | None, typer.Option(metavar="JSON|@FILE|-", help="Fields to set in the values of the run.")
]
Renamed = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="A node that was renamed, such as pay=payout. Repeat it for several.",
    ),
]


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def migrate(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The id of a run.")] = None,
    *,
    graph: Annotated[str | None, typer.Option(help="With --all: the graph of the runs.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Migrate all open runs of --graph.")] = False,
    renamed: Renamed = None,
    patch: Patch = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, and show what would happen.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move an open run, or all open runs of a graph, to the graph that the workers have today.

    The exit code is 1 if --dry-run finds an obstacle, and with --all if any run was not migrated.
    """
    body = {"dry_run": dry_run, **_changes(patch, renamed)}
    if all_ != (graph is not None) or all_ == (run_id is not None):
        raise SettingsError("name one RUN, or use both --graph and --all")
    if run_id is None:
        _migrate_all(str(graph), body, as_json=as_json)
        return
    path = f"{run_path(run_id)}/migrate"
    done = exchange(lambda api: api.post(path, body), _migration_lines, as_json=as_json)
    if done["obstacles"]:
        raise typer.Exit(ExitCode.FAILED)


def _migrate_all(graph: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    async def work(api: Connection) -> list[dict[str, Any]]:
        from abeyance.cli.watch import progress

        query = {"graph": graph, "status": _OPEN, "limit": _PAGE}
        results: list[dict[str, Any]] = []
        with progress("migrate", is_quiet=as_json) as done:
            while True:
                page = await api.get("/runs", **query)
                for view in page["items"]:
                    results.append(await _migrated(api, str(view["run_id"]), body))
                    done(1)
                if page["next_cursor"] is None:
                    return results
                query["cursor"] = page["next_cursor"]

    def show_all(results: Sequence[Mapping[str, Any]]) -> None:
        rows = [(each["run_id"], each["outcome"], each["detail"]) for each in results]
        if rows:
            show_table(("RUN", "OUTCOME", "DETAIL"), rows)
        else:
            show([Line("runs", f"no run of {graph!r} is open")])

    show_results(with_api(work), show_all, as_json=as_json)


async def _migrated(api: Connection, run_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Migrate one run of several, and return what came of it."""
    from abeyance.http.connection import ApiRefusal, ApiUnavailable

    try:
        done = await api.post(f"/runs/{run_id}/migrate", body)
    except (ApiRefusal, ApiUnavailable) as error:
        # The API answers: where a run has no worker that can read it, others may have one.
        code, detail = error.problem["code"], error.problem.get("detail", "")
        return {"run_id": run_id, "ok": False, "outcome": code, "detail": detail}
    versions = f"{done['before']} to {done['after']}"
    if done["obstacles"]:
        detail = "; ".join(_obstacle_text(each) for each in done["obstacles"])
        return {"run_id": run_id, "ok": False, "outcome": "cannot_migrate", "detail": detail}
    if done["dry_run"]:
        return {"run_id": run_id, "ok": True, "outcome": "can be migrated", "detail": versions}
    outcome = "unchanged" if done["before"] == done["after"] else "migrated"
    return {"run_id": run_id, "ok": True, "outcome": outcome, "detail": versions}


def _migration_lines(done: Mapping[str, Any]) -> Iterator[Line]:
    yield Line("run", done["run_id"])
    yield Line("versions", f"{done['before']} to {done['after']}")
    for before, after in done["nodes"].items():
        yield Line("node", before if before == after else f"{before} is {after}")
    for each in done["obstacles"]:
        yield Line("obstacle", f"{_obstacle_text(each)}; {each['remedy']}")
    if done["dry_run"]:
        yield Line("dry run", "nothing was changed")


def _obstacle_text(obstacle: Mapping[str, Any]) -> str:
    return f"{obstacle['what']} {obstacle['name']}: {obstacle['why']}"


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def retry(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The id of an ended run.")],
    *,
    patch: Patch = None,
    today: Annotated[
        bool, typer.Option("--today", help="Move it to the graph that the service has today.")
    ] = False,
    renamed: Renamed = None,
    as_json: AsJson = False,
) -> None:
    """Let a run that failed, was halted or was cancelled go on from where it ended.

    It keeps its id, and everything that has finished.
    """
    body = {"graph": "today" if today else "pinned", **_changes(patch, renamed)}
    path = f"{run_path(run_id)}/retry"
    exchange(lambda api: api.post(path, body), run_lines, as_json=as_json)


@moving.command(cls=ErrorText, rich_help_panel=PANEL)
def fork(
    run_id: RunId,
    *,
    back: Annotated[int, typer.Option(min=0, help="How many finished visits to go back.")] = 0,
    new_id: Annotated[str | None, typer.Option("--run-id", help="Id of the new run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a new run with the past of RUN, open or ended, and show what it asks first.

    RUN stays as it is. Gates whose effects lie ahead are asked again.
    """
    body: dict[str, Any] = {"back": back}
    if new_id is not None:
        body["run_id"] = new_id
    path = f"{run_path(run_id)}/fork"

    def lines(started: Any) -> list[Line]:
        return [Line("run", started["run_id"]), *interrupt_lines(started.get("interrupts", []))]

    exchange(lambda api: api.post(path, body), lines, as_json=as_json)


def _changes(patch: str | None, renamed: list[str] | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if patch is not None:
        changes["patch"] = json_given(patch, "--patch")
    if renamed:
        changes["map"] = dict(_pair(text) for text in renamed)
    return changes


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise SettingsError(f"--map: {text!r} is not a renamed node: write OLD=NEW")
    return old, new
