"""Hindrances of a run as a whole: its workers cannot read it, or cannot replay it.

Such a worker fails the workflow task, and cannot tell the run why. Temporal tries the task again, with a
growing pause, and keeps only the first failure in the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from abeyance import views
from abeyance.core.lifecycle import CANNOT_REPLAY_REMEDY
from abeyance.core.text import truncate
from abeyance.errors import BlockedCode
from abeyance.history.description import RPC, RunDescription
from abeyance.storage.converter import decode_message, of_run, unread_by

_PASSING: Final = frozenset(
    {
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
    }
)
"""Failures of a workflow task that say nothing about its worker: the server schedules another."""
_RECENT_EVENTS: Final = 250
"""Many more than Temporal holds back while a workflow task is under way, and then writes after it."""
_SHOWN: Final = 300
_UNKNOWN: Final = "its workflow task is not completed in time; the log of a worker says why"


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why no worker completes the workflow task of a run. `is_said` is whether a worker has said so."""

    shown: views.BlockedView
    is_said: bool


async def hindrance(temporal: TemporalClient, described: RunDescription) -> Hindrance | None:
    """Return why no worker completes the workflow task of a run; None if nothing is known to hinder it.

    Raises RPCError.
    """
    if not described.is_retried:
        return None
    execution = WorkflowExecution(workflow_id=described.run_id, run_id=described.execution)
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=temporal.namespace, execution=execution, maximum_page_size=_RECENT_EVENTS
    )
    service = temporal.workflow_service
    page = await service.get_workflow_execution_history_reverse(request, timeout=RPC)
    converter = of_run(temporal.data_converter, described.run_id)
    return await hindrance_of(
        converter, page.history.events[:_RECENT_EVENTS], is_often=described.is_retried_often
    )


async def hindrance_of(
    converter: DataConverter, latest_first: Sequence[HistoryEvent], *, is_often: bool
) -> Hindrance | None:
    """Return the reason in a run's events why its workflow task is not completed.

    A task that was lost with its worker has no reason, so the last failed task before it counts. Without
    one, only the workers know what hinders a run that was tried often (`is_often`).
    """
    lost: HistoryEvent | None = None
    for event in latest_first:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                break
            case EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                lost = lost or event
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                failed = event.workflow_task_failed_event_attributes
                if failed.cause in _PASSING:
                    continue
                await decode_message(converter, failed.failure)
                return Hindrance(_failed_by(failed.failure, event), is_said=True)
            case _:
                pass
    if lost is None or not is_often:
        return None
    return Hindrance(_cannot_replay(_UNKNOWN, lost), is_said=False)


async def hindered(
    temporal: TemporalClient, described: RunDescription, view: views.RunView
) -> views.RunView:
    """Return the view of a described run, with what hinders its workers first among what blocks it."""
    if described.unreadable is not None:
        # If this process lacks something, the view shows only that.
        return view
    with suppress(RPCError):
        if (why := await hindrance(temporal, described)) is not None:
            return view.model_copy(update={"blocked": [why.shown, *view.blocked]})
    return view


def _failed_by(failure: Failure, event: HistoryEvent) -> views.BlockedView:
    """Return the reason for which a worker failed a workflow task."""
    if (unread := unread_by(failure)) is None:
        return _cannot_replay(truncate(failure.message, _SHOWN), event)
    code, why = unread
    return views.BlockedView(code=code, message=f"a worker cannot read the run: {why}")


def _cannot_replay(why: str, event: HistoryEvent) -> views.BlockedView:
    return views.BlockedView(
        code=BlockedCode.CANNOT_REPLAY,
        message=f"its workers cannot replay the run ({why}): {CANNOT_REPLAY_REMEDY}",
        since=event.event_time.ToDatetime(tzinfo=UTC),
    )
