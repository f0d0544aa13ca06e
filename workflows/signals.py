"""What a signal brings, read by the run itself.

The SDK drops a signal that it cannot read, with no more than a line in the worker's log, and nobody waits
for the answer of a signal. So the run takes what comes as it is, and tells as an event what it could not
carry out.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from abeyance import arrivals, wire
from abeyance.core import events
from abeyance.core.events import Control
from abeyance.errors import Code, Refusal
from abeyance.storage import converter

T = TypeVar("T", bound=wire.Request)

NOTHING: Final = RawValue(Payload())
"""What a signal without an argument brings."""

_SHOWN_CHARS: Final = 200


def event_of(name: Control, brought: RawValue) -> events.Event:
    """The event that a control signal means. Raises the Refusal of what cannot be read."""
    now = workflow.now()
    match name:
        case "pause":
            return arrivals.paused(_order(name, brought, wire.Pause), now)
        case "resume":
            return arrivals.resumed(_order(name, brought, wire.Resume), now)
        case "cancel":
            return arrivals.cancel_requested(_order(name, brought, wire.Cancel), now)


def refused(name: Control, refusal: Refusal) -> events.SignalRefused:
    """The event that tells of a signal that was refused."""
    return events.SignalRefused(
        now=workflow.now(), signal=name, code=str(refusal.code), reason=refusal.message
    )


def stamp_of(brought: RawValue) -> wire.Stamp | None:
    """The stamp that was sealed with what a signal brings."""
    return converter.stamp_of(brought.payload)


def message_refused(refusal: Refusal) -> events.MessageSent:
    """The event that tells of a message that is not even read."""
    nothing = events.Message(message_id=str(workflow.uuid4()), text="", sender="temporal")
    return events.MessageSent(
        now=workflow.now(), message=nothing, signalled=True, fault=refusal.message
    )


def message(brought: RawValue, *, is_told: bool) -> events.MessageSent | None:
    """The message that a signal brings, whatever it is: what is none is told as rejected.

    None for what a history that began with older rules (not `is_told`) has dropped.
    """
    try:
        given = _value(brought, object)
    except Refusal:
        if not is_told:
            return None
        given = brought.payload.data.decode(errors="replace")
    return arrivals.message_signalled(given, workflow.now(), str(workflow.uuid4()))


def _order(name: Control, brought: RawValue, kind: type[T]) -> T:
    found = _value(brought, kind)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise _unreadable(f"the signal {name!r} is JSON, and it brings bytes")
    return found


def _value(brought: RawValue, kind: type) -> Any:
    if brought.payload == NOTHING.payload:
        return None
    try:
        return workflow.payload_converter().from_payload(brought.payload, _or_nothing(kind))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"/{part}" for part in first["loc"])
        raise _unreadable(f"{place or 'what it brings'}: {first['msg']}", brought) from None
    except ApplicationError as error:
        # What was sealed for another run, say, is not read at all.
        raise Refusal(Code.NOT_SEALED, error.message) from None
    except (KeyError, ValueError, RuntimeError) as error:
        raise _unreadable(str(error), brought) from None


def _or_nothing(kind: type) -> Any:
    # As in a signal by hand, where null is nothing.
    return Any if kind is object else kind | None


def _unreadable(why: str, brought: RawValue = NOTHING) -> Refusal:
    shown = brought.payload.data[:_SHOWN_CHARS].decode(errors="replace")
    return Refusal(
        Code.INVALID_BODY,
        f"The signal cannot be read: {why[:_SHOWN_CHARS]}. It brought {shown!r}; send JSON, or nothing.",
    )
