"""Call the API from a command and print the response: as text, or with `--json` as the API's JSON."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote

import typer

from abeyance.cli.formatting import Line, interrupt_lines, show
from abeyance.core.text import HALVES, escaped, truncate
from abeyance.errors import SettingsError
from abeyance.util import checked_run_id, is_exact

if TYPE_CHECKING:
    from abeyance.http import Connection

T = TypeVar("T")

_INTERRUPT_ID: Final = re.compile(r"[A-Za-z0-9_-]+\.[0-9a-f]+")

PANEL: Final = "Runs (over HTTP: ABEYANCE_URL, ABEYANCE_TOKEN)"

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON.")]
PrintJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print each event as one line of JSON.")]
Graph = Annotated[str | None, typer.Option(help="Only runs of this graph.")]
Timeout = Annotated[
    str | None, typer.Option(help="Maximum length of the pause, such as 30s, 5m, 2h, 2d or PT5M.")
]
Note = Annotated[str | None, typer.Option(help="Why, recorded with it.")]
OpenInterrupt = Annotated[
    str, typer.Argument(metavar="INTERRUPT", help="The id of an open interrupt.")
]
Reason = Annotated[str | None, typer.Option(help="Reason, recorded with the run.")]
Now = Annotated[
    bool, typer.Option("--now", help="Wait neither for running nodes nor for finally nodes.")
]


_subject: Final[ContextVar[str | None]] = ContextVar("_subject", default=None)


def call_as(subject: str | None) -> None:
    """Name the caller of all calls of this command, for an API without authentication."""
    if subject is not None:
        from abeyance.token_file import subject_fault

        if (fault := subject_fault(subject)) is not None:
            raise typer.BadParameter(fault, param_hint="--as")
    _subject.set(subject)


def with_api(work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run `work` with a connection to the API of ABEYANCE_URL. Raises what `Connection` raises."""
    from abeyance.http import Connection
    from abeyance.settings import load_settings

    settings = load_settings()

    async def done() -> T:
        api = Connection(settings.url, settings.token, subject=_subject.get())
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(done())


def exchange(
    call: Callable[[Connection], Awaitable[Any]],
    lines: Callable[[Any], Iterable[Line]],
    *,
    as_json: bool,
) -> Any:
    """Make one call, print its response, and return it."""
    response = with_api(call)
    if as_json:
        # The API does not escape characters that control a terminal.
        typer.echo(escaped(json.dumps(response, ensure_ascii=False, separators=(",", ":"))))
    else:
        show(lines(response))
    return response


def show_interrupt(call: Callable[[Connection], Awaitable[Any]], *, as_json: bool) -> None:
    """Make one call that returns an interrupt, and print it."""
    exchange(call, lambda entry: interrupt_lines([entry]), as_json=as_json)


def run_path(run_id: str) -> str:
    """Return the path of a run. Raises the refusal `invalid_run_id`."""
    return f"/runs/{checked_run_id(run_id)}"


def interrupt_path(interrupt_id: str) -> str:
    """Return the path of an interrupt. Raises SettingsError for an invalid id."""
    if not _INTERRUPT_ID.fullmatch(interrupt_id):
        raise SettingsError(
            f"{truncate(interrupt_id, 100)!r} is not an interrupt id: `abeyance inbox` lists them"
        )
    return f"/interrupts/{interrupt_id}"


def in_path(id_: str, name: str) -> str:
    """Return an id as one part of a path. Raises SettingsError, naming the argument, for what is none."""
    if id_ in {"", ".", ".."} or HALVES.search(id_):
        raise SettingsError(f"{name}: {truncate(id_, 100)!r} is not an id")
    return quote(id_, safe="")


def distinct(pairs: Sequence[tuple[str, Any]], name: str) -> dict[str, Any]:
    """Return the pairs as a mapping. Raises SettingsError, naming the argument, for a repeated key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in counts.items() if count > 1)
        raise SettingsError(f"{name}: {truncate(repeated, 100)!r} has several values: give it one")
    return value


def json_given(text: str, name: str) -> Any:
    """Parse the JSON of an argument: JSON text, @FILE, or - for stdin.

    Raises SettingsError, which names the argument.
    """
    if text == "@":
        raise SettingsError(f"{name}: write the name of a file after @")
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        value = json.loads(
            text, parse_float=_number, object_pairs_hook=partial(distinct, name=name)
        )
        # Python parses more than JSON allows: NaN, 1e999 and lone surrogates.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except OSError as error:
        raise SettingsError(f"{name}: {text[1:]} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{name}: {truncate(text, 100)!r} is not JSON ({error}): {_how_to_write(text)}"
        ) from error
    return value


def _number(text: str) -> float | str:
    """Return a number of JSON; the text itself, which a `Decimal` reads, if a float has fewer digits."""
    number = float(text)
    return number if math.isinf(number) or is_exact(number, text) else text


def _how_to_write(text: str) -> str:
    if text.startswith(("{", "[")):
        return "names and strings take double quotes, as in '{\"approved\": true}'"
    if text.endswith(".json"):
        return f"to read a file, write @{text}"
    return "put a string in quotes, as '\"yes\"'"


def moment_given(text: str) -> str:
    """Resolve a duration from now, such as 2d, to a time. Leave all other text for the API to check."""
    from abeyance.duration import seconds

    length = duration_given(text, seconds)
    return text if length is None else (datetime.now(UTC) + timedelta(seconds=length)).isoformat()


def duration_given(text: str, read: Callable[[str], T]) -> T | None:
    """Read a duration; None if the text may be a time, which the API checks."""
    try:
        return read(text)
    except ValueError as error:
        if text.strip().startswith("P"):
            # No time begins so.
            raise SettingsError(str(error)) from error
        return None
