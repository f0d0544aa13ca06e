"""The history of an execution: events as the simulated server stores them and as clients read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job

if TYPE_CHECKING:
    from tests.simulation.execution import Execution

BEGUN: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
SCHEDULED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
STARTED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
FAILED: Final = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
MARKER: Final = EventType.EVENT_TYPE_MARKER_RECORDED
ACCEPTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
ANSWERED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED
TERMINATED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED
ENDS: Final = {
    "complete_workflow_execution": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    "fail_workflow_execution": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    "cancel_workflow_execution": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    "continue_as_new_workflow_execution": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
}
OTHER: Final = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
"""The type of every event that nothing in the simulation reads."""
_TOLD_BY: Final = {
    "signal_workflow": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    "cancel_workflow": EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
    "fire_timer": EventType.EVENT_TYPE_TIMER_FIRED,
    "resolve_activity": EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
    "update_random_seed": FAILED,
}
_RESET: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


class Logged(NamedTuple):
    """An event; its id is its place in the history. `job` brings the event to the workflow. `about` is
    the type of a local activity, the reason of a reset, or the run id of the next execution.
    """

    type: EventType.ValueType
    time: datetime
    job: Job | None = None
    about: str = ""


def told(job: Job, time: datetime, about: str = "") -> Logged:
    """Return the event that a job brings to the workflow."""
    return Logged(_TOLD_BY[job.WhichOneof("variant") or ""], time, job, about)


def shown(execution: Execution) -> list[HistoryEvent]:
    """Return the history of an execution as a client reads it."""
    logged: Sequence[Logged] = [*execution.log, *execution.tail()]
    events = [_shown(number, each) for number, each in enumerate(logged, start=1)]
    begun = events[0].workflow_execution_started_event_attributes
    begun.input.payloads.extend(execution.input)
    begun.original_execution_run_id = execution.run_id
    begun.task_queue.name = execution.queue
    if execution.result.payloads:
        completed = events[-1].workflow_execution_completed_event_attributes
        completed.result.CopyFrom(execution.result)
    if execution.failure is not None:
        failed = events[-1].workflow_execution_failed_event_attributes
        failed.failure.CopyFrom(execution.failure)
    return events


def _shown(number: int, logged: Logged) -> HistoryEvent:
    event = HistoryEvent(event_id=number, event_type=logged.type)
    event.event_time.FromDatetime(logged.time.replace(tzinfo=None))
    if logged.type == MARKER:
        ran: dict[str, Any] = {"activity_type": logged.about}
        details = event.marker_recorded_event_attributes.details["data"]
        details.payloads.append(Payload(data=json.dumps(ran).encode()))
    elif logged.type == ENDS["continue_as_new_workflow_execution"]:
        continued = event.workflow_execution_continued_as_new_event_attributes
        continued.new_execution_run_id = logged.about
    elif logged.type == FAILED and logged.job is not None:
        failed = event.workflow_task_failed_event_attributes
        failed.cause, failed.failure.message = _RESET, logged.about
    return event


def as_replayed(job: Job) -> Job:
    """Return a job as it is in a replay: a local activity that failed has only the cause."""
    if not job.resolve_activity.is_local:
        return job
    replayed = Job()
    replayed.CopyFrom(job)
    failed = replayed.resolve_activity.result.failed
    if failed.failure.HasField("activity_failure_info"):
        failed.failure.CopyFrom(job.resolve_activity.result.failed.failure.cause)
    return replayed
