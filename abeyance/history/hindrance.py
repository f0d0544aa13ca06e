"""What hinders a run as a whole: its workers cannot read it, or cannot replay it.

Such a worker fails the workflow task, and can tell the run nothing. Temporal tries the task again, with a
growing pause, and writes down the first failure alone.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import views
from abeyance.core.blocked import CANNOT_REPLAY_REMEDY
from abeyance.core.text import truncate
from abeyance.errors import BlockedCode
from abeyance.history.description import RPC, RunDescription
from abeyance.storage.converter import decode_message, of_run

_UNREAD: Final = {
    "WrongKey": BlockedCode.KEY_MISSING,
    "Unavailable": BlockedCode.STORAGE_UNAVAILABLE,
    "SettingsError": BlockedCode.STORAGE_UNAVAILABLE,
}
"""What a worker lacked, by the types of the failures of its workflow tasks."""
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


async def hindrance(
    temporal: TemporalClient, described: RunDescription
) -> views.BlockedView | None:
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
    for event in page.history.events[:_RECENT_EVENTS]:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                return None
            case EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT if described.is_retried_often:
                return _cannot_replay(_UNKNOWN, event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                failed = event.workflow_task_failed_event_attributes
                if failed.cause in _PASSING:
                    continue
                converter = of_run(temporal.data_converter, described.run_id)
                await decode_message(converter, failed.failure, forgiving=True)
                return _failed_by(failed.failure, event)
            case _:
                pass
    return None


async def hindered(
    temporal: TemporalClient, described: RunDescription, view: views.RunView
) -> views.RunView:
    """Return the view of a described run, with what hinders its workers first among what blocks it."""
    if described.unreadable is not None:
        # What this process lacks is shown alone.
        return view
    with suppress(RPCError):
        if (why := await hindrance(temporal, described)) is not None:
            return view.model_copy(update={"blocked": [why, *view.blocked]})
    return view


def _failed_by(failure: Failure, event: HistoryEvent) -> views.BlockedView:
    """Return what hindered the worker that failed a workflow task."""
    own = failure
    while own.application_failure_info.type not in _UNREAD:
        if not own.HasField("cause"):
            return _cannot_replay(truncate(failure.message, _SHOWN), event)
        own = own.cause
    code = _UNREAD[own.application_failure_info.type]
    return views.BlockedView(code=code, message=f"a worker cannot read the run: {own.message}")


def _cannot_replay(why: str, event: HistoryEvent) -> views.BlockedView:
    return views.BlockedView(
        code=BlockedCode.CANNOT_REPLAY,
        message=f"its workers cannot replay the run ({why}): {CANNOT_REPLAY_REMEDY}",
        since=event.event_time.ToDatetime(tzinfo=UTC),
    )
