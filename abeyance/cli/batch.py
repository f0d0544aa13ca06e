"""The command that does one thing to many runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
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
    show_results,
    with_api,
)
from abeyance.cli.errors import ErrorText
from abeyance.cli.formatting import Line, show
from abeyance.errors import SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection


bulk = typer.Typer()

_CHUNK: Final = 100


@bulk.command(cls=ErrorText, rich_help_panel=PANEL)
def batch(
    operation: Annotated[
        Literal["pause", "resume", "cancel", "steer", "respond"],
        typer.Argument(help="The operation to apply to each run."),
    ],
    *,
    run: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a run. Repeat it for several; - reads ids from stdin, one per line."
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
            help='Arguments of the operation, such as {"reason": "audit"} or {"response": true}.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Apply one operation to many runs, selected by ids or by a filter.

    The exit code is 1 if it failed for any of them.
    """
    filter_ = without_none(status=status, graph=graph, conversation_id=conversation, label=label)
    if bool(run) == bool(filter_):
        what = "both ids and a filter select runs" if run else "no runs are selected"
        raise SettingsError(
            f"{what}: use either --run, or --status, --graph, --conversation, --label"
        )
    if run and "-" in run and body == "-":
        raise SettingsError("--run - and --body - both read stdin: use a file for one of them")
    ids = _ids(run or [], "--run")
    arguments = {} if body is None else {"body": json_given(body, "--body")}
    path = f"/batch/{operation}"

    async def work(api: Connection) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        remaining, cursor = ids, None
        while True:
            selection: dict[str, Any] = {"run_ids": remaining[:_CHUNK]}
            if filter_:
                after: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
                selection = {"filter": filter_, "limit": _CHUNK, **after}
            page = await api.post(path, {**selection, **arguments})
            results += page["results"]
            remaining, cursor = remaining[_CHUNK:], page["next_cursor"]
            if not remaining and cursor is None:
                return results

    show_results(with_api(work), partial(_show, operation), as_json=as_json)


def _ids(arguments: Sequence[str], name: str) -> list[str]:
    """Return the ids, with those on stdin in place of `-`. Raises SettingsError, naming the option."""
    if "" in arguments:
        raise SettingsError(f"{name}: a run id is empty")
    lines = [line.strip() for line in sys.stdin] if "-" in arguments else []
    ids = [run_id for run_id in dict.fromkeys([*arguments, *lines]) if run_id not in ("", "-")]
    if arguments and not ids:
        raise SettingsError(f"{name} -: stdin holds no run id: write one per line")
    return ids


def _show(operation: str, results: Sequence[Mapping[str, Any]]) -> None:
    failed = [_failed(result) for result in results if not result["ok"]]
    done = Line(operation, f"applied to {len(results) - len(failed)} of {len(results)} runs")
    show([done, *failed])


def _failed(result: Mapping[str, Any]) -> Line:
    return Line("failed", f"{result['run_id']}  {result['code']}: {result['detail']}")
