"""Requests to a run: decode signals, verify stamps, and answer with a refusal or a receipt.

The SDK (1.35.0) drops a signal that it cannot decode, with one line in the worker's log. So signals
arrive here as raw payloads, and a signal that the run cannot carry out becomes an event. A worker that
lacks the key of a signal refuses it instead of failing the task forever; a marker in the history makes
a worker that has the key decide the same on replay.

Anybody with write access to the namespace can resend a request: to another run, twice to the same run, or
under another name. `abeyance.storage.encryption` refuses requests that were sealed for another run.
Stamps prevent the other cases: each names a request and an execution. A message has an id, and an answer
a key or the digest of its question, so that a copy of it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, wire
    from abeyance.commands import as_events
    from abeyance.core import events
    from abeyance.core.events import Control, Signal
    from abeyance.core.outcome import Failed
    from abeyance.errors import Code, FailureCode, Refusal
    from abeyance.storage.converter import is_unread, stamp_of

T = TypeVar("T")
Order = TypeVar("Order", bound=wire.Request)

NOTHING: Final = RawValue(Payload())
"""The payload of a signal without an argument."""

_KINDS: Final[dict[Control, type[commands.Order]]] = {
    "pause": commands.Pause,
    "resume": commands.Resume,
    "cancel": commands.Cancel,
}
_SHOWN_CHARS: Final = 200
_MARK: Final = "unreadable-signal-"
_UNDECRYPTED: Final = (
    "The signal cannot be decrypted: the worker lacks the key (ABEYANCE_ENCRYPTION_KEYS), or the signal "
    "is damaged."
)
"""Names no key, so that a worker with other keys replays the same."""

Read: TypeAlias = Callable[[RawValue], Sequence[events.Event]]
"""Converts the argument of an internal signal to events. Raises the Refusal of an unreadable one."""


class StampChecker:
    """Verifies the stamps of one run's requests, across continue-as-new."""

    def __init__(self, start: wire.StartRun) -> None:
        # Fixed at the start of the run, so that replays decide the same.
        self._takes_sealed_only = start.stamp is not None
        self._execution = workflow.info().first_execution_run_id
        self.takes_updates = True

    def check_update(self, name: str, stamp: wire.Stamp | None) -> None:
        """Raise the Refusal of an update without a valid stamp, or before the run has started."""
        self.check(name, stamp)
        if not self.takes_updates:
            raise Refusal(
                Code.UNAVAILABLE, "The run is being rewound to its start: repeat the request."
            )

    def check(self, name: str, stamp: wire.Stamp | None) -> None:
        """Raise the Refusal of a request without a valid stamp."""
        if stamp is None:
            if self._takes_sealed_only:
                raise Refusal(
                    Code.NOT_SEALED,
                    f"The run accepts only sealed requests, and this {name!r} is not sealed: send it by "
                    "a client or an API with the same ABEYANCE_ENCRYPTION_KEYS and "
                    "ABEYANCE_ENCRYPTION_REQUIRED.",
                )
        elif (stamp.order, stamp.execution) != (name, self._execution):
            raise Refusal(
                Code.NOT_SEALED,
                f"This was sealed as {stamp.order!r} for the execution {stamp.execution!r}, but "
                f"received as {name!r} by {self._execution!r}: it is a copy of another request.",
            )

    def checked_report(self, visit: str, report: wire.VisitReport) -> wire.VisitReport:
        """Return the report of a visit; a failure if the report was sealed for another visit."""
        stamp = report.stamp
        whose = None if stamp is None else (stamp.order, stamp.execution)
        if whose == (visit, self._execution) or (stamp is None and not self._takes_sealed_only):
            return report
        message = (
            f"the result of {visit!r} was not sealed for this visit: set ABEYANCE_ENCRYPTION_REQUIRED "
            "for all workers, and check which other clients complete activities"
        )
        failed = Failed(code=FailureCode.NODE_FAILED, message=message)
        return wire.VisitReport(outcome=failed, took=report.took)


class Signals:
    """Decodes the signals of one history, which must arrive in order. `stamps` verifies their stamps."""

    def __init__(self, stamps: StampChecker | None = None) -> None:
        self._stamps = stamps
        self._count = 0
        self._length = 0
        self._taken: Counter[str] = Counter()

    def event_of(self, name: Signal, argument: RawValue) -> events.Event | None:
        """Convert a signal to its event, None if it is dropped. Raises the Refusal of an unreadable
        signal, and `queue_full` for the first that is dropped.
        """
        if not self._takes(name):
            return None
        if name == "steer":
            return self._message(argument)
        return as_events.control(self._order(name, argument, _KINDS[name]), workflow.now())

    def visit_blocked(self, argument: RawValue) -> list[events.VisitBlocked]:
        """Convert the signal of a worker to its event. Raises the Refusal of an unreadable signal."""
        if not self._takes("visit_blocked"):
            return []
        told = self.value(argument, wire.VisitBlocked, name="visit_blocked")
        if not isinstance(told, wire.VisitBlocked):
            raise _unreadable("the signal 'visit_blocked' takes the visit and the code")
        blocked = events.VisitBlocked(
            now=workflow.now(),
            visit=told.visit,
            code=told.code,
            message=told.message,
            journal=told.journal,
            is_unread=told.unread,
        )
        return [blocked]

    def worker_started(self, argument: RawValue) -> list[events.WorkerStarted]:
        """Convert the signal of a worker to its event. Raises the Refusal of an unreadable signal."""
        if not self._takes("worker_started"):
            return []
        self.value(argument, wire.WorkerStarted, name="worker_started")
        return [events.WorkerStarted(now=workflow.now())]

    def notification_failed(self, argument: RawValue) -> list[events.NotificationFailed]:
        """Convert the signal of a notification to events. Raises the Refusal of an unreadable signal."""
        if not self._takes("notification_failed"):
            return []
        failed = self.value(argument, wire.NotificationFailed, name="notification_failed")
        if failed is None:
            raise _unreadable("the signal 'notification_failed' takes what was not delivered")
        return [
            events.NotificationFailed(
                now=workflow.now(),
                about=failed.about,
                receiver=each.receiver,
                reason=each.reason,
                attempts=each.attempts,
                interrupt=failed.interrupt,
            )
            for each in failed.undelivered
        ]

    def _takes(self, name: str) -> bool:
        """Count a signal. Return False if the workflow task has no time for it; raise `queue_full` for
        the first of those.
        """
        length = workflow.info().get_current_history_length()
        if length != self._length:
            self._length = length
            self._taken.clear()
        self._taken[name] += 1
        if self._taken[name] == names.MOST_IN_A_TASK + 1:
            raise Refusal(
                Code.QUEUE_FULL,
                f"More than {names.MOST_IN_A_TASK} signals {name!r} came while no worker took them: this "
                "one and those after it are dropped.",
                limit=names.MOST_IN_A_TASK,
            )
        return self._taken[name] <= names.MOST_IN_A_TASK

    def _message(self, argument: RawValue) -> events.MessageSent:
        """Convert a signal to a message event; an unreadable one becomes a rejected message."""
        now = workflow.now()
        if self._is_unread(argument):
            empty = events.Message(message_id=str(workflow.uuid4()), text="", sender="temporal")
            return events.MessageSent(now=now, message=empty, signalled=True, fault=_UNDECRYPTED)
        try:
            self._take("steer", argument)
        except Refusal as refusal:
            empty = events.Message(message_id=str(workflow.uuid4()), text="", sender="temporal")
            return events.MessageSent(now=now, message=empty, signalled=True, fault=refusal.message)
        try:
            content = _value(argument, object)
        except Refusal:
            content = argument.payload.data.decode(errors="replace")
        return as_events.message_signalled(content, now, str(workflow.uuid4()))

    def value(self, argument: RawValue, kind: type[T], *, name: str = "") -> T | None:
        """Decode the argument of the signal `name`, None without one. Raises the Refusal of a bad one."""
        if self._is_unread(argument):
            raise Refusal(Code.INVALID_BODY, _UNDECRYPTED)
        self._take(name, argument)
        value: T | None = _value(argument, kind)
        return value

    def _order(self, name: Control, argument: RawValue, kind: type[Order]) -> Order:
        value = self.value(argument, kind, name=name)
        if value is None:
            return kind()
        if not isinstance(value, kind):
            raise _unreadable(f"the signal {name!r} takes JSON, not bytes")
        return value

    def _take(self, name: str, argument: RawValue) -> None:
        if self._stamps is not None:
            self._stamps.check(name, stamp_of(argument.payload))

    def _is_unread(self, argument: RawValue) -> bool:
        """Return True if the worker that received the signal first could not decrypt it."""
        self._count += 1
        mark = f"{_MARK}{self._count}"
        if not is_unread(argument.payload):
            return workflow.unsafe.is_replaying() and workflow.patched(mark)
        if not workflow.patched(mark):
            # Another worker decrypted it before: this worker cannot replay it, and raises the reason.
            workflow.payload_converter().from_payload(argument.payload)
        workflow.logger.warning("code=%s | a signal cannot be decrypted", Code.INVALID_BODY)
        return True


def refused(name: Signal, refusal: Refusal) -> events.SignalRefused:
    """Return the event of a refused signal."""
    return events.SignalRefused(
        now=workflow.now(), signal=name, code=str(refusal.code), reason=refusal.message
    )


def _value(argument: RawValue, kind: type) -> Any:
    if argument.payload == NOTHING.payload:
        return None
    try:
        return workflow.payload_converter().from_payload(argument.payload, _or_nothing(kind))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"/{part}" for part in first["loc"])
        raise _unreadable(f"{place or 'the argument'}: {first['msg']}", argument) from None
    except ApplicationError as error:
        # A payload that was sealed for another run, for example.
        raise Refusal(Code.NOT_SEALED, error.message) from None
    except (KeyError, ValueError, RuntimeError) as error:
        raise _unreadable(str(error), argument) from None


def _or_nothing(kind: type) -> Any:
    # Null means no argument.
    return Any if kind is object else kind | None


def _unreadable(why: str, argument: RawValue = NOTHING) -> Refusal:
    shown = argument.payload.data[:_SHOWN_CHARS].decode(errors="replace")
    return Refusal(
        Code.INVALID_BODY,
        f"The signal cannot be read: {why[:_SHOWN_CHARS]}. Its argument is {shown!r}; send JSON, or "
        "nothing.",
    )


@contextmanager
def refusals_as_application_errors() -> Iterator[None]:
    """Convert a Refusal to an ApplicationError whose type is the code."""
    try:
        yield
    except Refusal as refusal:
        # No history has a request that a validator refuses.
        rejected = (names.REJECTED,) if workflow.unsafe.is_read_only() else ()
        raise ApplicationError(
            refusal.message,
            dict(refusal.details),
            *rejected,
            type=refusal.code,
            non_retryable=True,
        ) from None


def replayed(receipt: wire.Record) -> ApplicationError:
    """Return the error with which a validator rejects a repeated request; it contains the receipt."""
    return ApplicationError(
        "the request was received before",
        receipt.model_dump(mode="json"),
        type=names.REPLAYED,
        non_retryable=True,
    )
