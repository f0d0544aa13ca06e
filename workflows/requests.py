"""Requests to a run: decode signals, verify stamps, and answer with a refusal or a receipt.

The SDK drops a signal that it cannot decode, with one line in the worker's log. So signals arrive here as
raw payloads, and a signal that the run cannot carry out becomes an event. A worker that lacks the key of
a signal refuses it instead of failing the task forever; a marker in the history makes a worker that has
the key decide the same on replay.

Anybody with write access to the namespace can resend a request: to another run, twice to the same run, or
under another name. `abeyance.storage.encryption` refuses what was sealed for another run. Stamps prevent
the rest: each names a request and an execution, and carries a nonce that counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, wire
    from abeyance.core import events
    from abeyance.core.events import Control
    from abeyance.core.outcome import Failed
    from abeyance.errors import Code, FailureCode, Refusal
    from abeyance.storage.converter import is_unread, stamp_of

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
_REMEMBERED: Final = 200


class Orders:
    """The orders of one run, in all its histories."""

    def __init__(self, start: wire.StartRun) -> None:
        self.used = start.used
        # A run keeps to what it began with, or a replay would judge otherwise than the run itself did.
        self._takes_sealed_only = start.stamp is not None
        self._execution = workflow.info().first_execution_run_id

    def check(self, name: str, stamp: wire.Stamp | None) -> None:
        """Raise the Refusal of an order that is not taken."""
        self.check_sealed(name, stamp)
        if stamp is None:
            return
        is_older = len(self.used) == _REMEMBERED and stamp.nonce < self.used[0]
        if is_older or stamp.nonce in self.used:
            raise Refusal(
                Code.NOT_SEALED,
                f"This {name!r} has come before, or is older than {_REMEMBERED} others that have, and "
                "counts once. Whoever means it again sends a new one.",
            )

    def check_sealed(self, name: str, stamp: wire.Stamp | None) -> None:
        """The same, except that a repeat passes: for where it is told what came of the first."""
        if stamp is None:
            if self._takes_sealed_only:
                raise Refusal(
                    Code.NOT_SEALED,
                    f"The run takes only what is sealed for it, and this {name!r} was not: send it by a "
                    "client or an API with the same ABEYANCE_ENCRYPTION_KEYS and "
                    "ABEYANCE_ENCRYPTION_REQUIRED.",
                )
        elif (stamp.order, stamp.execution) != (name, self._execution):
            raise Refusal(
                Code.NOT_SEALED,
                f"This was sealed as {stamp.order!r} for the execution {stamp.execution!r}, and came as "
                f"{name!r} to {self._execution!r}: it is a copy of what was sent before.",
            )

    def own(self, visit: str, report: wire.VisitReport) -> wire.VisitReport:
        """How a visit ended, as it was reported: by a copy of what another one has returned it fails."""
        stamp = report.stamp
        whose = None if stamp is None else (stamp.order, stamp.execution)
        if whose == (visit, self._execution) or (stamp is None and not self._takes_sealed_only):
            return report
        message = (
            f"what was handed in as the result of {visit!r} was not sealed for this visit; set "
            "ABEYANCE_ENCRYPTION_REQUIRED for all workers, and look who else completes activities"
        )
        failed = Failed(code=FailureCode.NODE_FAILED, message=message)
        return wire.VisitReport(outcome=failed, took=report.took)

    def use(self, name: str, stamp: wire.Stamp | None) -> None:
        """Take an order, and no copy of it from now on. Raises as `check` does."""
        self.check(name, stamp)
        if stamp is not None:
            # They grow with time: what is forgotten is older than all that is remembered.
            self.used = tuple(sorted((*self.used, stamp.nonce))[-_REMEMBERED:])


def check_shown(
    stamp: wire.Stamp | None, answered: Collection[str], asked: Mapping[str, str]
) -> None:
    """Raise `stale` if an answer was sealed for other questions than those that it would answer.

    `asked` are the digests of the open ones by their ids.
    """
    for id_ in answered:
        if stamp is not None and id_ in asked and stamp.shown.get(id_) != asked[id_]:
            raise Refusal(
                Code.STALE,
                f"The answer was sealed for something else than what {id_!r} asks now. Read the "
                "interrupt again.",
                interrupt_id=id_,
                digest=asked[id_],
            )


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


@contextmanager
def refusals_as_application_errors() -> Iterator[None]:
    """Raise a refusal as Temporal carries it, by an ApplicationError whose type is the code."""
    try:
        yield
    except Refusal as refusal:
        raise ApplicationError(
            refusal.message, dict(refusal.details), type=refusal.code, non_retryable=True
        ) from None


def replayed(receipt: wire.Record) -> ApplicationError:
    """What a validator turns a repeat away with: it has the receipt in it."""
    return ApplicationError(
        "the same came before",
        receipt.model_dump(mode="json"),
        type=wire.REPLAYED,
        non_retryable=True,
    )
