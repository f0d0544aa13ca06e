"""From one event of a Temporal history to the events of a run's feed. Pure.

A history tells of three things that a reader wants: facts, which the run wrote into its memo; visits,
which are activities; and the beginning and the end, which are the execution's own. The rest is
Temporal's housekeeping and makes no event.

Payloads are read by the caller: `sources` names those of an event that are needed, `translate` takes
what they held. The texts of failures, which `failures` names, are made readable by the caller too. What
is told is ids, codes, addresses and hashes, never a value or an answer.

A workflow task sends off the visits that it makes ready before it writes down the facts that made them
ready. A reader wants to hear of an answer before what it started, so the start of a visit is held back
until the rest of its task has been told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from abeyance import wire
from abeyance.histories import runlog, visitlog
from abeyance.histories.cursor import Cursor
from abeyance.histories.runlog import Told, mapping

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
"""What a workflow task writes. Not markers: what follows a local activity is told after it."""
_RESET: Final = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the events of a history so far have told that later ones refer to.

    `birth` is as in a cursor. `visits` are the addresses of visits by the id of the event that scheduled
    their activity, `held` the starts that are not told yet. `last` and `count` are the latest event and
    how many of the feed's it made. `closing` is the record of a run that is about to end as cancelled.
    """

    run_id: str
    execution: str
    birth: int = 0
    visits: Mapping[int, str] = field(default_factory=dict)
    held: tuple[Told, ...] = ()
    last: int = 0
    count: int = 0
    closing: Mapping[str, Any] = field(default_factory=dict)


def sources(event: HistoryEvent) -> Sequence[Payload]:
    """The payloads whose values `translate` needs, in order."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            begun = event.workflow_execution_started_event_attributes
            return begun.input.payloads[: 1 if begun.continued_execution_run_id else 2]
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            return list(runlog.upserted(event).values())
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            metadata = event.user_metadata
            return [metadata.summary] if metadata.HasField("summary") else []
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            return event.activity_task_completed_event_attributes.result.payloads[:1]
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            return visitlog.local_sources(event)
        case _:
            return runlog.closing_sources(event)


def failures(event: HistoryEvent) -> Sequence[Failure]:
    """The failures whose texts `translate` may tell. They have to be readable."""
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
    event: HistoryEvent, values: Sequence[Any], known: Known
) -> tuple[list[wire.Event], Known]:
    """The feed's events that this one makes, and what is known after it.

    `values` are what the `sources` of the event held.
    """
    events: list[wire.Event] = []
    if event.event_type not in _SAME_TASK:
        events, known = released(known)
    known = replace(_learned(event, values, known), last=event.event_id, count=0)
    moment = event.event_time.ToDatetime(tzinfo=UTC)
    told = [replace(each, time=each.time or moment) for each in _told(event, values, known)]
    if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
        return events, replace(known, held=(*known.held, *told))
    more, known = _numbered(told, known)
    return [*events, *more], known


def released(known: Known) -> tuple[list[wire.Event], Known]:
    """The events that are still held back; to be asked for where a history ends for now."""
    events, known = _numbered(known.held, known)
    return events, replace(known, held=())


def _numbered(told: Sequence[Told], known: Known) -> tuple[list[wire.Event], Known]:
    events = []
    for index, each in enumerate(told, start=known.count):
        cursor = Cursor(
            run_id=known.run_id,
            execution=known.execution,
            birth=known.birth,
            event=known.last,
            index=index,
        )
        events.append(
            wire.Event(
                id=str(cursor),
                time=each.time,
                type=each.type,
                run_id=known.run_id,
                address=each.address,
                actor=each.actor,
                data=dict(each.data),
            )
        )
    return events, replace(known, count=known.count + len(events))


def _learned(event: HistoryEvent, values: Sequence[Any], known: Known) -> Known:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            return replace(known, birth=mapping(values).get("generation", 0))
        case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            if event.workflow_task_failed_event_attributes.cause != _RESET:
                return known
            # What comes before was copied from the history that was reset: it happened there.
            return replace(known, birth=max(event.event_time.ToMicroseconds(), known.birth + 1))
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            written = dict(zip(runlog.upserted(event), values, strict=True))
            return replace(known, closing=written.get(wire.MEMO_CLOSING, known.closing))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            if not values or not visitlog.is_visit(name, values[0]):
                return known
            return replace(known, visits={**known.visits, event.event_id: values[0]})
        case _:
            return known


def _told(event: HistoryEvent, values: Sequence[Any], known: Known) -> Iterator[Told]:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            if not event.workflow_execution_started_event_attributes.continued_execution_run_id:
                yield runlog.started(values)
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            written = dict(zip(runlog.upserted(event), values, strict=True))
            yield from runlog.facts(written.get(wire.MEMO_FACTS, []))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if (address := known.visits.get(event.event_id)) is not None:
                yield visitlog.started(address)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if (address := known.visits.get(completed.scheduled_event_id)) is not None:
                yield from visitlog.reported(address, mapping(values))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            if (address := known.visits.get(failed.scheduled_event_id)) is not None:
                yield visitlog.broken(address, failed.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            timed_out = event.activity_task_timed_out_event_attributes
            if (address := known.visits.get(timed_out.scheduled_event_id)) is not None:
                yield visitlog.broken(address, timed_out.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            canceled = event.activity_task_canceled_event_attributes
            if (address := known.visits.get(canceled.scheduled_event_id)) is not None:
                yield visitlog.stopped(address)
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            if values:
                yield from visitlog.local(event, values[0], mapping(values[1:]))
        case _:
            yield from runlog.ended(event, mapping(values), known.closing)
