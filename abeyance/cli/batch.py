"""Commands on many runs: batches, eviction, blobs, and the runs of a conversation."""

from __future__ import annotations

import asyncio
import json
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
    Now,
    PrintJson,
    Reason,
    Statuses,
    Timeout,
    exchange,
    json_given,
    show_results,
    with_api,
)
from abeyance.cli.errors import ErrorText
from abeyance.cli.formatting import Line, show
from abeyance.errors import Refusal, SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.client import Client
    from abeyance.http import Connection


bulk = typer.Typer()

_CHUNK: Final = 100
_LARGEST_EVICTION: Final = 1_000


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
        from abeyance.cli.watch import progress

        results: list[dict[str, Any]] = []
        remaining, cursor = ids, None
        with progress(operation, len(ids) or None, is_quiet=as_json) as done:
            while True:
                selection: dict[str, Any] = {"run_ids": remaining[:_CHUNK]}
                if filter_:
                    after: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
                    selection = {"filter": filter_, "limit": _CHUNK, **after}
                page = await api.post(path, {**selection, **arguments})
                results += page["results"]
                done(len(page["results"]))
                remaining, cursor = remaining[_CHUNK:], page["next_cursor"]
                if not remaining and cursor is None:
                    return results

    show_results(with_api(work), partial(_show, operation), as_json=as_json)


@bulk.command(cls=ErrorText, rich_help_panel=PANEL)
def evict(
    *,
    inactive_for: Annotated[
        str | None, typer.Option(help="Evict runs inactive for this long, such as 30m, 12h or 2d.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, help="Evict all but this many most recently active runs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Halt inactive runs, or the least recently active ones.

    Without an option the settings of the service apply. Requires the capability admin.
    """
    body = without_none(inactive_for=inactive_for, keep=keep, limit=_LARGEST_EVICTION)

    async def work(api: Connection) -> list[str]:
        from abeyance.cli.watch import progress

        runs: list[str] = []
        with progress("evict", is_quiet=as_json) as done:
            while True:
                page = await api.post("/admin/evict", body)
                runs += page["runs"]
                done(page["evicted"])
                if page["evicted"] < _LARGEST_EVICTION:
                    return runs

    runs = with_api(work)
    if as_json:
        typer.echo(json.dumps({"evicted": len(runs), "runs": runs}))
        return

    show([*(Line("evicted", run_id) for run_id in runs), Line("total", str(len(runs)))])


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


clearing = typer.Typer(
    help="Delete data stored outside Temporal. The environment configures where it is.",
    no_args_is_help=True,
)


@clearing.callback()
def _group() -> None:
    """Keep `delete` a subcommand: typer promotes the only command of a group."""


@clearing.command("delete", cls=ErrorText)
def delete_blobs(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="Ids of runs; - reads ids from stdin, one per line."),
    ],
    *,
    as_json: PrintJson = False,
) -> None:
    """Delete the blobs of ended runs: large values and transcripts.

    Afterwards the history of such a run in Temporal cannot be read completely. Open runs are refused.
    The exit code is 1 if any run failed.
    """
    from abeyance.client import Client
    from abeyance.settings import load_settings

    ids = _ids(runs, "RUN")
    settings = load_settings()

    async def work() -> list[dict[str, Any]]:
        client = await Client.connect(settings=settings)
        return [await _delete_blobs(client, run_id) for run_id in ids]

    show_results(asyncio.run(work()), _show_deleted, as_json=as_json)


async def _delete_blobs(client: Client, run_id: str) -> dict[str, Any]:
    try:
        blobs = await client.runs.delete_blobs(run_id)
    except Refusal as refusal:
        error = {"code": str(refusal.code), "detail": refusal.message}
        return {"run_id": run_id, "ok": False, **error}
    return {"run_id": run_id, "ok": True, "blobs": blobs}


def _show_deleted(results: Sequence[Mapping[str, Any]]) -> None:
    show(
        Line("deleted", f"{result['run_id']}  {result['blobs']} blobs")
        if result["ok"]
        else _failed(result)
        for result in results
    )


conversing = typer.Typer(help="Control the active runs of a conversation.", no_args_is_help=True)

ConversationId = Annotated[
    str, typer.Argument(metavar="CONVERSATION", help="The id of a conversation.")
]


@conversing.command(cls=ErrorText)
def interrupt(
    conversation: ConversationId,
    *,
    now: Now = False,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel all active runs."""
    body = {"reason": reason, "mode": "now" if now else "graceful"}
    _reach(conversation, "interrupt", body, as_json=as_json)


@conversing.command(cls=ErrorText)
def steer(
    conversation: ConversationId,
    text: Annotated[str, typer.Argument(help="The message for the agent.")],
    *,
    message_id: Annotated[
        str | None,
        typer.Option(help="Id of the message; sending the same id again changes nothing."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send a message to the one active run of an agent, which reads it at its next turn."""
    _reach(conversation, "steer", {"text": text, "message_id": message_id}, as_json=as_json)


@conversing.command(cls=ErrorText)
def pause(
    conversation: ConversationId,
    *,
    reason: Reason = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Pause all active runs: they start no new work until resumed."""
    _reach(conversation, "pause", {"reason": reason, "timeout": timeout}, as_json=as_json)


@conversing.command(cls=ErrorText)
def resume(conversation: ConversationId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Resume all paused runs."""
    _reach(conversation, "resume", {"reason": reason}, as_json=as_json)


def _reach(conversation: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    from abeyance.http.client import conversation_path

    path = f"{conversation_path(conversation)}/{operation}"

    def lines(response: Any) -> list[Line]:
        reached = [Line(operation, run_id) for run_id in response["runs"]]
        return reached or [Line(operation, "no run of the conversation is active")]

    exchange(lambda api: api.post(path, without_none(**body)), lines, as_json=as_json)
