"""What a signal brings, read by the run itself.

The SDK drops a signal that it cannot read, with no more than a line in the worker's log, and nobody waits
for the answer of a signal. So the run takes what comes as it is, and tells as an event what it could not
carry out.

Where the worker has not the key that a signal takes, it is refused too, and not brought again for ever. A
worker that has the key must then decide the same when it replays the history, so that is written into it.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from abeyance import commands, wire
from abeyance.core import events
from abeyance.core.events import Control
from abeyance.errors import Code, Refusal
from abeyance.storage.converter import is_unread, stamp_of
from abeyance.workflows.orders import Orders

T = TypeVar("T")
Order = TypeVar("Order", bound=wire.Request)

NOTHING: Final = RawValue(Payload())
"""What a signal without an argument brings."""

_KINDS: Final[dict[Control, type[wire.Order]]] = {
    "pause": wire.Pause,
    "resume": wire.Resume,
    "cancel": wire.Cancel,
}
_SHOWN_CHARS: Final = 200
_MARK: Final = "unreadable-signal-"
_UNDECRYPTED: Final = (
    "The signal cannot be read: it is encrypted, and the worker could not decrypt it. Either that lacks "
    "the key (ABEYANCE_ENCRYPTION_KEYS), or what came is damaged."
)
"""It names no key, so that a worker with other keys replays the same."""


class Signals:
    """Reads what the signals of one history bring, which have to come here in their order.

    `orders` says which of them are taken; without it all are.
    """

    def __init__(self, orders: Orders | None = None) -> None:
        self._orders = orders
        self._count = 0

    def event_of(self, name: Control, brought: RawValue) -> events.Event:
        """The event that a control signal means. Raises the Refusal of what cannot be read."""
        return commands.control(self._order(name, brought, _KINDS[name]), workflow.now())

    def message(self, brought: RawValue) -> events.MessageSent:
        """The message that a signal brings, whatever it is: what is none is told as rejected."""
        now = workflow.now()
        if self._is_unread(brought):
            made = events.Message(message_id=str(workflow.uuid4()), text="", sender="temporal")
            return events.MessageSent(now=now, message=made, signalled=True, fault=_UNDECRYPTED)
        try:
            self._take("steer", brought)
        except Refusal as refusal:
            made = events.Message(message_id=str(workflow.uuid4()), text="", sender="temporal")
            return events.MessageSent(now=now, message=made, signalled=True, fault=refusal.message)
        try:
            given = _value(brought, object)
        except Refusal:
            given = brought.payload.data.decode(errors="replace")
        return commands.message_signalled(given, now, str(workflow.uuid4()))

    def value(self, brought: RawValue, kind: type[T], *, name: str = "") -> T | None:
        """What a signal brings, None if nothing. Raises the Refusal of what is not taken, or cannot be
        read. `name` is that of the signal.
        """
        if self._is_unread(brought):
            raise Refusal(Code.INVALID_BODY, _UNDECRYPTED)
        self._take(name, brought)
        found: T | None = _value(brought, kind)
        return found

    def _order(self, name: Control, brought: RawValue, kind: type[Order]) -> Order:
        found = self.value(brought, kind, name=name)
        if found is None:
            return kind()
        if not isinstance(found, kind):
            raise _unreadable(f"the signal {name!r} is JSON, and it brings bytes")
        return found

    def _take(self, name: str, brought: RawValue) -> None:
        if self._orders is not None:
            self._orders.use(name, stamp_of(brought.payload))

    def _is_unread(self, brought: RawValue) -> bool:
        """Whether the worker that got the signal first could not decrypt it."""
        self._count += 1
        mark = f"{_MARK}{self._count}"
        if not is_unread(brought.payload):
            return workflow.unsafe.is_replaying() and workflow.patched(mark)
        if not workflow.patched(mark):
            # It was read when it came: this worker cannot replay it, and says why.
            workflow.payload_converter().from_payload(brought.payload)
        workflow.logger.warning("code=%s | a signal cannot be decrypted", Code.INVALID_BODY)
        return True


def refused(name: Control, refusal: Refusal) -> events.SignalRefused:
    """The event that tells of a signal that was refused."""
    return events.SignalRefused(
        now=workflow.now(), signal=name, code=str(refusal.code), reason=refusal.message
    )


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
