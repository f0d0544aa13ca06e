"""Commands that start a run, show it, and list runs and their open interrupts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Graph,
    RunId,
    distinct,
    exchange,
    json_given,
    moment_given,
    run_path,
    with_api,
)
from abeyance.cli.errors import ErrorText, ExitCode, code_of_run, print_error
from abeyance.cli.formatting import (
    Line,
    interrupt_lines,
    one_line,
    run_lines,
    short_time,
    show_table,
    status_of,
)
from abeyance.cli.formatting import (
    show as show_lines,
)
from abeyance.core.text import truncate
from abeyance.errors import Refusal, SettingsError, Unavailable
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection


calls = typer.Typer()

_POLL: Final = "PT30S"


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def run(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="The name of a graph.")],
    *,
    input_: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="JSON|@FILE|-",
            help="Input of the run: JSON, a file, or - for stdin.",
        ),
    ] = "{}",
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run; starting the same run again changes nothing.")
    ] = None,
    on_behalf_of: Annotated[
        str | None,
        typer.Option(help="Who starts it, if you only send the start; requires runs:start-for."),
    ] = None,
    conversation_id: Annotated[
        str | None, typer.Option("--conversation", help="Conversation of the run.")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME=VALUE", help="Label of the run. Repeat it for several."
        ),
    ] = None,
    interrupt_before: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Ask before this node. Repeat it for several."),
    ] = None,
    interrupt_after: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Ask after this node. Repeat it for several."),
    ] = None,
    on_error: Annotated[
        str | None, typer.Option(help="What a failing node does: fail or interrupt.")
    ] = None,
    allow_concurrent: Annotated[
        bool,
        typer.Option(
            "--allow-concurrent", help="Start even if the conversation has an active run."
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until the run ends, needs an answer, or is blocked."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run of GRAPH.

    With --wait the exit code is 1 if the run ends with another status than completed, and 5 if it is
    blocked: it continues by itself once that is fixed.
    """
    body: dict[str, Any] = {"graph": graph, "input": json_given(input_, "--input")}
    if run_id is not None:
        body["run_id"] = run_id
    if conversation_id is not None:
        body["conversation_id"] = conversation_id
    if labels:
        body["labels"] = distinct([_label(text) for text in labels], "--label")

    body |= without_none(
        interrupt_before=interrupt_before,
        interrupt_after=interrupt_after,
        on_error=on_error,
        on_behalf_of=on_behalf_of,
        allow_concurrent=allow_concurrent or None,
    )

    async def start(api: Connection) -> Any:
        view = await api.post("/runs", body)
        started = view["run_id"]
        goes_on = f"the run {started} was started and continues: `abeyance watch {started}`"
        try:
            while wait and _is_busy(view):
                path = f"/runs/{started}"
                view = await api.get(path, wait=_POLL, until="awaiting-input,blocked")
        # Repeating the command without an id would start another run.
        except Unavailable as error:
            raise Unavailable(f"{error}; {goes_on}") from error
        except asyncio.CancelledError:
            # Ctrl-C.
            print_error(goes_on)
            raise
        return view

    view = exchange(start, run_lines, as_json=as_json)
    if wait and view.get("ended_at") is None and view.get("blocked"):
        raise typer.Exit(ExitCode.BLOCKED)
    if wait and view["status"] != "awaiting-input":
        raise typer.Exit(code_of_run(view["status"]))


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the status of a run, its open questions, and how to answer them."""
    path = run_path(run_id)
    exchange(lambda api: api.get(path), run_lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def interrupts(
    run_id: RunId,
    *,
    status: Annotated[
        str, typer.Option(help="open, held, answered, expired, cancelled, superseded or all.")
    ] = "open",
    as_json: AsJson = False,
) -> None:
    """List the interrupts of a run."""
    path = f"{run_path(run_id)}/interrupts"

    def lines(listed: Any) -> list[Line]:
        return interrupt_lines(listed["items"]) or [Line("interrupts", f"no {status} interrupts")]

    exchange(lambda api: api.get(path, status=status), lines, as_json=as_json)


def _is_busy(view: Mapping[str, Any]) -> bool:
    return (
        view.get("ended_at") is None
        and view["status"] != "awaiting-input"
        and not view.get("blocked")
    )


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"--label: {text!r} is not a label: write name=value")
    return name, value


overview = typer.Typer()

_PAGE: Final = 50
_PROMPT: Final = 60

Conversation = Annotated[
    str | None, typer.Option("--conversation", help="Only runs of this conversation.")
]
Statuses = Annotated[
    list[str] | None,
    typer.Option(help="Only runs with this status. Repeat it, or separate several by commas."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="Only runs with this label. Repeat it to require several."
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of items.")]
CursorOption = Annotated[str | None, typer.Option(help="Continue a list from its next_cursor.")]
Search = Annotated[
    str | None,
    typer.Option("--search", help="Only those with these words in prompts, ids, names or labels."),
]
StartedBy = Annotated[str | None, typer.Option(help="Only runs that this subject has started.")]
All = Annotated[bool, typer.Option("--all", help="List all of them.")]


@overview.command("list", cls=ErrorText, rich_help_panel=PANEL)
def list_runs(
    *,
    status: Statuses = None,
    graph: Graph = None,
    conversation_id: Conversation = None,
    label: Labels = None,
    blocked: Annotated[
        bool, typer.Option("--blocked", help="Only runs with a blocked visit.")
    ] = False,
    q: Search = None,
    started_by: StartedBy = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only runs that started then or later."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only runs that started before.")
    ] = None,
    order: Annotated[
        str, typer.Option(help="age, or activity: the longest inactive; - reverses the order.")
    ] = "-age",
    limit: Limit = _PAGE,
    cursor: CursorOption = None,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    query = {
        "status": status,
        "graph": graph,
        "conversation_id": conversation_id,
        "label": label,
        "blocked": "true" if blocked else None,
        "q": q,
        "started_by": started_by,
        "from": since,
        "to": until,
        "order": order,
    }
    page = _read_items("/runs", query, cursor, None if all_ else limit)
    if as_json:
        typer.echo(json.dumps(page))
        return
    rows = [_run_row(view) for view in page["items"]]
    _show(("RUN", "STATUS", "GRAPH", "STARTED", "OPEN", "LABELS"), rows, "runs", page)


@overview.command(cls=ErrorText, rich_help_panel=PANEL)
def inbox(
    *,
    capability: Annotated[
        list[str] | None,
        typer.Option(
            help="Only interrupts that require this capability, or with 'refunds:*' one that begins so. "
            "Repeat it for several."
        ),
    ] = None,
    graph: Graph = None,
    conversation_id: Conversation = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION",
            help="Only deadlines before this time (2026-03-05T00:00Z), or within this time (2d).",
        ),
    ] = None,
    assignee: Annotated[
        str | None, typer.Option(help="Only those for this subject, or group:finance.")
    ] = None,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only those for you or your groups, or claimed by you.")
    ] = False,
    priority: Annotated[
        str | None, typer.Option(help="Only this priority: high, normal or low.")
    ] = None,
    min_risk: Annotated[int | None, typer.Option(help="Only with at least this risk.")] = None,
    order: Annotated[
        str, typer.Option(help="deadline, priority, risk or age; - before it reverses the order.")
    ] = "deadline",
    q: Search = None,
    started_by: StartedBy = None,
    limit: Limit = _PAGE,
    cursor: CursorOption = None,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List the open interrupts of all runs, nearest deadline first.

    `abeyance show RUN` prints the full question and how to answer it.
    """
    query = {
        "capability": capability,
        "graph": graph,
        "conversation_id": conversation_id,
        "before": before and moment_given(before),
        "assignee": assignee,
        "mine": "true" if mine else None,
        "priority": priority,
        "min_risk": None if min_risk is None else str(min_risk),
        "order": order,
        "q": q,
        "started_by": started_by,
    }
    page = _read_items("/interrupts", query, cursor, None if all_ else limit)
    if as_json:
        typer.echo(json.dumps(page))
        return
    rows = [_interrupt_row(entry) for entry in page["items"]]
    _show(("DUE", "INTERRUPT", "NEEDS", "QUESTION"), rows, "questions", page)
    _print_blocked()
    if any(entry["kind"] == "approval" for entry in page["items"]):
        print_error(
            "to answer an approval: abeyance respond INTERRUPT --approve, or --reject 'why'"
        )


def _print_blocked() -> None:
    """Print how many runs are blocked, to a caller who may read runs."""

    async def count(api: Connection) -> int:
        try:
            return int((await api.get("/runs", blocked="true", limit="1"))["total"])
        except Refusal:
            return 0

    if number := with_api(count):
        verb = "run is" if number == 1 else "runs are"
        print_error(f"{number} {verb} blocked: see `abeyance list --blocked`")


def _read_items(
    path: str, query: Mapping[str, str | list[str] | None], cursor: str | None, most: int | None
) -> dict[str, Any]:
    """Return the pages up to the limit, as one."""

    async def read(api: Connection) -> dict[str, Any]:
        found = api.pages(path, most, **without_none(**query, cursor=cursor))
        pages = [page async for page in found]
        return {**pages[-1], "items": [item for page in pages for item in page["items"]]}

    return with_api(read)


def _show(
    heads: tuple[str, ...], rows: list[tuple[str, ...]], what: str, page: Mapping[str, Any]
) -> None:
    if rows:
        show_table(heads, rows)
    else:
        show_lines([Line(what, "no matches")])
    if page["next_cursor"]:
        print_error(f"there are more items: add --all, or --cursor {page['next_cursor']}")


def _run_row(view: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        view["run_id"],
        status_of({**view, "reason": None})
        + "".join(f", blocked: {why['code']}" for why in view["blocked"][:1]),
        view["graph"],
        short_time(view["created_at"]),
        str(view["open"] or "-"),
        " ".join(f"{name}={value}" for name, value in view["labels"].items()) or "-",
    )


def _interrupt_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        short_time(entry["deadline"]) if entry["deadline"] else "-",
        entry["id"],
        entry["requested_capability"] or "-",
        truncate(one_line(entry["prompt"]), _PROMPT),
    )
