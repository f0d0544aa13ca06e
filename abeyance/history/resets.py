"""Resets of a run by Temporal: the event of a history to reset to, and who asked for it. Pure.

A question is opened in a workflow task. To have it open again under its id, what this task has written is
kept, and the next one is done again. If all that could be kept would settle the question again, such as a
signal, the task itself is done again, with the same input. Not if it asked because the deadline of
another question passed: that question would be open, with the time that it had left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent

from abeyance import names
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.records.batch import Rewound
from abeyance.util import without_none

_STARTED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
_COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
_SCHEDULED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
_FAILED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
_CONTINUED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
_MARKER: Final = EventType.EVENT_TYPE_MARKER_RECORDED
_ACCEPTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
_RESET: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
_ENDS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
    }
)
_TOLD: Final = frozenset({names.RECORD_ACTIVITY, names.ANNOUNCE_ACTIVITY})
"""The local activities that tell people of a run, and do so again."""
_SHOWN: Final = frozenset({"to", "reason"})
"""The fields of a reset that people see."""
_DUE: Final = EventType.EVENT_TYPE_TIMER_FIRED
_ORDERS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point of a history: Temporal keeps what is before `event`.

    `keeps_task`: what happened in the task of the question is kept, else the task is done again.
    """

    event: int
    keeps_task: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The question waits in a later execution, from its beginning on."""

    execution: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetReason:
    """Who has reset a run, when, and with which reason."""

    actor: str
    time: datetime
    data: dict[str, Any]


def beginning(history: Sequence[HistoryEvent]) -> Point | None:
    """Return the point at which an execution has done nothing; None if it has done nothing yet."""
    begun = _begun(history)
    return None if begun is None else Point(event=begun, keeps_task=False)


def point(
    history: Sequence[HistoryEvent], length: int, question: str, *, by_deadline: bool
) -> Point | Continued | None:
    """Return the point at which a question was open. It was asked in the task with this history length.

    `by_deadline` says that the deadline of another question passed in that task. None if nothing has
    happened since. Raises `gone` if the history has no such point, and Unavailable if a worker has to go
    on with the run before it has one.
    """
    completed = _task_of(history, length)
    if completed is None:
        raise no_point(question, "the task that asked it is not in the history of the run")
    after = [event for event in history if event.event_id > completed.event_id]
    begun = _begun(after)
    is_over = bool(after) and after[-1].event_type in _ENDS
    if not any(event.event_type == _SCHEDULED for event in after):
        if after and after[-1].event_type == _CONTINUED:
            return Continued(
                execution=after[
                    -1
                ].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            )
        if not is_over:
            return None
    kept = [event for event in after if begun is None or event.event_id < begun]
    types = {event.event_type for event in kept}
    next_task = None if begun is None else Point(event=begun, keeps_task=True)
    if next_task is not None and not types & {_DUE, *_ORDERS}:
        return next_task
    if not by_deadline and not any(map(_is_lost, kept)):
        return Point(event=completed.event_id, keeps_task=False)
    if next_task is not None and not types & _ORDERS:
        return next_task
    if begun is None and not is_over:
        raise Unavailable("no worker has continued the run yet: start one, and repeat the call")
    raise no_point(
        question,
        "it was asked because of an answer, a local node, a route or a deadline, and a signal or the end "
        "of the run came next",
    )


def _task_of(history: Sequence[HistoryEvent], length: int) -> HistoryEvent | None:
    """Return the end of the last task that began with at most so many events."""
    started, completed = 0, None
    for event in history:
        if event.event_type == _STARTED:
            started = event.event_id
        elif event.event_type == _COMPLETED and started <= length:
            completed = event
    return completed


def _begun(after: Sequence[HistoryEvent]) -> int | None:
    """Return the event to reset to for doing the first of these tasks again, once it was begun.

    Temporal goes back to the ends of its own transactions only: to the begin of a task, and to an end.
    """
    is_due = False
    for before, event in pairwise(after):
        is_due |= before.event_type == _SCHEDULED
        is_cut_off = is_due and event.event_type in _ENDS
        if before.event_type == _STARTED or is_cut_off:
            return event.event_id
    return None


def _is_lost(event: HistoryEvent) -> bool:
    """Return whether a task that wrote this cannot be done again: an answer, or a local node."""
    if event.event_type != _MARKER:
        return event.event_type == _ACCEPTED
    details = event.marker_recorded_event_attributes.details.get("data")
    ran = json.loads(details.payloads[0].data) if details and details.payloads else {}
    return ran.get("activity_type") not in _TOLD


def no_point(question: str, why: str) -> Refusal:
    """Return the refusal `gone` of a rewind to a question that no point of the history has open."""
    return Refusal(
        Code.GONE,
        f"The run cannot be rewound to {question!r}: {why}. Rewind it to an earlier question, or to its "
        "start.",
        interrupt_id=question,
    )


def explained(rewound: Rewound, history: Iterable[HistoryEvent]) -> Rewound:
    """Return a rewind with what its reset says."""
    told = [*reset_reasons(history)][rewound.count - 1]
    data = {name: value for name, value in told.data.items() if name in _SHOWN}
    return rewound.model_copy(update={"actor": told.actor, "time": told.time, "data": data})


def moved(task: str, execution: str) -> str:
    """Return the name of a workflow task in another execution, which has the same history up to it."""
    return f"{execution}/{task.partition('/')[2]}"


def is_reset(event: HistoryEvent) -> bool:
    """Return whether an event says that Temporal has reset the execution there."""
    cause = event.workflow_task_failed_event_attributes.cause
    return event.event_type == _FAILED and cause == _RESET


def reset_reasons(history: Iterable[HistoryEvent]) -> Iterator[ResetReason]:
    """Yield the descriptions of the resets in a history, the oldest first."""
    for event in filter(is_reset, history):
        failed = event.workflow_task_failed_event_attributes
        reason, time = failed.failure.message, event.event_time.ToDatetime(tzinfo=UTC)
        try:
            said = json.loads(reason)
            actor, data = said["by"], {"to": said["to"], **said}
        except (KeyError, TypeError, ValueError):
            # An operator has done it.
            actor, data = "temporal", {"reason": reason}
        yield ResetReason(actor=actor, time=time, data=data)


def reason(*, by: str, to: str, key: str | None, patch: str | None = None) -> str:
    """Return the reason that Temporal keeps of a rewind: by whom, to which question, the mark of the
    call, and the sealed patch of a rewind to the start.
    """
    return json.dumps(without_none(by=by, to=to, key=key, patch=patch))
