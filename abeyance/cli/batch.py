"""The commands that do something to many runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Conversation,
    Graph,
    Labels,
    Statuses,
    json_given,
    with_api,
)
from abeyance.cli.errors import ErrorText, ExitCode
from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.http import Connection

bulk = typer.Typer()

_CHUNK: Final = 100
_LARGEST_EVICTION: Final = 1_000


@bulk.command(cls=ErrorText, rich_help_panel=PANEL)
def batch(
    operation: Annotated[
        Literal["pause", "resume", "cancel", "steer", "respond"],
        typer.Argument(help="What to do to each.", show_default=False),
    ],
    *,
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="To this run; may be repeated. - reads ids from stdin, one a line.",
            show_default=False,
        ),
    ] = None,
    status: Statuses = None,
    graph: Graph = None,
    conversation: Conversation = None,
    label: Labels = None,
    body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help='What the operation takes, as {"reason": "audit"} or {"response": true}.',
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do the same to many runs, by their ids or by a filter.

    The exit code is 1 if it could not be done to some of them.
    """
    asked = {"status": status, "graph": graph, "conversation_id": conversation, "label": label}
    filter_ = {name: value for name, value in asked.items() if value}
    if bool(run) == bool(filter_):
        raise SettingsError(
            "say which runs are meant: either --run, or --status, --graph, --conversation, --label"
        )
    if run and "-" in run and body == "-":
        raise SettingsError("--run - and --body - would both read stdin: give one as a file")
    ids = _ids(run or [])
    given = {} if body is None else {"body": json_given(body, "--body")}
    path = f"/batch/{operation}"

    async def work(api: Connection) -> list[dict[str, Any]]:
        from abeyance.cli.watch import progress

        results: list[dict[str, Any]] = []
        left, cursor = ids, None
        with progress(operation, len(ids) or None, is_quiet=as_json) as done:
            while True:
                selection: dict[str, Any] = {"run_ids": left[:_CHUNK]}
                if filter_:
                    after: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
                    selection = {"filter": filter_, "limit": _CHUNK, **after}
                told = await api.post(path, {**selection, **given})
                results += told["results"]
                done(len(told["results"]))
                left, cursor = left[_CHUNK:], told["next_cursor"]
                if not left and cursor is None:
                    return results

    results = with_api(work)
    failed = [result for result in results if not result["ok"]]
    if as_json:
        told = {"results": results, "succeeded": len(results) - len(failed), "failed": len(failed)}
        typer.echo(json.dumps(told))
    else:
        _show(operation, len(results), failed)
    if failed:
        raise typer.Exit(ExitCode.FAILED)


@bulk.command(cls=ErrorText, rich_help_panel=PANEL)
def evict(
    *,
    inactive_for: Annotated[
        str | None,
        typer.Option(help="Runs inactive for so long, as 30m, 12h or 2d.", show_default=False),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(min=0, help="All but so many, the most recently active.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Halt runs that nobody cares for any more, or that are too many.

    Without an option, as the service is set. Takes the capability admin.
    """
    asked = {"inactive_for": inactive_for, "keep": keep, "limit": _LARGEST_EVICTION}
    body = {name: value for name, value in asked.items() if value is not None}

    async def work(api: Connection) -> list[str]:
        from abeyance.cli.watch import progress

        runs: list[str] = []
        with progress("evict", is_quiet=as_json) as done:
            while True:
                told = await api.post("/admin/evict", body)
                runs += told["runs"]
                done(told["evicted"])
                if told["evicted"] < _LARGEST_EVICTION:
                    return runs

    runs = with_api(work)
    if as_json:
        typer.echo(json.dumps({"evicted": len(runs), "runs": runs}))
        return
    from abeyance.cli.formatting import Line, show

    show([*(Line("evicted", run_id) for run_id in runs), Line("in all", str(len(runs)))])


def _ids(given: list[str]) -> list[str]:
    read = [line.strip() for line in sys.stdin] if "-" in given else []
    ids = [run_id for run_id in dict.fromkeys([*given, *read]) if run_id not in ("", "-")]
    if given and not ids:
        raise SettingsError("--run -: there is no id on stdin")
    return ids


def _show(operation: str, total: int, failed: list[dict[str, Any]]) -> None:
    from abeyance.cli.formatting import Line, show

    lines = [Line(operation, f"done to {total - len(failed)} of {total} runs")]
    lines += [
        Line("not done", f"{result['run_id']}  {result['code']}: {result['detail']}")
        for result in failed
    ]
    show(lines)
