"""One exchange with the API, as a command makes it: what is sent, and how the answer is printed.

`--json` prints what the API said, as it said it; otherwise a few lines for a person are printed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from abeyance.errors import SettingsError

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection

T = TypeVar("T")

_INTERRUPT_ID: Final = re.compile(r"[A-Za-z0-9_-]+\.[0-9a-f]+")

PANEL: Final = "Runs (over HTTP: ABEYANCE_URL, ABEYANCE_TOKEN)"

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's own JSON.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print each event as one line of the API's own JSON.")
]
Graph = Annotated[
    str | None, typer.Option(help="Of this graph only, by its name.", show_default=False)
]
Conversation = Annotated[
    str | None, typer.Option(help="Of this conversation only.", show_default=False)
]
Statuses = Annotated[
    list[str] | None,
    typer.Option(help="Of this status; several: repeated, or with commas.", show_default=False),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="With this label; repeated: with all of them.",
        show_default=False,
    ),
]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.", show_default=False)]
Now = Annotated[
    bool, typer.Option("--now", help="Do not wait for running nodes, nor for finally nodes.")
]


def with_api(work: Callable[[Connection], Awaitable[T]]) -> T:
    """Do something with the API that the environment names.

    Raises what the calls of `Connection` raise.
    """
    from abeyance.http import HttpClient
    from abeyance.settings import load_settings

    settings = load_settings()

    async def done() -> T:
        async with HttpClient(settings.url, settings.token) as client:
            return await work(client.api)

    return asyncio.run(done())


def exchange(
    call: Callable[[Connection], Awaitable[Any]],
    lines: Callable[[Any], Iterable[Line]],
    *,
    as_json: bool,
) -> Any:
    """Make one call, print its answer, and return it."""
    told = with_api(call)
    if as_json:
        from abeyance.wire import escaped

        # What the API writes as it is could still be a command to a terminal.
        typer.echo(escaped(json.dumps(told, ensure_ascii=False, separators=(",", ":"))))
    else:
        from abeyance.cli.formatting import show

        show(lines(told))
    return told


def run_path(run_id: str) -> str:
    """The path of a run. Raises the refusal `invalid_run_id`."""
    from abeyance.util import checked_run_id

    return f"/runs/{checked_run_id(run_id)}"


def interrupt_path(interrupt_id: str) -> str:
    """The path of an interrupt. Raises SettingsError for what cannot be the id of one."""
    if not _INTERRUPT_ID.fullmatch(interrupt_id):
        raise SettingsError(
            f"{interrupt_id[:100]!r} is no id of an interrupt: `abeyance inbox` lists them"
        )
    return f"/interrupts/{interrupt_id}"


def json_given(text: str, name: str) -> Any:
    """The JSON that an argument holds: itself, @FILE, or - for stdin.

    Raises SettingsError, which calls the argument `name`.
    """
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        value = json.loads(text)
        # Python reads more than JSON is: NaN, 1e999 and halves of letters.
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except OSError as error:
        raise SettingsError(f"{name}: {text[1:]} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{name}: {text[:100]!r} is not JSON ({error}); a text needs quotes: '\"yes\"'"
        ) from error
    return value


def moment_given(text: str) -> str:
    """The time that an argument holds, which may be so far from now: 2d is the day after tomorrow.

    What is neither is left to the API, which says what a time is.
    """
    from abeyance.duration import seconds

    try:
        moment = datetime.now(UTC) + timedelta(seconds=seconds(text))
    except (ValueError, OverflowError):
        return text
    return moment.isoformat()
