"""Commands as events of the core. Pure: a command and a time give an event.

An event has the fields of its command by name, and the time; only what text abbreviates (`on_timeout`,
`timeout`) is parsed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_never

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.core import approvals, events, idempotency, replies
from abeyance.core.json import Json, sha256, why_not_json
from abeyance.core.ledger import Ledger
from abeyance.core.spec import GoTo, GraphSpec, Halt, ResumeRun
from abeyance.duration import positive_seconds
from abeyance.schemas import json_schema

E = TypeVar("E")


def responded(
    order: commands.Respond,
    book: Ledger,
    now: datetime,
    *,
    keys: idempotency.Keys | None = None,
    is_checked: bool = False,
) -> events.Responded:
    """Return an answer, validated by the schemas of the open interrupts that it names.

    With `is_checked` it was accepted before and is not validated again: a replay accepts it even if the
    schema has changed. Raises the Refusals `nothing_open` and `ambiguous_interrupt` if it names no
    interrupt and there is not exactly one.
    """
    if order.responses is not None:
        answers: dict[str, Json] = dict(order.responses)
    else:
        # A repeated answer without an id is for the interrupt that the first one answered.
        id_ = order.interrupt_id
        if id_ is None:
            id_ = idempotency.addressee(keys or {}, order.key)
        if id_ is None:
            id_ = replies.addressee(book, order.response, order.principal)
        answers = {id_: order.response}
    typed = {
        id_: (book.open[id_].response_schema, answer)
        for id_, answer in answers.items()
        if id_ in book.open
        and book.open[id_].response_schema is not None
        # The core refuses an answer that is not JSON; no validator can read it.
        and why_not_json(answer) is None
    }
    faults = dict.fromkeys(typed, ()) if is_checked else json_schema.faults_of_all(typed)
    lasts: dict[str, float] = {}
    for id_, (_, answer) in typed.items():
        if not faults[id_] and approvals.asks_to_remember(book.open[id_], answer):
            try:
                lasts[id_] = positive_seconds(answer["remember"]["for"])
            except ValueError as error:
                fault = events.SchemaFault(pointer="/remember/for", message=str(error))
                faults = {**faults, id_: (fault,)}
    return event(events.Responded, order, now, answers=answers, schema_faults=faults, lasts=lasts)


def control(
    order: commands.Order, now: datetime
) -> events.Paused | events.Resumed | events.CancelRequested:
    """Return a pause, a resume or a cancel."""
    match order:
        case commands.Pause(on_timeout=text):
            policy = ResumeRun() if text == "resume" else _on_timeout(text)
            return event(events.Paused, order, now, on_timeout=policy)
        case commands.Resume():
            return event(events.Resumed, order, now)
        case commands.Cancel():
            return event(events.CancelRequested, order, now)
        case _:
            assert_never(order)


def message_sent(
    order: commands.SteerMessage, now: datetime, made_id: str, *, signalled: bool = False
) -> events.MessageSent:
    """Return a message; `made_id` is its id if its sender gave none."""
    given = _shared(events.Message, order)
    given["message_id"] = order.message_id or made_id
    given["parts"] = tuple(part.model_dump(mode="json", exclude_none=True) for part in order.parts)
    message = events.Message(**given, sent_at=now)
    return events.MessageSent(now=now, message=message, signalled=signalled)


def message_signalled(value: Any, now: datetime, made_id: str) -> events.MessageSent:
    """Return the message of a signal, whose argument may be anything."""
    try:
        order = commands.SteerMessage.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"/{part}" for part in first["loc"])
        return events.MessageSent(
            now=now,
            message=events.Message(message_id=made_id, text=str(value)[:200], sender="temporal"),
            signalled=True,
            fault=f"The signal is not a message: {place or 'it'}: {first['msg']}.",
        )
    return message_sent(order, now, made_id, signalled=True)


def edited(
    order: commands.Edit, now: datetime
) -> (
    events.ValuesEdited
    | events.DeadlineEdited
    | events.TakenBack
    | events.Claimed
    | events.Released
    | events.Reassigned
):
    """Return the event of an edit."""
    match order:
        case commands.EditValues():
            return event(events.ValuesEdited, order, now)
        case commands.EditDeadline():
            return _deadline_edited(order, now)
        case commands.TakeBack():
            return event(events.TakenBack, order, now)
        case commands.Claim():
            return event(events.Claimed, order, now, seconds=order.for_)
        case commands.ReleaseClaim():
            return event(events.Released, order, now)
        case commands.Reassign():
            return event(events.Reassigned, order, now)
        case _:
            assert_never(order)


def _deadline_edited(order: commands.EditDeadline, now: datetime) -> events.DeadlineEdited:
    deadline = order.deadline
    if isinstance(order.timeout, float):
        deadline = now + timedelta(seconds=order.timeout)
    return event(
        events.DeadlineEdited,
        order,
        now,
        moves=bool({"deadline", "timeout"} & order.model_fields_set),
        deadline=deadline,
        on_timeout=None if order.on_timeout is None else _on_timeout(order.on_timeout),
    )


def migrated(
    order: commands.Migrate,
    now: datetime,
    *,
    spec: GraphSpec,
    patch: Mapping[str, Json],
    versions: tuple[str, str] = ("", ""),
) -> events.Migrated:
    """Return a migration to `spec`, with the patch as its state model writes it.

    A migration whose graph is not known yet has no `versions`.
    """
    return event(
        events.Migrated,
        order,
        now,
        spec=spec,
        versions=versions,
        patch=patch,
        renames=order.map,
        request=sha256([order.patch, order.map]),
    )


def event(kind: Callable[..., E], order: wire.Request, now: datetime, **parsed: Any) -> E:
    """Return the event with the fields that it has in common with a command, and what is `parsed`."""
    return kind(now=now, **{**_shared(kind, order), **parsed})


def _shared(kind: Any, order: wire.Request) -> dict[str, Any]:
    names = {field.name for field in fields(kind)} & type(order).model_fields.keys()
    return {name: getattr(order, name) for name in names}


def _on_timeout(text: str) -> Halt | GoTo:
    return Halt() if text == "halt" else GoTo(node=text.removeprefix("goto:"))
