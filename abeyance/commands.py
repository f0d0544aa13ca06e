"""What people send, as events of the core. Pure: an order and a moment give an event."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_never

from pydantic import ValidationError

from abeyance import wire
from abeyance.core import events, idempotency, ledger
from abeyance.core.json import Json, why_not_json
from abeyance.core.ledger import Ledger
from abeyance.core.spec import GoTo, Halt, OnPauseTimeout, ResumeRun
from abeyance.schemas import json_schema

_GOTO = "goto:"


def responded(
    order: wire.Respond,
    book: Ledger,
    now: datetime,
    *,
    known: idempotency.Keys | None = None,
    is_checked: bool = False,
) -> events.Responded:
    """An answer, held against the schemas of the open interrupts that it names; not again where it has
    been already: what was taken once is taken in each replay, whatever a schema may have by then.

    Raises the Refusal `ambiguous_interrupt` if it names none and there is not exactly one.
    """
    if order.responses is not None:
        answers: dict[str, Json] = dict(order.responses)
    else:
        # The repeat of an answer without an id is for what the first was for.
        named = order.interrupt_id
        if named is None:
            named = idempotency.addressee(known or {}, order.key)
        answers = {ledger.addressee(book) if named is None else named: order.response}
    asked = {
        id_: (book.open[id_].response_schema, answer)
        for id_, answer in answers.items()
        if id_ in book.open
        and book.open[id_].response_schema is not None
        # What is not JSON is refused as such, and no validator could say anything of it.
        and why_not_json(answer) is None
    }
    return events.Responded(
        now=now,
        principal=order.principal,
        answers=answers,
        schema_faults=dict.fromkeys(asked, ()) if is_checked else json_schema.faults_of_all(asked),
        digests=order.digests,
        note=order.note,
        key=order.key,
    )


def control(
    order: wire.Order, now: datetime
) -> events.Paused | events.Resumed | events.CancelRequested:
    """A pause, a resume or a cancel."""
    match order:
        case wire.Pause():
            return paused(order, now)
        case wire.Resume():
            return resumed(order, now)
        case wire.Cancel():
            return cancel_requested(order, now)
        case _:
            assert_never(order)


def paused(order: wire.Pause, now: datetime) -> events.Paused:
    """A pause."""
    return events.Paused(
        now=now,
        actor=order.actor,
        reason=order.reason,
        mode=order.mode,
        timeout=order.timeout,
        on_timeout=_on_pause_timeout(order.on_timeout),
        capabilities=order.capabilities,
        key=order.key,
    )


def resumed(order: wire.Resume, now: datetime) -> events.Resumed:
    """The end of a pause."""
    return events.Resumed(now=now, actor=order.actor, reason=order.reason, key=order.key)


def cancel_requested(order: wire.Cancel, now: datetime) -> events.CancelRequested:
    """A cancel."""
    return events.CancelRequested(
        now=now,
        actor=order.actor,
        reason=order.reason,
        mode=order.mode,
        grace=order.grace,
        key=order.key,
    )


def evicted(order: wire.Evict, now: datetime) -> events.Evicted:
    """An eviction."""
    return events.Evicted(now=now, actor=order.actor, inactive_since=order.inactive_since)


def message_sent(
    order: wire.SteerMessage, now: datetime, made_id: str, *, signalled: bool = False
) -> events.MessageSent:
    """A message; `made_id` is its id if its sender gave none."""
    message = events.Message(
        message_id=order.message_id or made_id,
        text=order.text,
        sender=order.sender,
        metadata=order.metadata,
        parts=tuple(part.model_dump(mode="json", exclude_none=True) for part in order.parts),
        action=order.action,
        params=order.params,
        target=order.target,
        priority=order.priority,
        ttl=order.ttl,
        sent_at=now,
        capabilities=order.capabilities,
    )
    return events.MessageSent(now=now, message=message, signalled=signalled)


def message_signalled(given: Any, now: datetime, made_id: str) -> events.MessageSent:
    """A message that a signal brought, which may be anything."""
    try:
        order = wire.SteerMessage.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"/{part}" for part in first["loc"])
        return events.MessageSent(
            now=now,
            message=events.Message(message_id=made_id, text=str(given)[:200], sender="temporal"),
            signalled=True,
            fault=f"The signal is no message: {place or 'it'}: {first['msg']}.",
        )
    return message_sent(order, now, made_id, signalled=True)


def messages_taken(order: wire.TakeMessages, now: datetime) -> events.MessagesTaken:
    """A visit takes messages."""
    return events.MessagesTaken(now=now, visit=order.visit, upto=order.upto)


def messages_cleared(order: wire.ClearMessages, now: datetime) -> events.MessagesCleared:
    """Somebody throws the unread messages away."""
    return events.MessagesCleared(now=now, actor=order.actor, key=order.key)


def values_edited(order: wire.EditValues, now: datetime) -> events.ValuesEdited:
    """An edit of the values."""
    return events.ValuesEdited(
        now=now,
        principal=order.principal,
        patch=order.patch,
        version=order.version,
        key=order.key,
    )


def deadline_edited(order: wire.EditDeadline, now: datetime) -> events.DeadlineEdited:
    """An edit of a deadline."""
    deadline = order.deadline
    if order.timeout is not None:
        deadline = now + timedelta(seconds=order.timeout)
    return events.DeadlineEdited(
        now=now,
        principal=order.principal,
        interrupt_id=order.interrupt_id,
        moves=bool({"deadline", "timeout"} & order.model_fields_set),
        deadline=deadline,
        timeout=order.timeout,
        key=order.key,
        on_timeout=None if order.on_timeout is None else _on_timeout(order.on_timeout),
    )


def _on_pause_timeout(text: str) -> OnPauseTimeout:
    return ResumeRun() if text == "resume" else _on_timeout(text)


def _on_timeout(text: str) -> Halt | GoTo:
    return Halt() if text == "halt" else GoTo(node=text.removeprefix(_GOTO))
