"""Reads histories: all events of one, and the closing record of an ended run, in the last event.

The closing record of a cancelled run is in the memo, because Temporal gives it no result. A run that an
operator terminated has none: its record is made of the memo and the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistoryEventFilterType

from abeyance import views
from abeyance.history.description import RPC, RunDescription, decoded
from abeyance.storage.converter import decode_message, of_run
from abeyance.temporal.retry import NotFound, retry_until

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
_PAGE: Final = 200
"""In transactions of the server, each of one or more events."""


async def events_of(
    temporal: TemporalClient, task_queue: str, run_id: str, execution: str = "", *, patience: float
) -> list[HistoryEvent]:
    """Return the events of one execution of a run of this task queue; without its id, of the newest.

    `patience` is how many seconds each page is tried. Raises NotFound and Unavailable.
    """
    handle = temporal.get_workflow_handle(run_id, run_id=execution)
    pages = handle.fetch_history_events(page_size=_PAGE, skip_archival=True, rpc_timeout=RPC)
    events: list[HistoryEvent] = []
    while not events or pages.next_page_token is not None:
        await retry_until(f"the history of {run_id!r}", pages.fetch_next_page, seconds=patience)
        events += pages.current_page or ()
    begun = events[0].workflow_execution_started_event_attributes
    if begun.task_queue.name != task_queue:
        # Another application's workflow, or a run of another deployment.
        raise NotFound
    return events


async def closing_record(
    temporal: TemporalClient, described: RunDescription
) -> views.ClosingRecord:
    """Return the closing record of an ended run, made of its memo if it left none.

    Raises Unreadable.
    """
    handle = temporal.get_workflow_handle(described.run_id, run_id=described.execution)
    last = handle.fetch_history_events(
        event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT, rpc_timeout=RPC
    )
    event = await anext(last, HistoryEvent())
    # What an event of another kind lacks is empty.
    result = event.workflow_execution_completed_event_attributes.result.payloads
    failure = event.workflow_execution_failed_event_attributes.failure
    left = [*result, *failure.application_failure_info.details.payloads]
    converter = of_run(temporal.data_converter, described.run_id)
    record = _record(await decoded(converter, left[0]) if left else None, described.ended_at)
    record = record or _record(described.closing(), described.ended_at)
    if record is not None:
        return record
    await decode_message(converter, failure)
    view = described.degraded_view(failure.message or None)
    return views.ClosingRecord(outcome=view.status, reason=view.reason, view=view)


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
