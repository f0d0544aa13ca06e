"""The commands that talk to an API: start a run, look at it, answer it, control it.

Each is one call over HTTP. `--json` prints what the API said, as it said it; otherwise a few lines for
a person are printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.errors import SettingsError

if TYPE_CHECKING:
    import httpx

    from abeyance.remote import Remote
    from abeyance.terminal import Line

calls = typer.Typer()

_PANEL: Final = "Runs (over HTTP: ABEYANCE_URL, ABEYANCE_TOKEN)"
_POLL: Final = "PT30S"

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's own JSON.")]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.", show_default=False)]


@calls.command(rich_help_panel=_PANEL)
def run(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="The name of a graph.")],
    *,
    input_: Annotated[
        str,
        typer.Option(
            "--input", metavar="JSON|@FILE|-", help="The run's input: JSON, a file of it, or stdin."
        ),
    ] = "{}",
    run_id: Annotated[
        str | None, typer.Option(help="Its id; to start the same again changes nothing.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A label. May be repeated.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the run has ended or needs an answer.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run of GRAPH.

    With --wait the exit code is 1 if the run ended in another way than completed.
    """
    body: dict[str, Any] = {"graph": graph, "input": _json(input_, "--input")}
    if run_id is not None:
        body["run_id"] = run_id
    if label:
        body["labels"] = dict(_label(text) for text in label)

    async def start(remote: Remote) -> httpx.Response:
        response = await remote.post("/runs", body)
        while wait and _goes_on(response.json()):
            path = f"/runs/{response.json()['run_id']}"
            response = await remote.get(path, wait=_POLL, until="awaiting-input")
        return response

    view = _call(start, _run_lines, as_json=as_json)
    if wait and view["status"] not in ("completed", "awaiting-input"):
        raise typer.Exit(1)


@calls.command(rich_help_panel=_PANEL)
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show where a run stands, what it waits for, and how to answer."""
    path = _path(run_id)
    _call(lambda remote: remote.get(path), _run_lines, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def interrupts(
    run_id: RunId,
    *,
    status: Annotated[
        str, typer.Option(help="open, answered, expired, cancelled, superseded or all.")
    ] = "open",
    as_json: AsJson = False,
) -> None:
    """List the questions of a run."""
    path = f"{_path(run_id)}/interrupts"

    def lines(listed: Any) -> list[Line]:
        from abeyance.terminal import Line, interrupt_lines

        return interrupt_lines(listed["items"]) or [Line("interrupts", f"none that are {status}")]

    _call(lambda remote: remote.get(path, status=status), lines, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def respond(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|INTERRUPT",
            help="The id of an interrupt, or of a run that has exactly one open.",
            show_default=False,
        ),
    ],
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="ANSWER", help="The answer: JSON, @FILE, or - for stdin.", show_default=False
        ),
    ] = None,
    *,
    response: Annotated[
        str | None, typer.Option(help="The same as ANSWER.", show_default=False)
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="A remark for the record.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an interrupt. The same answer again changes nothing and gets the same receipt."""
    if (answer is None) == (response is None):
        raise SettingsError(
            "give one answer, as JSON: abeyance respond INTERRUPT '{\"approved\": true}' (null, false "
            "and 0 are answers too)"
        )
    given = _json(answer or response or "", "ANSWER")
    run_id, dot, _ = target.rpartition(".")
    body = {"interrupt_id": target, "response": given} if dot else {"response": given}
    if note is not None:
        body["note"] = note
    path = f"{_path(run_id if dot else target)}/respond"

    def lines(told: Any) -> list[Line]:
        from abeyance.terminal import receipt_lines

        return receipt_lines(told["receipts"])

    _call(lambda remote: remote.post(path, body), lines, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def pause(
    run_id: RunId,
    *,
    reason: Reason = None,
    mode: Annotated[
        str, typer.Option(help="after-node lets running nodes finish, now stops them.")
    ] = "after-node",
    timeout: Annotated[
        str | None, typer.Option(help="How long at most, as 30s, 5m, 2h, 2d or PT5M.")
    ] = None,
    on_timeout: Annotated[
        str | None, typer.Option(help="What then: resume, halt or goto:<node>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let a run start nothing new until it is resumed."""
    body = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
    _control(run_id, "pause", body, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def resume(run_id: RunId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Let a paused run go on."""
    _control(run_id, "resume", {"reason": reason}, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def cancel(
    run_id: RunId,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for running nodes, nor for finally nodes.")
    ] = False,
    grace: Annotated[
        str | None, typer.Option(help="How long running nodes may take to stop, as 30s or 5m.")
    ] = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """End a run in good order, keeping what it has done."""
    body = {"reason": reason, "mode": "now" if now else "graceful", "grace": grace}
    _control(run_id, "cancel", body, as_json=as_json)


@calls.command(rich_help_panel=_PANEL)
def result(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show how a run ended, and its values."""
    path = f"{_path(run_id)}/result"

    def lines(told: Any) -> list[Line]:
        from abeyance.terminal import result_lines

        return result_lines(told)

    _call(lambda remote: remote.get(path), lines, as_json=as_json)


def _control(run_id: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{_path(run_id)}/{operation}"
    given = {name: value for name, value in body.items() if value is not None}
    _call(lambda remote: remote.post(path, given), _run_lines, as_json=as_json)


def _call(
    call: Callable[[Remote], Awaitable[httpx.Response]],
    lines: Callable[[Any], Iterable[Line]],
    *,
    as_json: bool,
) -> Any:
    from abeyance.remote import ProblemResponse, Remote
    from abeyance.settings import load_settings
    from abeyance.terminal import show

    settings = load_settings()

    async def made() -> httpx.Response:
        async with Remote(settings.url, settings.token) as remote:
            return await call(remote)

    try:
        response = asyncio.run(made())
    except ProblemResponse as error:
        if as_json:
            typer.echo(error.text)
        raise
    told = response.json()
    if as_json:
        typer.echo(response.text)
    else:
        show(lines(told))
    return told


def _run_lines(view: Any) -> list[Line]:
    from abeyance.terminal import run_lines

    return run_lines(view)


def _path(run_id: str) -> str:
    from abeyance.runid import checked_run_id

    return f"/runs/{checked_run_id(run_id)}"


def _goes_on(view: Mapping[str, Any]) -> bool:
    return view.get("ended_at") is None and view["status"] != "awaiting-input"


def _json(text: str, name: str) -> Any:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text("utf-8")
        return json.loads(text)
    except OSError as error:
        raise SettingsError(f"{name}: {text[1:]} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SettingsError(
            f"{name}: {text[:100]!r} is not JSON ({error}); a text needs quotes: '\"yes\"'"
        ) from error


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"--label: {text!r} is no label, write name=value")
    return name, value
