"""Commands that list runs and their open interrupts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Conversation,
    Graph,
    Labels,
    Statuses,
    moment_given,
    with_api,
)
from abeyance.cli.errors import ErrorText, print_error
from abeyance.errors import Refusal

if TYPE_CHECKING:
    from abeyance.http import Connection

overview = typer.Typer()

_PAGE: Final = 50
_LARGEST_PAGE: Final = 1_000
_PROMPT: Final = 60

Limit = Annotated[int, typer.Option(min=1, help="Maximum number of items.")]
CursorOption = Annotated[
    str | None,
    typer.Option(help="Continue a list from its next_cursor.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="List all of them.")]


@overview.command("list", cls=ErrorText, rich_help_panel=PANEL)
def list_runs(
    *,
    status: Statuses = None,
    graph: Graph = None,
    conversation: Conversation = None,
    label: Labels = None,
    blocked: Annotated[
        bool, typer.Option("--blocked", help="Only runs with a blocked visit.")
    ] = False,
    limit: Limit = _PAGE,
    cursor: CursorOption = None,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. A new run may take a second to appear."""
    query = {
        "status": status,
        "graph": graph,
        "conversation_id": conversation,
        "label": label,
        "blocked": "true" if blocked else None,
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
            help="Only interrupts that require this capability. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    graph: Graph = None,
    conversation: Conversation = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION",
            help="Only deadlines before this time (2026-03-05T00:00Z), or within this time (2d).",
            show_default=False,
        ),
    ] = None,
    assignee: Annotated[
        str | None,
        typer.Option(help="Only those for this subject, or group:finance.", show_default=False),
    ] = None,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only those for you or your groups, or claimed by you.")
    ] = False,
    priority: Annotated[
        str | None,
        typer.Option(help="Only this priority: high, normal or low.", show_default=False),
    ] = None,
    min_risk: Annotated[
        int | None, typer.Option(help="Only with at least this risk.", show_default=False)
    ] = None,
    sort: Annotated[str, typer.Option(help="deadline, priority, risk or age.")] = "deadline",
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
        "conversation_id": conversation,
        "before": before and moment_given(before),
        "assignee": assignee,
        "mine": "true" if mine else None,
        "priority": priority,
        "min_risk": None if min_risk is None else str(min_risk),
        "sort": sort,
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
            page = await api.get("/runs", blocked="true", limit=str(_LARGEST_PAGE))
        except Refusal:
            return 0
        return len(page["items"])

    if number := with_api(count):
        verb = "run is" if number == 1 else "runs are"
        print_error(f"{number} {verb} blocked: see `abeyance list --blocked`")


def _read_items(
    path: str, query: Mapping[str, str | list[str] | None], cursor: str | None, most: int | None
) -> dict[str, Any]:
    """Read pages up to the limit. A short page is not necessarily the last one."""
    params = {name: value for name, value in query.items() if value}

    async def read(api: Connection) -> dict[str, Any]:
        items: list[Any] = []
        following = cursor
        while most is None or len(items) < most:
            size = _LARGEST_PAGE if most is None else min(most - len(items), _LARGEST_PAGE)
            place = {"cursor": following} if following else {}
            page = await api.get(path, **params, **place, limit=str(size))
            items += page["items"]
            following = page["next_cursor"]
            if following is None:
                break
        return {"items": items, "next_cursor": following}

    return with_api(read)


def _show(
    heads: tuple[str, ...], rows: list[tuple[str, ...]], what: str, page: Mapping[str, Any]
) -> None:
    from abeyance.cli.formatting import Line, show, show_table

    if rows:
        show_table(heads, rows)
    else:
        show([Line(what, "no matches")])
    if page["next_cursor"]:
        print_error(f"there are more items: add --all, or --cursor {page['next_cursor']}")


def _run_row(view: Mapping[str, Any]) -> tuple[str, ...]:
    from abeyance.cli.formatting import short_time, status_of

    return (
        view["run_id"],
        status_of({**view, "reason": None})
        + "".join(f", blocked: {why['code']}" for why in view["blocked"][:1]),
        view["graph"],
        short_time(view["created_at"]),
        str(len(view["interrupts"]) or "-"),
        " ".join(f"{name}={value}" for name, value in view["labels"].items()) or "-",
    )


def _interrupt_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    from abeyance.cli.formatting import one_line, short_time
    from abeyance.core.text import truncate

    return (
        short_time(entry["deadline"]) if entry["deadline"] else "-",
        entry["id"],
        entry["requested_capability"] or "-",
        truncate(one_line(entry["prompt"]), _PROMPT),
    )
