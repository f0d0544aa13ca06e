"""The commands that look over all runs: which there are, and what they ask."""

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

if TYPE_CHECKING:
    from abeyance.http import Connection

overview = typer.Typer()

_PAGE: Final = 50
_LARGEST_PAGE: Final = 1_000
_PROMPT: Final = 60

Limit = Annotated[int, typer.Option(min=1, help="How many at most.")]
CursorOption = Annotated[
    str | None,
    typer.Option(help="Go on where a list ended: its next_cursor.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="As many as there are.")]


@overview.command("list", cls=ErrorText, rich_help_panel=PANEL)
def list_runs(
    *,
    status: Statuses = None,
    graph: Graph = None,
    conversation: Conversation = None,
    label: Labels = None,
    limit: Limit = _PAGE,
    cursor: CursorOption = None,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. A run that has just started may be missing for a second."""
    asked = {"status": status, "graph": graph, "conversation_id": conversation, "label": label}
    found = _found("/runs", asked, cursor, None if all_ else limit)
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = [_run_row(view) for view in found["items"]]
    _show(("RUN", "STATUS", "GRAPH", "STARTED", "OPEN", "LABELS"), rows, "runs", found)


@overview.command(cls=ErrorText, rich_help_panel=PANEL)
def inbox(
    *,
    capability: Annotated[
        list[str] | None,
        typer.Option(help="That ask for this capability, or one of several.", show_default=False),
    ] = None,
    graph: Graph = None,
    conversation: Conversation = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION",
            help="With a deadline before 2026-03-05T00:00Z, or within 2d.",
            show_default=False,
        ),
    ] = None,
    limit: Limit = _PAGE,
    cursor: CursorOption = None,
    all_: All = False,
    as_json: AsJson = False,
) -> None:
    """List what all running runs ask, the nearest deadlines first.

    `abeyance show RUN` shows a question whole, with the way to answer it.
    """
    asked = {
        "capability": capability,
        "graph": graph,
        "conversation_id": conversation,
        "before": before and moment_given(before),
    }
    found = _found("/interrupts", asked, cursor, None if all_ else limit)
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = [_interrupt_row(entry) for entry in found["items"]]
    _show(("DUE", "INTERRUPT", "NEEDS", "QUESTION"), rows, "questions", found)
    if any(entry["kind"] == "approval" for entry in found["items"]):
        print_error("to approve: abeyance respond INTERRUPT --approve; or --reject 'why'")


def _found(
    path: str, asked: Mapping[str, str | list[str] | None], cursor: str | None, most: int | None
) -> dict[str, Any]:
    """As many items as are wanted and there are: a page may be short and yet not be the last."""
    given = {name: value for name, value in asked.items() if value}

    async def read(api: Connection) -> dict[str, Any]:
        items: list[Any] = []
        following = cursor
        while most is None or len(items) < most:
            size = _LARGEST_PAGE if most is None else min(most - len(items), _LARGEST_PAGE)
            place = {"cursor": following} if following else {}
            page = await api.get(path, **given, **place, limit=str(size))
            items += page["items"]
            following = page["next_cursor"]
            if following is None:
                break
        return {"items": items, "next_cursor": following}

    return with_api(read)


def _show(
    heads: tuple[str, ...], rows: list[tuple[str, ...]], what: str, found: Mapping[str, Any]
) -> None:
    from abeyance.cli.formatting import Line, show, show_table

    if rows:
        show_table(heads, rows)
    else:
        show([Line(what, "none that fit")])
    if found["next_cursor"]:
        print_error(f"there are more: add --all, or --cursor {found['next_cursor']}")


def _run_row(view: Mapping[str, Any]) -> tuple[str, ...]:
    from abeyance.cli.formatting import short_time, status_of

    return (
        view["run_id"],
        status_of({**view, "reason": None}),
        view["graph"],
        short_time(view["created_at"]),
        str(len(view["interrupts"]) or "-"),
        " ".join(f"{name}={value}" for name, value in view["labels"].items()) or "-",
    )


def _interrupt_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    from abeyance.cli.formatting import one_line, short_time
    from abeyance.core.json import truncate

    return (
        short_time(entry["deadline"]) if entry["deadline"] else "-",
        entry["id"],
        entry["requested_capability"] or "-",
        truncate(one_line(entry["prompt"]), _PROMPT),
    )
