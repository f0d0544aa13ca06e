"""Commands that follow a run, or all of them, event by event."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, AsJsonLines, RunId, run_path, with_api
from abeyance.cli.errors import ErrorText, code_of_run, print_error
from abeyance.cli.formatting import event_line
from abeyance.errors import SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection


watching = typer.Typer()

_GAP: Final = "the event stream was interrupted; reconnecting"
_ENDED: Final = "completed,failed,cancelled,halted,terminated,timed-out"


@watching.command(cls=ErrorText, rich_help_panel=PANEL)
def events(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The id of a run. Without it, all runs.")
    ] = None,
    *,
    after: Annotated[
        str | None, typer.Option(help="Only events after the one with this id.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print new events until the run ends.")
    ] = False,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            help="Of all runs: only this type, or with 'interrupt.*' all that begin so. Repeat it for "
            "several.",
        ),
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="Of all runs: only those of this graph.")
    ] = None,
    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            "--capability",
            help="Of all runs: only interrupts that require this capability, or with 'refunds:*' one "
            "that begins so. Repeat it for several.",
        ),
    ] = None,
    as_json: AsJsonLines = False,
) -> None:
    """Print the events of a run, or of all runs, one per line. --json includes their ids."""
    query = without_none(type=types, graph=graph, capability=capabilities)
    if run_id is not None and query:
        raise SettingsError(
            f"--{next(iter(query))} selects among the events of all runs: leave out {run_id!r}, or "
            "select from what is printed"
        )
    path = "" if run_id is None else run_path(run_id)

    async def read(api: Connection) -> None:
        from abeyance.http.events import follow as followed
        from abeyance.http.events import past

        stream = past(api, path, after, query)
        if follow:
            stream = followed(api, path, after, query, on_gap=_on_gap(as_json=as_json))
        await _print(stream, _form(as_json=as_json, of_all=not path))

    with_api(read)


@watching.command(cls=ErrorText, rich_help_panel=PANEL)
def watch(run_id: RunId, *, as_json: AsJsonLines = False) -> None:
    """Watch a run until it ends. Ctrl-C stops watching; the run continues.

    Events are printed one per line, and what models say while they speak as `model.delta`. The exit code
    is 1 if the run ends with another status than completed.
    """
    path = run_path(run_id)

    async def look(api: Connection) -> Any:
        from abeyance.http.events import follow as followed

        form = _form(as_json=as_json)
        on_gap, on_delta = _on_gap(as_json=as_json), lambda delta: typer.echo(form(delta))
        await _print(followed(api, path, None, on_gap=on_gap, on_delta=on_delta), form)
        # The event of the end may precede the view by a moment.
        return await api.get(path, wait="PT10S", until=_ENDED)

    view = with_api(look)
    raise typer.Exit(code_of_run(view["status"]))


def _on_gap(*, as_json: bool) -> Callable[[], None]:
    return lambda: None if as_json else print_error(_GAP)


def _form(*, as_json: bool, of_all: bool = False) -> Callable[[Mapping[str, Any]], str]:
    return json.dumps if as_json else partial(event_line, with_run=of_all)


async def _print(
    stream: AsyncGenerator[Mapping[str, Any], None], form: Callable[[Mapping[str, Any]], str]
) -> None:
    async with aclosing(stream):
        async for event in stream:
            typer.echo(form(event))
