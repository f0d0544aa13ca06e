"""The command that answers an interrupt, once, however often it is repeated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, AsJson, exchange, json_given, run_path
from abeyance.cli.errors import ErrorText
from abeyance.errors import Code, Refusal, SettingsError

if TYPE_CHECKING:
    from abeyance.cli.formatting import Line
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
