"""Translation of history events into events of the feed. Pure.

Each `node.started` is followed by exactly one of `node.finished`, `node.retrying`, `node.failed` and
`node.stopped` (by a pause, a continue-as-new or the end of the run), unless the run ended first. The same
visit may start again under the same address. A tool call has the same events, as `tool.started` and so
on; a model turn also has `model.turn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, RetryState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from abeyance import names, views
from abeyance.history.cursors import Cursor
from abeyance.history.entries import (
    Entry,
    broken,
    closing_sources,
    facts,
    is_local_visit,
    is_visit,
    local,
    local_sources,
    mapping,
    run_ended,
    run_started,
    upserted,
    visit_reported,
    visit_started,
    visit_stopped,
)

_SAME_TASK: Final = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_TIMER_CANCELED,
        EventType.EVENT_TYPE_TIMER_STARTED,
        EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED,
    }
)
"""Events that a workflow task writes. Not markers: events after a local activity come after its own."""
_RESET: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """The state of a translation: what later events of a history refer to.

    `birth` is that of a cursor. `previous` is the execution that this one continues or retries. `visits`
    are the addresses of visits by the event that scheduled their activity, until it is over, `held` the
    starts that are held back. `last` is the latest event and `count` how many events of the feed it
    made. `closing` is the record of a run that is about to end as cancelled. `blocked` are the visits
    whose activity ended because they are blocked: the next one goes on with them.
    """

    run_id: str
    execution: str
    birth: int = 0
    previous: str = ""
    visits: Mapping[int, str] = field(default_factory=dict)
    held: tuple[Entry, ...] = ()
    last: int = 0
    count: int = 0
    closing: Mapping[str, Any] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()


def sources(event: HistoryEvent) -> Sequence[Payload]:
    """The payloads whose values `translate` needs, in order."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            begun = event.workflow_execution_started_event_attributes
            return begun.input.payloads[: 1 if begun.continued_execution_run_id else 2]
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            return list(upserted(event).values())
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            metadata = event.user_metadata
            return [metadata.summary] if metadata.HasField("summary") else []
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return event.activity_task_completed_event_attributes.result.payloads[:1]
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            return local_sources(event)
        case _:
            return closing_sources(event)


def failures(event: HistoryEvent) -> Sequence[Failure]:
    """The failures whose messages `translate` may use. They have to be decoded."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            return [event.workflow_execution_failed_event_attributes.failure]
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            return [event.activity_task_failed_event_attributes.failure]
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            return [event.activity_task_timed_out_event_attributes.failure]
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            return [event.marker_recorded_event_attributes.failure]
        case _:
            return []


def translate(
    event: HistoryEvent, values: Sequence[Any], state: HistoryState
) -> tuple[list[views.Event], HistoryState]:
    """Return the feed's events that this one makes, and the state after it.

    `values` are what the `sources` of the event held.
    """
    events: list[views.Event] = []
    if event.event_type not in _SAME_TASK:
        events, state = released(state)
    state = replace(_advanced(event, values, state), last=event.event_id, count=0)
    moment = event.event_time.ToDatetime(tzinfo=UTC)
    translated = [
        replace(each, time=each.time or moment) for each in _entries(event, values, state)
    ]
    state = _without_ended(event, state)
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        going_on = {state.visits.get(event.event_id)}
        blocked = frozenset(at for at in state.blocked if at not in going_on)
        return events, replace(state, held=(*state.held, *translated), blocked=blocked)
    more, state = _numbered(translated, state)
    return [*events, *more], state


def _without_ended(event: HistoryEvent, state: HistoryState) -> HistoryState:
    """Forget a visit whose activity is over."""
    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            scheduled = event.activity_task_completed_event_attributes.scheduled_event_id
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            scheduled = event.activity_task_failed_event_attributes.scheduled_event_id
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            scheduled = event.activity_task_timed_out_event_attributes.scheduled_event_id
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            scheduled = event.activity_task_canceled_event_attributes.scheduled_event_id
        case _:
            return state
    return replace(state, visits={n: at for n, at in state.visits.items() if n != scheduled})


def _is_stopped(event: HistoryEvent) -> bool:
    """Whether a lost attempt has no other one because the run wanted its activity to stop."""
    state = event.activity_task_timed_out_event_attributes.retry_state
    return state == RetryState.RETRY_STATE_CANCEL_REQUESTED


def released(state: HistoryState) -> tuple[list[views.Event], HistoryState]:
    """Release the events that are held back, at the present end of a history."""
    events, state = _numbered(state.held, state)
    return events, replace(state, held=())


def _numbered(
    entries: Sequence[Entry], state: HistoryState
) -> tuple[list[views.Event], HistoryState]:
    events = []
    for index, entry in enumerate(entries, start=state.count):
        cursor = Cursor(
            run_id=state.run_id,
            execution=state.execution,
            birth=state.birth,
            event=state.last,
            index=index,
        )
        events.append(
            views.Event(
                id=str(cursor),
                time=entry.time,
                type=entry.type,
                run_id=state.run_id,
                address=entry.address,
                actor=entry.actor,
                data=dict(entry.data),
            )
        )
    return events, replace(state, count=state.count + len(events))


def _advanced(event: HistoryEvent, values: Sequence[Any], state: HistoryState) -> HistoryState:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            start = mapping(values)
            begun = event.workflow_execution_started_event_attributes
            previous = begun.continued_execution_run_id or start.get("retry_of") or ""
            return replace(state, birth=start.get("generation", 0), previous=previous)
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            if event.workflow_task_failed_event_attributes.cause != _RESET:
                return state
            # Earlier events were copied from the history that was reset: they happened there.
            return replace(state, birth=max(event.event_time.ToMicroseconds(), state.birth + 1))
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            written = dict(zip(upserted(event), values, strict=True))
            return replace(state, closing=written.get(names.MEMO_CLOSING, state.closing))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            if not values or not is_visit(name, values[0]):
                return state
            return replace(state, visits={**state.visits, event.event_id: values[0]})
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            address = state.visits.get(completed.scheduled_event_id)
            return _with_blocked(state, address, mapping(values))
        case EventType.EVENT_TYPE_MARKER_RECORDED if values and is_local_visit(event, values[0]):
            return _with_blocked(state, values[0], mapping(values[1:]))
        case _:
            return state


def _with_blocked(
    state: HistoryState, address: str | None, report: Mapping[str, Any]
) -> HistoryState:
    """Note the visit of an activity's report, if it is blocked."""
    if address is None or (report.get("outcome") or {}).get("kind") != "blocked":
        return state
    return replace(state, blocked=state.blocked | {address})


def _entries(event: HistoryEvent, values: Sequence[Any], state: HistoryState) -> Iterator[Entry]:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            if not state.previous:
                yield run_started(values)
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            written = dict(zip(upserted(event), values, strict=True))
            yield from facts(written.get(names.MEMO_FACTS, []))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            address = state.visits.get(event.event_id)
            if address is not None and address not in state.blocked:
                yield visit_started(address)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if (address := state.visits.get(completed.scheduled_event_id)) is not None:
                yield from visit_reported(address, mapping(values))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            if (address := state.visits.get(failed.scheduled_event_id)) is not None:
                yield broken(address, failed.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            timed_out = event.activity_task_timed_out_event_attributes
            if (address := state.visits.get(timed_out.scheduled_event_id)) is not None:
                if _is_stopped(event):
                    yield visit_stopped(address)
                else:
                    yield broken(address, timed_out.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            canceled = event.activity_task_canceled_event_attributes
            if (address := state.visits.get(canceled.scheduled_event_id)) is not None:
                yield visit_stopped(address)
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            if values:
                yield from local(event, values[0], mapping(values[1:]))
        case _:
            yield from run_ended(event, mapping(values), state.closing)
