"""A run as it is drawn in a terminal while it moves. Needs `rich`."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from abeyance.cli.api_call import PANEL, AsJsonLines, RunId, run_path, with_api
from abeyance.cli.errors import ErrorText, code_of_run, print_error
from abeyance.cli.formatting import Line, can_draw, readable, run_lines
from abeyance.errors import Unavailable

if TYPE_CHECKING:
    from abeyance.http import Connection


_EVENTS: Final = 8
_QUESTIONS: Final = 3
_PROMPT: Final = 6
"""How many events, questions and lines of a question are shown: a terminal is not high."""
_TYPE: Final = 25
_LABEL: Final = 9


class LiveView:
    """What is known of a run: its `view`, the last of its events, and what keeps more from coming."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        self.view = view
        self.trouble = ""
        self._events: deque[Mapping[str, Any]] = deque(maxlen=_EVENTS)

    def add(self, event: Mapping[str, Any]) -> None:
        """Another event has come."""
        self._events.append(event)

    @property
    def is_clouded(self) -> bool:
        """Whether the view may be an old one, or not all there is to know."""
        return bool(self.trouble or self.view.get("degraded"))

    def lines(self, now: datetime) -> Sequence[Line]:
        """What is to be seen now; where nothing has changed, the same as before."""
        asked = self.view["interrupts"]
        shown = [{**entry, "prompt": _shortened(entry["prompt"])} for entry in asked[:_QUESTIONS]]
        lines = run_lines({**self.view, "interrupts": shown}, now)
        if (more := len(asked) - _QUESTIONS) > 0:
            lines.append(Line("", f"and {more} more: abeyance interrupts {self.view['run_id']}"))
        lines.extend(
            Line("" if number else "events", _moved(event))
            for number, event in enumerate(self._events)
        )
        if self.trouble:
            lines.append(Line("trouble", self.trouble))
        return lines


def drawn(lines: Sequence[Line]) -> Table:
    """Lines as a picture that is as wide as the terminal."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=_LABEL)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(readable(text)))
    return table


def _moved(event: Mapping[str, Any]) -> str:
    moment = datetime.fromisoformat(event["time"]).astimezone(UTC)
    return (
        f"{moment:%H:%M:%SZ}  {event['type'].ljust(_TYPE)}  {event.get('address') or ''}".rstrip()
    )


def _shortened(prompt: str) -> str:
    lines = prompt.split("\n")
    return "\n".join([*lines[:_PROMPT], "..."] if len(lines) > _PROMPT else lines)


@contextmanager
def progress(
    told: str, total: int | None = None, *, is_quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """What to call with the number of things that were done since the last time.

    `total` None: nobody knows how many there are. Without a terminal, without `rich`, and where
    `is_quiet`, nothing is drawn.
    """
    if is_quiet or not can_draw():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(told, total=total)
        yield lambda count: bar.advance(task, count)


watching = typer.Typer()

_FRAME: Final = 0.25
"""In seconds: between two pictures, and at least between two looks at the run."""
_LOOK_AGAIN: Final = 2.0
"""The same where the last look was in vain, though nothing is heard of the run."""
_GAP: Final = "the stream of events broke off; trying again"
_ENDED: Final = "completed,failed,cancelled,halted"


@watching.command(cls=ErrorText, rich_help_panel=PANEL)
def events(
    run_id: RunId,
    *,
    after: Annotated[
        str | None,
        typer.Option(help="Only those after the event with this id.", show_default=False),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="And those to come, until the run has ended.")
    ] = False,
    as_json: AsJsonLines = False,
) -> None:
    """Print what has happened in a run, one event a line. Ids of events are in the JSON."""
    path = run_path(run_id)

    async def read(api: Connection) -> None:
        from abeyance.http.events import past

        found = _followed(api, path, after, as_json=as_json) if follow else past(api, path, after)
        await _print(found, as_json=as_json)

    with_api(read)


@watching.command(cls=ErrorText, rich_help_panel=PANEL)
def watch(run_id: RunId, *, as_json: AsJsonLines = False) -> None:
    """Watch a run until it has ended. Ctrl-C ends only the watching.

    Without a terminal, or without rich, its events are printed, one a line. The exit code is 1 if the
    run ended in another way than completed.
    """
    from abeyance.cli.formatting import can_draw

    path = run_path(run_id)

    async def look(api: Connection) -> Any:
        if can_draw() and not as_json:
            return await _draw(api, path)
        await _print(_followed(api, path, None, as_json=as_json), as_json=as_json)
        return await _at_its_end(api, path)

    view = with_api(look)
    raise typer.Exit(code_of_run(view["status"]))


def _followed(
    api: Connection, path: str, after: str | None, *, as_json: bool
) -> AsyncGenerator[Mapping[str, Any], None]:
    from abeyance.http.events import follow

    def tell() -> None:
        if not as_json:
            print_error(_GAP)

    return follow(api, path, after, on_gap=tell)


async def _print(found: AsyncGenerator[Mapping[str, Any], None], *, as_json: bool) -> None:
    from abeyance.cli.formatting import event_line

    form: Callable[[Mapping[str, Any]], str] = json.dumps if as_json else event_line
    async with aclosing(found):
        async for event in found:
            typer.echo(form(event))


async def _draw(api: Connection, path: str) -> Any:
    """Draw a run until it has ended. Returns its last view."""
    from rich.console import Console
    from rich.live import Live

    from abeyance.http.events import follow

    picture = LiveView(await api.get(path))
    changed = asyncio.Event()

    def lost() -> None:
        picture.trouble = _GAP
        changed.set()

    shown = picture.lines(datetime.now(UTC))
    with Live(drawn(shown), console=Console(highlight=False), auto_refresh=False) as live:
        async with aclosing(follow(api, path, None, on_gap=lost)) as found:
            reading = asyncio.create_task(_take(found, picture, changed))
            looking = asyncio.create_task(_look(api, path, picture, changed))
            try:
                while not (reading.done() or looking.done()):
                    await asyncio.wait({reading, looking}, timeout=_FRAME)
                    lines = picture.lines(datetime.now(UTC))
                    if lines != shown:
                        live.update(drawn(lines), refresh=True)
                        shown = lines
                for task in (reading, looking):
                    if task.done():
                        task.result()
            finally:
                reading.cancel()
                looking.cancel()
                await asyncio.wait({reading, looking})
        picture.view = await _at_its_end(api, path)
        live.update(drawn(picture.lines(datetime.now(UTC))), refresh=True)
    return picture.view


async def _take(
    found: AsyncGenerator[Mapping[str, Any], None], picture: LiveView, changed: asyncio.Event
) -> None:
    async for event in found:
        picture.add(event)
        changed.set()


async def _look(api: Connection, path: str, picture: LiveView, changed: asyncio.Event) -> None:
    """Look at the run whenever something has changed in it."""
    while True:
        with suppress(TimeoutError):
            # No event tells that a worker is back, or the API.
            async with asyncio.timeout(_LOOK_AGAIN if picture.is_clouded else None):
                await changed.wait()
        changed.clear()
        try:
            picture.view = await api.get(path)
            picture.trouble = ""
        except Unavailable as error:
            picture.trouble = f"{error}; trying again"
        await asyncio.sleep(_FRAME)


async def _at_its_end(api: Connection, path: str) -> Any:
    # The stream may tell of the end a moment before the view does.
    return await api.get(path, wait="PT10S", until=_ENDED)
