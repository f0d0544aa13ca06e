"""The commands that talk to an API about one run: start it, look at it, answer it, control it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Now,
    Reason,
    RunId,
    exchange,
    interrupt_path,
    json_given,
    run_path,
)
from abeyance.cli.errors import ErrorText, code_of_run
from abeyance.errors import SettingsError, Unavailable

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection


calls = typer.Typer()

_POLL: Final = "PT30S"
_SHORTLY: Final = "PT2S"
"""For what a signal leads to: with a worker up the run is there sooner."""
_WAYS: Final = 4
"""To give an answer."""


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
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
    conversation: Annotated[
        str | None, typer.Option(help="The conversation that it belongs to.", show_default=False)
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
    body: dict[str, Any] = {"graph": graph, "input": json_given(input_, "--input")}
    if run_id is not None:
        body["run_id"] = run_id
    if conversation is not None:
        body["conversation_id"] = conversation
    if label:
        body["labels"] = dict(_label(text) for text in label)

    async def start(api: Connection) -> Any:
        view = await api.post("/runs", body)
        started = view["run_id"]
        try:
            while wait and _goes_on(view):
                path = f"/runs/{started}"
                view = await api.get(path, wait=_POLL, until="awaiting-input")
        except Unavailable as error:
            # Whoever repeats the command without an id would start another run.
            raise Unavailable(
                f"{error}; the run {started} is started and goes on: `abeyance watch {started}`"
            ) from error
        return view

    view = exchange(start, _run_lines, as_json=as_json)
    if wait and view["status"] != "awaiting-input":
        raise typer.Exit(code_of_run(view["status"]))


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show where a run stands, what it waits for, and how to answer."""
    path = run_path(run_id)
    exchange(lambda api: api.get(path), _run_lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def interrupts(
    run_id: RunId,
    *,
    status: Annotated[
        str, typer.Option(help="open, answered, expired, cancelled, superseded or all.")
    ] = "open",
    as_json: AsJson = False,
) -> None:
    """List the questions of a run."""
    path = f"{run_path(run_id)}/interrupts"

    def lines(listed: Any) -> list[Line]:
        from abeyance.cli.formatting import Line, interrupt_lines

        return interrupt_lines(listed["items"]) or [Line("interrupts", f"none that are {status}")]

    exchange(lambda api: api.get(path, status=status), lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
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
    approve: Annotated[
        bool, typer.Option("--approve", help="The same as '{\"approved\": true}'.")
    ] = False,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help="With --approve: the arguments to run the tool with, in place of those shown.",
            show_default=False,
        ),
    ] = None,
    reject: Annotated[
        str | None,
        typer.Option(
            metavar="WHY",
            help='The same as \'{"approved": false, "reason": WHY}\'; without one if WHY is empty.',
            show_default=False,
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="A remark for the record.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an interrupt. The same answer again changes nothing and gets the same receipt."""
    if arguments is not None and not approve:
        raise SettingsError("--arguments are those of a call that is approved: add --approve")
    if [answer, response, reject].count(None) + (not approve) != _WAYS - 1:
        raise SettingsError(
            "give one answer, as JSON: abeyance respond INTERRUPT '{\"approved\": true}' (null, false "
            "and 0 are answers too); or --approve; or --reject WHY"
        )
    given: Any
    if approve:
        edited = {} if arguments is None else {"arguments": json_given(arguments, "--arguments")}
        given = {"approved": True, **edited}
    elif reject is not None:
        given = {"approved": False, **({"reason": reject} if reject else {})}
    else:
        given = json_given(answer or response or "", "ANSWER")
    run_id, dot, _ = target.rpartition(".")
    body = {"interrupt_id": target, "response": given} if dot else {"response": given}
    if note is not None:
        body["note"] = note
    path = f"{run_path(run_id if dot else target)}/respond"

    def lines(told: Any) -> list[Line]:
        from abeyance.cli.formatting import receipt_lines

        return receipt_lines(told["receipts"])

    exchange(lambda api: api.post(path, body), lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
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


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def resume(run_id: RunId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Let a paused run go on."""
    _control(run_id, "resume", {"reason": reason}, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def cancel(
    run_id: RunId,
    *,
    now: Now = False,
    grace: Annotated[
        str | None, typer.Option(help="How long running nodes may take to stop, as 30s or 5m.")
    ] = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """End a run in good order, keeping what it has done."""
    body = {"reason": reason, "mode": "now" if now else "graceful", "grace": grace}
    _control(run_id, "cancel", body, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def result(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show how a run ended, and its values.

    The exit code is 1 if it ended in another way than completed.
    """
    path = f"{run_path(run_id)}/result"

    def lines(told: Any) -> list[Line]:
        from abeyance.cli.formatting import result_lines

        return result_lines(told)

    told = exchange(lambda api: api.get(path), lines, as_json=as_json)
    raise typer.Exit(code_of_run(told["outcome"]))


def _control(run_id: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{run_path(run_id)}/{operation}"
    given = {name: value for name, value in body.items() if value is not None}
    exchange(lambda api: api.post(path, given, wait=_SHORTLY), _run_lines, as_json=as_json)


def _run_lines(view: Any) -> list[Line]:
    from abeyance.cli.formatting import run_lines

    return run_lines(view)


def _goes_on(view: Mapping[str, Any]) -> bool:
    return view.get("ended_at") is None and view["status"] != "awaiting-input"


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"--label: {text!r} is no label, write name=value")
    return name, value


_NEVER = "none"


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def deadline(
    interrupt_id: Annotated[
        str,
        typer.Argument(
            metavar="INTERRUPT", help="The id of an open interrupt.", show_default=False
        ),
    ],
    when: Annotated[
        str | None,
        typer.Argument(
            metavar="[TIME|DURATION|none]",
            help="2026-03-05T09:00Z, or 2d from now, or none at all.",
            show_default=False,
        ),
    ] = None,
    *,
    on_timeout: Annotated[
        str | None, typer.Option(help="What then: halt or goto:<node>.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move the deadline of an interrupt, or change what happens then."""
    from abeyance.duration import seconds

    body: dict[str, Any] = {}
    if when == _NEVER:
        body["deadline"] = None
    elif when is not None:
        try:
            seconds(when)
        except ValueError:
            body["deadline"] = when
        else:
            body["timeout"] = when
    if on_timeout is not None:
        body["on_timeout"] = on_timeout
    if not body:
        raise SettingsError("there is nothing to change: give a time, or --on-timeout")
    path = interrupt_path(interrupt_id)

    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    exchange(lambda api: api.patch(path, body), lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def edit(
    run_id: RunId,
    fields: Annotated[
        list[str],
        typer.Argument(
            metavar="FIELD=JSON...", help="Fields and their new values.", show_default=False
        ),
    ],
    *,
    version: Annotated[
        int | None,
        typer.Option(
            help="Only if the values are still as they were then; without it, as they are now.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set values of a run that is paused, or waits."""
    patch = dict(_field(text) for text in fields)
    path = run_path(run_id)

    async def change(api: Connection) -> Any:
        read = version if version is not None else (await api.get(path))["version"]
        return await api.patch(f"{path}/values", {"patch": patch, "version": read})

    def lines(view: Any) -> list[Line]:
        import json

        from abeyance.cli.formatting import Line, run_lines

        if "values" not in view:
            return run_lines(view)
        values = {name: json.dumps(view["values"].get(name), ensure_ascii=False) for name in patch}
        told = "\n".join(f"{name} = {value}" for name, value in values.items())
        return [Line("run", run_id), Line("set", told), Line("version", str(view["version"]))]

    exchange(change, lines, as_json=as_json)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"{text!r} is no field and its value: write name=JSON")
    return name, json_given(value, name)
