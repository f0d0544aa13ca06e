"""Commands on one run: start, show, answer, control and edit it."""

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
from abeyance.cli.errors import ErrorText, ExitCode, code_of_run
from abeyance.errors import Code, Refusal, SettingsError, Unavailable

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
    from abeyance.http import Connection


calls = typer.Typer()

_POLL: Final = "PT30S"
_SHORTLY: Final = "PT2S"
"""How long a control command waits for its effect; with a running worker it takes less."""
_ANSWER_OPTIONS: Final = 5
_MOST_CALLERS: Final = 50
"""Callers who may give a run the same answer by its id, one after the other."""


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
    conversation: Annotated[
        str | None, typer.Option(help="Conversation of the run.", show_default=False)
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Label of the run. Repeat it for several."),
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
        str | None,
        typer.Option(help="What a failing node does: fail or interrupt.", show_default=False),
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
    if conversation is not None:
        body["conversation_id"] = conversation
    if label:
        body["labels"] = dict(_label(text) for text in label)

    given = {
        "interrupt_before": interrupt_before,
        "interrupt_after": interrupt_after,
        "on_error": on_error,
        "allow_concurrent": allow_concurrent,
    }
    body |= {name: value for name, value in given.items() if value}

    async def start(api: Connection) -> Any:
        view = await api.post("/runs", body)
        started = view["run_id"]
        try:
            while wait and _is_busy(view):
                path = f"/runs/{started}"
                view = await api.get(path, wait=_POLL, until="awaiting-input,blocked")
        except Unavailable as error:
            # Repeating the command without an id would start another run.
            raise Unavailable(
                f"{error}; the run {started} was started and continues: `abeyance watch {started}`"
            ) from error
        return view

    view = exchange(start, _run_lines, as_json=as_json)
    if wait and view.get("ended_at") is None and view.get("blocked"):
        raise typer.Exit(ExitCode.BLOCKED)
    if wait and view["status"] != "awaiting-input":
        raise typer.Exit(code_of_run(view["status"]))


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def show(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the status of a run, its open questions, and how to answer them."""
    path = run_path(run_id)
    exchange(lambda api: api.get(path), _run_lines, as_json=as_json)


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
        from abeyance.cli.formatting import Line, interrupt_lines

        return interrupt_lines(listed["items"]) or [Line("interrupts", f"no {status} interrupts")]

    exchange(lambda api: api.get(path, status=status), lines, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def respond(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|INTERRUPT",
            help="Id of an interrupt, or of a run with exactly one open interrupt.",
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
            help="With --approve: run the tool with these arguments instead.",
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
    result: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help='The same as \'{"approved": false, "result": JSON}\': the tool is not run, and the '
            "model reads this in its place.",
            show_default=False,
        ),
    ] = None,
    note: Annotated[
        str | None, typer.Option(help="Note, recorded with the answer.", show_default=False)
    ] = None,
    on_behalf_of: Annotated[
        str | None,
        typer.Option(help="In whose place you answer, by a delegation.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an interrupt. Sending the same answer again changes nothing and returns the same receipt.

    An answer by the id of a run is for the interrupt that is open when it first arrives. Its repeat never
    answers a later one.
    """
    if arguments is not None and not approve:
        raise SettingsError("--arguments needs an approval: add --approve")
    if [answer, response, reject, result].count(None) + (not approve) != _ANSWER_OPTIONS - 1:
        raise SettingsError(
            "exactly one answer is required: JSON, as in abeyance respond INTERRUPT "
            "'{\"approved\": true}' (null, false and 0 are answers too), or --approve, --reject WHY or "
            "--result JSON"
        )
    value: Any
    if approve:
        edited = {} if arguments is None else {"arguments": json_given(arguments, "--arguments")}
        value = {"approved": True, **edited}
    elif reject is not None:
        value = {"approved": False, **({"reason": reject} if reject else {})}
    elif result is not None:
        value = {"approved": False, "result": json_given(result, "--result")}
    else:
        value = json_given(answer or response or "", "ANSWER")
    run_id, dot, _ = target.rpartition(".")
    body = {"interrupt_id": target, "response": value} if dot else {"response": value}
    if note is not None:
        body["note"] = note
    if on_behalf_of is not None:
        body["on_behalf_of"] = on_behalf_of
    path = f"{run_path(run_id if dot else target)}/respond"

    def lines(response: Any) -> list[Line]:
        from abeyance.cli.formatting import receipt_lines

        return receipt_lines(response["receipts"])

    if dot:
        exchange(lambda api: api.post(path, body), lines, as_json=as_json)
    else:
        exchange(lambda api: _answer_run(api, target, body), lines, as_json=as_json)


async def _answer_run(api: Connection, run_id: str, body: Mapping[str, Any]) -> Any:
    """Answer the only open interrupt of a run, once, however often the command is repeated.

    The key is made from the run and the answer, so that the run knows a repeat by another process. Raises
    the Refusal `nothing_open` for a repeat after the run has asked something else.
    """
    path = run_path(run_id)
    for number in range(_MOST_CALLERS):
        try:
            answered = await api.post(f"{path}/respond", body, key=_key(run_id, body, number))
        except Refusal as refusal:
            # Another caller gave the same answer to an earlier interrupt.
            if refusal.code is not Code.IDEMPOTENCY_CONFLICT or number == _MOST_CALLERS - 1:
                raise
        else:
            break
    receipt = answered["receipts"][0]
    following = await _open_interrupts(api, path) if receipt.get("replayed") else []
    # A vote leaves its question open.
    if following := [id_ for id_ in following if id_ != receipt["interrupt_id"]]:
        raise Refusal(
            Code.NOTHING_OPEN,
            f"this answer was accepted for {receipt['interrupt_id']} by {receipt['answered_by']} at "
            f"{receipt['accepted_at']}, and the run has asked something else since: to answer that, name "
            f"its id: {', '.join(following)}",
            last=receipt,
            open_interrupts=following,
        )
    return answered


async def _open_interrupts(api: Connection, path: str) -> list[str]:
    try:
        listed = await api.get(f"{path}/interrupts", status="open")
    except Refusal as refusal:
        # Who may only answer does not learn what else is open: the receipt tells what was answered.
        if refusal.code is Code.CAPABILITY_REQUIRED:
            return []
        raise
    return [str(entry["id"]) for entry in listed["items"]]


def _key(run_id: str, body: Mapping[str, Any], number: int) -> str:
    from hashlib import sha256

    from abeyance.core.json import canonical

    text = canonical({"run": run_id, "number": number, **body})
    return f"respond-{sha256(text.encode()).hexdigest()[:32]}"


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def pause(
    run_id: RunId,
    *,
    reason: Reason = None,
    mode: Annotated[
        str, typer.Option(help="after-node lets running nodes finish, now stops them.")
    ] = "after-node",
    timeout: Annotated[
        str | None,
        typer.Option(help="Maximum length of the pause, such as 30s, 5m, 2h, 2d or PT5M."),
    ] = None,
    on_timeout: Annotated[
        str | None, typer.Option(help="Action at the timeout: resume, halt or goto:<node>.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Pause a run: it starts no new work until resumed."""
    body = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
    _control(run_id, "pause", body, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def resume(run_id: RunId, *, reason: Reason = None, as_json: AsJson = False) -> None:
    """Resume a paused run."""
    _control(run_id, "resume", {"reason": reason}, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def cancel(
    run_id: RunId,
    *,
    now: Now = False,
    grace: Annotated[
        str | None, typer.Option(help="How long running nodes may take to stop, such as 30s or 5m.")
    ] = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run. Its values and finished work are kept."""
    body = {"reason": reason, "mode": "now" if now else "graceful", "grace": grace}
    _control(run_id, "cancel", body, as_json=as_json)


@calls.command(cls=ErrorText, rich_help_panel=PANEL)
def result(run_id: RunId, *, as_json: AsJson = False) -> None:
    """Show the outcome and the values of an ended run.

    The exit code is 1 if the outcome is not completed.
    """
    path = f"{run_path(run_id)}/result"

    def lines(record: Any) -> list[Line]:
        from abeyance.cli.formatting import result_lines

        return result_lines(record)

    record = exchange(lambda api: api.get(path), lines, as_json=as_json)
    raise typer.Exit(code_of_run(record["outcome"]))


def _control(run_id: str, operation: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{run_path(run_id)}/{operation}"
    members = {name: value for name, value in body.items() if value is not None}
    exchange(lambda api: api.post(path, members, wait=_SHORTLY), _run_lines, as_json=as_json)


def _run_lines(view: Any) -> list[Line]:
    from abeyance.cli.formatting import run_lines

    return run_lines(view)


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
            help="2026-03-05T09:00Z, 2d (from now), 2bd (of the question's calendar), or none.",
            show_default=False,
        ),
    ] = None,
    *,
    on_timeout: Annotated[
        str | None,
        typer.Option(help="Action at the deadline: halt or goto:<node>.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change the deadline of an interrupt, or the action at the deadline."""
    from abeyance.duration import span

    body: dict[str, Any] = {}
    if when == _NEVER:
        body["deadline"] = None
    elif when is not None:
        try:
            span(when)
        except ValueError:
            body["deadline"] = when
        else:
            body["timeout"] = when
    if on_timeout is not None:
        body["on_timeout"] = on_timeout
    if not body:
        raise SettingsError("nothing is to be changed: add a time, or --on-timeout")
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
            help="Edit only if the values are still at this version. Default: the current one.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set values of a run that is paused or waits for an answer."""
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
        text = "\n".join(f"{name} = {value}" for name, value in values.items())
        return [Line("run", run_id), Line("set", text), Line("version", str(view["version"]))]

    exchange(change, lines, as_json=as_json)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise SettingsError(f"{text!r} is not a field with its value: write name=JSON")
    return name, json_given(value, name)


@calls.command("take-back", cls=ErrorText, rich_help_panel=PANEL)
def take_back(
    interrupt_id: Annotated[
        str,
        typer.Argument(metavar="INTERRUPT", help="The id of a held interrupt.", show_default=False),
    ],
    *,
    note: Annotated[
        str | None, typer.Option(help="Why, recorded with it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take back a yes while it is held, so that its question is open again."""
    body = {} if note is None else {"note": note}
    path = f"{interrupt_path(interrupt_id)}/take-back"

    def lines(entry: Any) -> list[Line]:
        from abeyance.cli.formatting import interrupt_lines

        return interrupt_lines([entry])

    exchange(lambda api: api.post(path, body), lines, as_json=as_json)
