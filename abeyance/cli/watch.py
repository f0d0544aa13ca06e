"""Commands that follow a run, or all of them: the events, and a live view (with `rich`)."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJsonLines,
    Capabilities,
    RunId,
    Types,
    run_path,
    with_api,
)
from abeyance.cli.errors import ErrorText, code_of_run, print_error
from abeyance.cli.formatting import Line, can_draw, event_line, readable, run_lines
from abeyance.errors import SettingsError, Unavailable
from abeyance.live_text import merged
from abeyance.util import without_none

if TYPE_CHECKING:
    from rich.table import Table

    from abeyance.http import Connection


_EVENTS: Final = 8
_QUESTIONS: Final = 3
_PROMPT: Final = 6
"""Maximum number of events, questions, and lines of a question in the live view."""
_SAID: Final = 3
"""Maximum number of lines of what a model says, the last ones, in the live view."""
_TYPE: Final = 25
_LABEL: Final = 9


class Said:
    """What the models of a run say while they speak, by the address of the turn."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def hear(self, delta: Mapping[str, Any]) -> None:
        """Take a `model.delta`."""
        address, new = delta["address"], delta["data"]
        before = self._texts.get(address, "")
        self._texts[address] = merged(before, new["text"], new["offset"])

    def end(self, event: Mapping[str, Any]) -> None:
        """Forget the text of a turn that an event is about: it is over, or begins anew."""
        self._texts.pop(event.get("address") or "", None)

    def lines(self) -> list[Line]:
        """Return the last lines of each text."""
        return [
            Line("says" if number == 0 else "", line)
            for text in self._texts.values()
            for number, line in enumerate(text.split("\n")[-_SAID:] if text else ())
        ]


class LiveView:
    """State of the live view: the run's `view`, its last events, and a connection problem."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        self.view = view
        self.trouble = ""
        self.said = Said()
        self._events: deque[Mapping[str, Any]] = deque(maxlen=_EVENTS)

    def add(self, event: Mapping[str, Any]) -> None:
        self._events.append(event)
        self.said.end(event)

    @property
    def is_stale(self) -> bool:
        """Return True if the view may be outdated or incomplete."""
        return bool(self.trouble or self.view.get("degraded"))

    def lines(self, now: datetime) -> Sequence[Line]:
        """Return the lines to draw; equal to the previous ones if nothing has changed."""
        interrupts = self.view["interrupts"]
        shown = [{**entry, "prompt": _clip(entry["prompt"])} for entry in interrupts[:_QUESTIONS]]
        lines = run_lines({**self.view, "interrupts": shown}, now)
        if (more := len(interrupts) - _QUESTIONS) > 0:
            lines.append(Line("", f"and {more} more: abeyance interrupts {self.view['run_id']}"))
        lines.extend(
            Line("" if number else "events", _event_text(event))
            for number, event in enumerate(self._events)
        )
        lines.extend(self.said.lines())
        if self.trouble:
            lines.append(Line("trouble", self.trouble))
        return lines


def render(lines: Sequence[Line]) -> Table:
    """Lay lines out as a table of the terminal's width."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_LABEL)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(readable(text)))
    return table


def _event_text(event: Mapping[str, Any]) -> str:
    moment = datetime.fromisoformat(event["time"]).astimezone(UTC)
    return (
        f"{moment:%H:%M:%SZ}  {event['type'].ljust(_TYPE)}  {event.get('address') or ''}".rstrip()
    )


def _clip(prompt: str) -> str:
    lines = prompt.split("\n")
    return "\n".join([*lines[:_PROMPT], "..."] if len(lines) > _PROMPT else lines)


@contextmanager
def progress(
    label: str, total: int | None = None, *, is_quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar, and yield the function that advances it by a number of items.

    `total` is None if it is unknown. Without a terminal or `rich`, or if `is_quiet`, nothing is drawn.
    """
    if is_quiet or not can_draw():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


watching = typer.Typer()

_FRAME: Final = 0.25
"""Seconds between two frames, and at least between two reads of the run."""
_RETRY_SECONDS: Final = 2.0
"""Seconds until the next read after a failed or incomplete one, without a new event."""
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
    types: Types = None,
    graph: Annotated[
        str | None, typer.Option(help="Of all runs: only those of this graph.")
    ] = None,
    capabilities: Capabilities = None,
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

    What models say is shown while they speak. Without a terminal or rich, events are printed one per
    line, `model.delta` among them. The exit code is 1 if the run ends with another status than completed.
    """
    path = run_path(run_id)

    async def look(api: Connection) -> Any:
        from abeyance.http.events import follow as followed

        if can_draw() and not as_json:
            return await _draw(api, path)
        form = _form(as_json=as_json)
        on_gap, on_delta = _on_gap(as_json=as_json), lambda delta: typer.echo(form(delta))
        await _print(followed(api, path, None, on_gap=on_gap, on_delta=on_delta), form)
        return await _final_view(api, path)

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


async def _draw(api: Connection, path: str) -> Any:
    """Draw a run until it ends. Return its last view."""
    from rich.console import Console
    from rich.live import Live

    from abeyance.http.events import follow

    live_view = LiveView(await api.get(path))
    changed = asyncio.Event()

    def on_gap() -> None:
        live_view.trouble = _GAP
        changed.set()

    current = live_view.lines(datetime.now(UTC))
    with Live(render(current), console=Console(highlight=False), auto_refresh=False) as live:
        events = follow(api, path, None, on_gap=on_gap, on_delta=live_view.said.hear)
        async with aclosing(events) as stream:
            reading = asyncio.create_task(_take(stream, live_view, changed))
            looking = asyncio.create_task(_look(api, path, live_view, changed))
            try:
                while not (reading.done() or looking.done()):
                    await asyncio.wait({reading, looking}, timeout=_FRAME)
                    lines = live_view.lines(datetime.now(UTC))
                    if lines != current:
                        live.update(render(lines), refresh=True)
                        current = lines
                for task in (reading, looking):
                    if task.done():
                        task.result()
            finally:
                reading.cancel()
                looking.cancel()
                await asyncio.wait({reading, looking})
        live_view.view = await _final_view(api, path)
        live.update(render(live_view.lines(datetime.now(UTC))), refresh=True)
    return live_view.view


async def _take(
    stream: AsyncGenerator[Mapping[str, Any], None], live_view: LiveView, changed: asyncio.Event
) -> None:
    async for event in stream:
        live_view.add(event)
        changed.set()


async def _look(api: Connection, path: str, live_view: LiveView, changed: asyncio.Event) -> None:
    """Read the run after each change."""
    while True:
        with suppress(TimeoutError):
            # No event reports that a worker or the API is back.
            async with asyncio.timeout(_RETRY_SECONDS if live_view.is_stale else None):
                await changed.wait()
        changed.clear()
        try:
            live_view.view = await api.get(path)
            live_view.trouble = ""
        except Unavailable as error:
            live_view.trouble = f"{error}; retrying"
        await asyncio.sleep(_FRAME)


async def _final_view(api: Connection, path: str) -> Any:
    # The event of the end may precede the view by a moment.
    return await api.get(path, wait="PT10S", until=_ENDED)
