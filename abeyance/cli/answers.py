"""Commands that answer an interrupt, and those about who answers: claims and delegations."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import (
    PANEL,
    AsJson,
    Note,
    OpenInterrupt,
    exchange,
    in_path,
    interrupt_path,
    json_given,
    moment_given,
    run_path,
    show_interrupt,
)
from abeyance.cli.errors import ErrorText
from abeyance.cli.formatting import Line, receipt_lines
from abeyance.core.json import canonical
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection

answering = typer.Typer()

_ANSWER_OPTIONS: Final = 5
_MOST_CALLERS: Final = 50
"""Callers who may give a run the same answer by its id, one after the other."""


@answering.command(cls=ErrorText, rich_help_panel=PANEL)
def respond(
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|INTERRUPT",
            help="Id of an interrupt, or of a run with exactly one open interrupt.",
        ),
    ],
    answer: Annotated[
        str | None,
        typer.Argument(metavar="ANSWER", help="The answer: JSON, @FILE, or - for stdin."),
    ] = None,
    *,
    response: Annotated[str | None, typer.Option(help="The same as ANSWER.")] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="The same as '{\"approved\": true}'.")
    ] = False,
    arguments: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help="With --approve: run the tool with these arguments instead.",
        ),
    ] = None,
    remember: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION|JSON",
            help="With --approve: the next calls like this are not asked about, for so long, such as 8h.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="With --remember: in this `run`, or in each of the `graph`. Default: run."
        ),
    ] = None,
    uses: Annotated[
        int | None, typer.Option(help="With --remember: for at most so many calls.")
    ] = None,
    reject: Annotated[
        str | None,
        typer.Option(
            metavar="WHY",
            help='The same as \'{"approved": false, "reason": WHY}\'; without one if WHY is empty.',
        ),
    ] = None,
    result: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE|-",
            help='The same as \'{"approved": false, "result": JSON}\': the tool is not run, and the '
            "model reads this in its place.",
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(help="Note, recorded with the answer.")] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option(help="In whose place you answer, by a delegation.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an interrupt. Sending the same answer again changes nothing and returns the same receipt.

    An answer by the id of a run is for the interrupt that is open when it first arrives. Its repeat never
    answers a later one.
    """
    if arguments is not None and not approve:
        raise SettingsError("--arguments needs an approval: add --approve")
    if remember is not None and not approve:
        raise SettingsError("--remember needs an approval: add --approve")
    if remember is None and (where is not None or uses is not None):
        raise SettingsError("--where and --uses say what is remembered: add --remember, such as 8h")
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
        if remember is not None:
            value["remember"] = _remember(remember, where, uses)
    elif reject is not None:
        value = {"approved": False, **({"reason": reject} if reject else {})}
    elif result is not None:
        value = {"approved": False, "result": json_given(result, "--result")}
    else:
        value = json_given(answer or response or "", "ANSWER")
    run_id, dot, _ = target.rpartition(".")
    body = {"response": value, **without_none(note=note, on_behalf_of=on_behalf_of)}
    if dot:
        body["interrupt_id"] = target
    path = f"{run_path(run_id if dot else target)}/respond"

    async def send(api: Connection) -> Any:
        return await (api.post(path, body) if dot else _answer_run(api, target, body))

    exchange(send, lambda reply: receipt_lines(reply["receipts"]), as_json=as_json)


def _remember(text: str, where: str | None, uses: int | None) -> Any:
    if not text.startswith("{"):
        return {"for": text, "where": where or "run", **without_none(uses=uses)}
    if where is not None or uses is not None:
        raise SettingsError(
            "--remember as JSON says where and for how many calls: leave the rest out"
        )
    return json_given(text, "--remember")


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
    if receipt.get("replayed") and not await _counts(api, receipt):
        id_ = receipt["interrupt_id"]
        raise Refusal(
            Code.STALE,
            f"this answer was accepted at {receipt['accepted_at']} and does not count any more: it was "
            f"taken back, or the question has changed since. Read it, and to answer it as it is now, "
            f"name its id: {id_}",
            last=receipt,
        )
    return answered


async def _counts(api: Connection, receipt: Mapping[str, Any]) -> bool:
    """Return whether an accepted answer still counts, as far as its caller may know."""
    try:
        question = await api.get(interrupt_path(receipt["interrupt_id"]))
    except Refusal as refusal:
        if refusal.code is Code.CAPABILITY_REQUIRED:
            return True
        raise
    votes = question.get("votes") or ()
    return question["status"] != "open" or receipt["answered_by"] in {each["by"] for each in votes}


async def _open_interrupts(api: Connection, path: str) -> list[str]:
    try:
        listed = await api.get(f"{path}/interrupts", status="open")
    except Refusal as refusal:
        # A person who may only answer does not learn which other questions are open: the receipt names
        # the answered one.
        if refusal.code is Code.CAPABILITY_REQUIRED:
            return []
        raise
    return [str(entry["id"]) for entry in listed["items"]]


def _key(run_id: str, body: Mapping[str, Any], number: int) -> str:
    text = canonical({"run": run_id, "number": number, **body})
    # A text that is not Unicode is refused when it is sent.
    return f"respond-{sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"


people = typer.Typer()


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def claim(
    interrupt_id: OpenInterrupt,
    *,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="How long, at most 1d. Default: 30m."),
    ] = None,
    on_behalf_of: Annotated[
        str | None, typer.Option(help="In whose place, by a delegation.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep a question for yourself, so that nobody else answers it meanwhile."""
    body = {"for": for_, "on_behalf_of": on_behalf_of}
    _change(interrupt_id, "claim", body, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def release(interrupt_id: OpenInterrupt, *, as_json: AsJson = False) -> None:
    """End a claim before its time."""
    _change(interrupt_id, "release", {}, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def reassign(
    interrupt_id: OpenInterrupt,
    to: Annotated[
        list[str], typer.Argument(metavar="TO", help="Subjects, and groups as group:finance.")
    ],
    *,
    votes: Annotated[
        bool,
        typer.Option(
            "--votes",
            help="They also vote in place of the people of its quorum: takes runs:control and the "
            "capability of the question.",
        ),
    ] = False,
    note: Note = None,
    as_json: AsJson = False,
) -> None:
    """Replace whom a question is for. A claim ends."""
    body = {"to": to, "votes": votes or None, "note": note}
    _change(interrupt_id, "reassign", body, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def delegate(
    to: Annotated[str, typer.Argument(metavar="TO", help="Who may answer in your place.")],
    until: Annotated[
        str, typer.Argument(metavar="TIME|DURATION", help="Until when: at most 90 days from now.")
    ],
    *,
    capabilities: Annotated[
        list[str] | None,
        typer.Option(
            "--capability",
            help="A capability that is lent. Repeat it for several. Default: all of yours.",
        ),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME|DURATION", help="From when.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let somebody else answer in your place."""
    lent = {"capabilities": capabilities, "reason": reason}
    body = without_none(
        to=to, until=moment_given(until), **lent, **{"from": from_ and moment_given(from_)}
    )
    exchange(lambda api: api.post("/delegations", body), _made, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def delegations(
    *,
    delete: Annotated[
        str | None, typer.Option(metavar="ID", help="Delete this one instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the delegations that you made or may use, or delete one."""

    async def call(api: Connection) -> Any:
        if delete is not None:
            await api.delete(f"/delegations/{in_path(delete, '--delete')}")
        return await api.get("/delegations")

    exchange(call, _listed, as_json=as_json)


@people.command(cls=ErrorText, rich_help_panel=PANEL)
def grants(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[revoke ID]", help="Revoke the grant of this id."),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that let no call run any more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the approvals that you had remembered, with the calls that ran unasked, or revoke one."""
    status = "all" if everything else "standing"
    match words or []:
        case []:
            exchange(lambda api: api.get("/grants", status=status), _grants, as_json=as_json)
        case ["revoke", id_]:
            path = f"/grants/{in_path(id_, 'ID')}"
            exchange(lambda api: api.delete(path), _grant, as_json=as_json)
        case _:
            raise SettingsError("write `abeyance grants`, or `abeyance grants revoke ID`")


def _grant(entry: Mapping[str, Any]) -> list[Line]:
    where = "in every run" if entry["run_id"] is None else f"in the run {entry['run_id']}"
    used = entry["used"]
    most = "" if entry["uses"] is None else f" of {entry['uses']}"
    calls = "call" if (entry["uses"] or len(used)) == 1 else "calls"
    limits = [f"{name} = {canonical(value)}" for name, value in entry["same"].items()]
    limits += [f"{name} < {bound:g}" for name, bound in entry["below"].items()]
    return [
        Line("grant", f"{entry['id']}: {entry['tool']} of {entry['graph']}, {where}"),
        Line("", f"by {entry['by']}, until {entry['until']}"),
        *([Line("", f"if {', '.join(limits)}")] if limits else []),
        Line("", f"{len(used)}{most} {calls}{_over(entry['status'])}"),
        *(Line("used", f"{use['at']} {use['run_id']} {use['call']}") for use in used),
        *([Line("revoked", _revoked(entry))] if entry["revoked_at"] else []),
    ]


def _over(status: str) -> str:
    why = {
        "used-up": "used up",
        "expired": "expired",
        "void": "void: its maker may not say so any more",
    }
    return f", {why[status]}" if status in why else ""


def _revoked(entry: Mapping[str, Any]) -> str:
    by = entry["revoked_by"]
    return f"{entry['revoked_at']}{'' if by is None else f' by {by}'}"


def _grants(page: Mapping[str, Any]) -> list[Line]:
    lines = [line for entry in page["items"] for line in _grant(entry)]
    return lines or [Line("grants", "none")]


def _change(interrupt_id: str, what: str, body: Mapping[str, Any], *, as_json: bool) -> None:
    path = f"{interrupt_path(interrupt_id)}/{what}"
    show_interrupt(lambda api: api.post(path, without_none(**body)), as_json=as_json)


def _made(entry: Mapping[str, Any]) -> list[Line]:
    lent = entry["capabilities"]
    what = "all that questions ask for" if lent is None else ", ".join(lent) or "no capability"
    lines = [
        Line("delegation", f"{entry['id']}: {entry['to']} for {entry['by']}"),
        Line("", f"from {entry['from']} until {entry['until']}"),
        Line("", f"lends {what}"),
    ]
    return lines if not entry["reason"] else [*lines, Line("", str(entry["reason"]))]


def _listed(page: Mapping[str, Any]) -> list[Line]:
    lines = [line for entry in page["items"] for line in _made(entry)]
    return lines or [Line("delegations", "none")]
