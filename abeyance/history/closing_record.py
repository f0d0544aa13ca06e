"""Closing records of ended runs, and late answers checked by them.

The last event has the closing record; that of a cancelled run is in the memo, because Temporal gives it
no result. A run that an operator terminated has none: its record is made of the memo and the status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.history.description import RPC, RunDescription, decoded
from abeyance.storage.converter import decode_message, of_run

CLOSING_EVENTS: Final = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)
"""The types of the last event of a history."""


async def closing_record(
    temporal: TemporalClient, described: RunDescription
) -> views.ClosingRecord:
    """Return the closing record of an ended run, made of its memo if it left none.

    Raises Unreadable.
    """
    event = await _closing_event(temporal, described)
    if (
        event is not None
        and (record := await closing_record_in(temporal, described.run_id, event)) is not None
    ):
        return record
    record = _record(described.closing(), described.ended_at)
    if record is not None:
        return record
    message = None
    if event is not None:
        failure = event.workflow_execution_failed_event_attributes.failure
        converter = of_run(temporal.data_converter, described.run_id)
        await decode_message(converter, failure, forgiving=True)
        message = failure.message
    view = described.degraded_view(message or None)
    return views.ClosingRecord(outcome=view.status, reason=view.reason, view=view)


async def closing_record_in(
    temporal: TemporalClient, run_id: str, event: HistoryEvent
) -> views.ClosingRecord | None:
    """Return the closing record in the last event of a run, None without one. Raises Unreadable."""
    payloads = _sources(event)
    if not payloads:
        return None
    ended_at = event.event_time.ToDatetime(tzinfo=UTC)
    value = await decoded(of_run(temporal.data_converter, run_id), payloads[0])
    return _record(value, ended_at)


def _sources(event: HistoryEvent) -> Sequence[Payload]:
    """The payload of the closing record in the last event of a history, if it has one."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            return event.workflow_execution_completed_event_attributes.result.payloads[:1]
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            return failure.application_failure_info.details.payloads[:1]
        case _:
            return []


def _record(value: Any, ended_at: datetime | None) -> views.ClosingRecord | None:
    if not isinstance(value, Mapping) or "view" not in value:
        return None
    record = views.ClosingRecord.model_validate(value)
    view = record.view.model_copy(
        update={
            "values": record.values,
            "result": record.values,
            # Temporal's is a moment later than that of the records.
            "ended_at": record.view.ended_at or ended_at,
        }
    )
    return record.model_copy(update={"view": view})


async def _closing_event(
    temporal: TemporalClient, described: RunDescription
) -> HistoryEvent | None:
    response = await temporal.workflow_service.get_workflow_execution_history(
        GetWorkflowExecutionHistoryRequest(
            namespace=temporal.namespace,
            execution=WorkflowExecution(workflow_id=described.run_id, run_id=described.execution),
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        ),
        retry=True,
        timeout=RPC,
    )
    return next(iter(response.history.events), None)
