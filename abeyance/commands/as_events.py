"""Commands as events of the core. Pure: a command and a time give an event.

An event has the fields of its command by name, and the time; only what text abbreviates (`on_timeout`,
`timeout`) is parsed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, assert_never

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.core import events, idempotency, replies
from abeyance.core.json import Json, sha256, why_not_json
from abeyance.core.ledger import Ledger
from abeyance.core.spec import GoTo, GraphSpec, Halt, ResumeRun
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
        # The core refuses what is not JSON, which no validator can read.
        and why_not_json(answer) is None
    }
    return events.Responded(
        now=now,
        principal=order.principal,
        answers=answers,
        schema_faults=dict.fromkeys(typed, ()) if is_checked else json_schema.faults_of_all(typed),
        digests=order.digests,
        note=order.note,
        on_behalf_of=order.on_behalf_of,
        delegations=order.delegations,
        key=order.key,
    )


def control(
    order: commands.Order, now: datetime
) -> events.Paused | events.Resumed | events.CancelRequested:
    """Return a pause, a resume or a cancel."""
    match order:
        case commands.Pause(on_timeout=text):
            policy = ResumeRun() if text == "resume" else _on_timeout(text)
            return _event(events.Paused, order, now, on_timeout=policy)
        case commands.Resume():
            return _event(events.Resumed, order, now)
        case commands.Cancel():
            return _event(events.CancelRequested, order, now)
        case _:
            assert_never(order)


def evicted(order: commands.Evict, now: datetime) -> events.Evicted:
    """Return an eviction."""
    return _event(events.Evicted, order, now)


def message_sent(
    order: commands.SteerMessage, now: datetime, made_id: str, *, signalled: bool = False
) -> events.MessageSent:
    """Return a message; `made_id` is its id if its sender gave none."""
    fields: dict[str, Any] = {
        name: getattr(order, name) for name in commands.SteerMessage.model_fields
    }
    fields["message_id"] = order.message_id or made_id
    fields["parts"] = tuple(part.model_dump(mode="json", exclude_none=True) for part in order.parts)
    message = events.Message(**fields, sent_at=now)
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
            fault=f"The signal is no message: {place or 'it'}: {first['msg']}.",
        )
    return message_sent(order, now, made_id, signalled=True)


def messages_cleared(order: commands.ClearMessages, now: datetime) -> events.MessagesCleared:
    """Return the clearing of the unread messages."""
    return _event(events.MessagesCleared, order, now)


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
            return _event(events.ValuesEdited, order, now)
        case commands.EditDeadline():
            return _deadline_edited(order, now)
        case commands.TakeBack():
            return _event(events.TakenBack, order, now)
        case commands.Claim():
            return events.Claimed(
                now=now,
                principal=order.principal,
                interrupt_id=order.interrupt_id,
                seconds=order.for_,
                on_behalf_of=order.on_behalf_of,
                delegations=order.delegations,
                key=order.key,
            )
        case commands.ReleaseClaim():
            return _event(events.Released, order, now)
        case commands.Reassign():
            return _event(events.Reassigned, order, now)
        case _:
            assert_never(order)


def _deadline_edited(order: commands.EditDeadline, now: datetime) -> events.DeadlineEdited:
    deadline = order.deadline
    if isinstance(order.timeout, float):
        deadline = now + timedelta(seconds=order.timeout)
    return _event(
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

    One that only stands for the call, whose graph is not known, has no `versions`.
    """
    return events.Migrated(
        now=now,
        principal=order.principal,
        spec=spec,
        dry_run=order.dry_run,
        versions=versions,
        patch=patch,
        renames=order.map,
        request=sha256([order.patch, order.map]),
        key=order.key,
    )


def _event(kind: Callable[..., E], order: wire.Request, now: datetime, **parsed: Any) -> E:
    """Return the event with the fields of a command, in place of which some are `parsed`."""
    fields = {name: getattr(order, name) for name in type(order).model_fields}
    return kind(now=now, **{**fields, **parsed})


def _on_timeout(text: str) -> Halt | GoTo:
    return Halt() if text == "halt" else GoTo(node=text.removeprefix("goto:"))
