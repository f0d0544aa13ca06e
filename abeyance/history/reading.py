"""Reads histories: all events of one, and of an ended run what it has left to be recorded.

That is in the last event; of a run that was cancelled through Temporal, which gives it no result, in the
memo.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowHistoryEventFilterType
from temporalio.converter import DataConverter

from abeyance import views, wire
from abeyance.core.json import Json
from abeyance.history import resets
from abeyance.history.description import RPC, RunDescription, decoded
from abeyance.records.batch import Batch
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


async def explained(temporal: TemporalClient, run_id: str, batch: Batch) -> Batch:
    """Return a batch with who rewound the run, if it tells of a rewind, by its reset. Raises RPCError."""
    rewound = batch.rewound
    if rewound is None:
        return batch
    handle = temporal.get_workflow_handle(run_id, run_id=rewound.execution)
    history = await handle.fetch_history(rpc_timeout=RPC)
    return batch.model_copy(update={"rewound": resets.explained(rewound, history.events)})


async def sealed(converter: DataConverter, patch: Mapping[str, Json]) -> str:
    """Return a patch as the text of a payload, which the keys of its run have encrypted."""
    (payload,) = await converter.encode([patch])
    return b64encode(payload.SerializeToString()).decode()


async def start_patch(
    temporal: TemporalClient, run_id: str, execution: str, count: int
) -> wire.StartPatch | None:
    """Return the patch of the reset of an execution with this number, counted from 1, if it has one.

    Raises RPCError, and what a converter raises for a payload that it cannot read.
    """
    handle = temporal.get_workflow_handle(run_id, run_id=execution)
    history = await handle.fetch_history(rpc_timeout=RPC)
    told = [*resets.reset_reasons(history.events)][count - 1]
    if (text := told.data.get("patch")) is None:
        return None
    converter = of_run(temporal.data_converter, run_id)
    (patch,) = await converter.decode([Payload.FromString(b64decode(text))], [dict[str, Any]])
    return wire.StartPatch(by=told.actor, patch=patch)


async def left_by(
    temporal: TemporalClient, described: RunDescription
) -> Batch | views.RunView | None:
    """Return what an ended run has left for the recording of its end.

    That is the batch that it could not record itself, None if there is none, or Temporal had no room for
    it. A run that Temporal ended, or that failed before it began, has recorded nothing of its end: then
    it is the run's view. Raises Unreadable.
    """
    if described.shown_status in views.ENDED_OUTSIDE:
        return described.degraded_view()
    handle = temporal.get_workflow_handle(described.run_id, run_id=described.execution)
    last = handle.fetch_history_events(
        event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT, rpc_timeout=RPC
    )
    event = await anext(last, HistoryEvent())
    # Attributes that an event of another kind lacks are empty.
    result = event.workflow_execution_completed_event_attributes.result.payloads
    failure = event.workflow_execution_failed_event_attributes.failure
    came_to = [*result, *failure.application_failure_info.details.payloads]
    converter = of_run(temporal.data_converter, described.run_id)
    told = await decoded(converter, came_to[0]) if came_to else {}
    if failure.ByteSize() and not (isinstance(told, Mapping) and "outcome" in told):
        await decode_message(converter, failure)
        return described.degraded_view(failure.message or None)
    left = told.get("unrecorded") if came_to else described.unrecorded()
    if left is None:
        return None
    return await explained(temporal, described.run_id, Batch.model_validate(left))
