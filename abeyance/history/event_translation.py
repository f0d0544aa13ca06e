"""What the history of an activity tells of a visit: that its code started, and how it ended. Pure.

A visit that was stopped (by a pause, a hand-over, or the end of the run) is told as such, so that each
`node.started` is followed by exactly one of `node.finished`, `node.failed` and `node.stopped`, unless
the run ended first. The same visit may start again afterwards, under the same address. The call of a
tool is told in the same way, as `tool.started` and so on, and a turn of a model also as `model.turn`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from abeyance import wire
from abeyance.core.address import Address
from abeyance.core.json import Json
from abeyance.errors import FailureCode
from abeyance.history.cursors import Cursor

_LOCAL: Final = "core_local_activity"
"""The marker by which Temporal's SDK records a local activity, when it is over."""


def is_visit(activity: str, address: Any) -> bool:
    """Whether an activity of this name and summary is a node's own.

    The others decide a node's routes, or work for a node in another way.
    """
    try:
        place = Address.parse(str(address))
    except ValueError:
        return False
    return place.segments[-1].type in {"node", "tool"} and activity == place.label


def visit_started(address: str, time: datetime | None = None) -> Told:
    """The code of a visit was sent off, or has begun where it ran locally."""
    return Told(type=f"{node_or_tool(address)}.started", address=address, time=time)


def visit_stopped(address: str) -> Told:
    """The run stopped the code."""
    return Told(type=f"{node_or_tool(address)}.stopped", address=address)


def visit_failed(address: str, code: str, message: str) -> Told:
    """The code failed for good."""
    return Told(
        type=f"{node_or_tool(address)}.failed",
        address=address,
        data={"code": code, "message": message},
    )


def visit_finished(address: str, ended: str | None) -> Told:
    """The code returned; a call of a tool `ended` so."""
    if ended is not None:
        return Told(type="tool.finished", address=address, data={"outcome": ended})
    return Told(type=f"{node_or_tool(address)}.finished", address=address)


def turn_finished(address: str, turn: Mapping[str, Any]) -> Told:
    """A model answered."""
    return Told(
        type="model.turn",
        address=address,
        data={
            "turn": turn.get("turn"),
            "model": turn.get("model"),
            "calls": turn.get("calls"),
            "usage": turn.get("usage"),
            "finish_reason": turn.get("finish_reason"),
        },
    )


def node_or_tool(address: str) -> Literal["node", "tool"]:
    """What a visit is that of."""
    return "tool" if Address.parse(address).is_call else "node"


def visit_reported(address: str, report: Mapping[str, Any]) -> Iterator[Told]:
    """What an activity returned: the outcome of its visit."""
    outcome = report.get("outcome") or {}
    match outcome.get("kind"):
        case "finished" | "interrupted" as kind:
            for each in outcome.get("emitted") or ():
                yield Told(
                    type=f"user.{each['name']}", address=address, data={"data": each["data"]}
                )
            # What interrupted is told by its questions: the visit is not over.
            if kind == "finished":
                yield visit_finished(address, outcome.get("tool_status"))
                if (turn := outcome.get("turn")) is not None:
                    yield turn_finished(address, turn)
        case "stopped":
            yield visit_stopped(address)
        case "failed":
            yield visit_failed(address, outcome["code"], outcome["message"])
        case _:
            # A worker may be newer than this reader. The facts say what came of the visit.
            pass


def broken(address: str, failure: Failure) -> Told:
    """An activity ended without a report: it was cancelled, took too long, or met a bug."""
    # The SDK wraps what happened in one that says only that it was an activity.
    inner = failure.cause if failure.HasField("activity_failure_info") else failure
    if inner.HasField("canceled_failure_info"):
        return visit_stopped(address)
    return visit_failed(address, str(FailureCode.NODE_FAILED), inner.message)


def local_sources(event: HistoryEvent) -> list[Payload]:
    """The summary and the report of a local activity, of which only the summary is always there."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != _LOCAL or not event.user_metadata.HasField("summary"):
        return []
    result = marker.details["result"].payloads if "result" in marker.details else []
    return [event.user_metadata.summary, *result[:1]]


def local(event: HistoryEvent, address: str, report: Mapping[str, Any]) -> Iterator[Told]:
    """The whole of a local activity."""
    marker = event.marker_recorded_event_attributes
    about = json.loads(marker.details["data"].payloads[0].data)
    if about.get("backoff") is not None or not is_visit(about["activity_type"], address):
        # With a backoff it was one attempt, and another follows.
        return
    yield visit_started(address, _began(event, about.get("original_schedule_time")))
    if marker.HasField("failure"):
        yield broken(address, marker.failure)
    else:
        yield from visit_reported(address, report)


def _began(event: HistoryEvent, given: Mapping[str, int] | None) -> datetime | None:
    if given is None:
        return None
    moment = datetime.fromtimestamp(given["seconds"], UTC)
    moment += timedelta(microseconds=given["nanos"] // 1000)
    # The worker's clock says when it began, the server's when it was recorded.
    return min(moment, event.event_time.ToDatetime(tzinfo=UTC))


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
"""A history that is complete ends with one of these."""

_MEMO: Final = (wire.MEMO_FACTS, wire.MEMO_CLOSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event of the feed that has no id yet. `time` None: the time of the history's event."""

    type: str
    time: datetime | None = None
    address: str | None = None
    actor: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


def run_started(values: Sequence[Any]) -> Told:
    """A run began, with a `StartRun` and the spec of its graph."""
    start, spec = mapping(values), mapping(values[1:])
    return Told(
        type="run.started",
        actor=start.get("started_by"),
        data={
            "graph": spec.get("name"),
            "graph_version": start.get("graph_version"),
            "conversation_id": start.get("conversation_id"),
            "session_type": start.get("session_type"),
        },
    )


def upserted(event: HistoryEvent) -> Mapping[str, Payload]:
    """What was written into the memo that a reader needs: the facts, and a closing record."""
    fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
    return {name: fields[name] for name in _MEMO if name in fields}


def facts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Told]:
    """The facts, as `fact_batches` of the workflow's surface wrote them."""
    for row in rows:
        yield Told(
            type=row["type"],
            time=datetime.fromisoformat(row["time"]),
            address=row["address"],
            actor=row["actor"],
            data=row["data"],
        )


def closing_sources(event: HistoryEvent) -> Sequence[Payload]:
    """Where the last event of a history holds the closing record, if it does."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            return event.workflow_execution_completed_event_attributes.result.payloads[:1]
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            return failure.application_failure_info.details.payloads[:1]
        case _:
            return []


def run_ended(
    event: HistoryEvent, record: Mapping[str, Any], in_memo: Mapping[str, Any]
) -> Iterator[Told]:
    """The run ended, unless its history goes on in another. `in_memo` is what a cancelled run left."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            yield _end("completed", record)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            code = failure.application_failure_info.type or str(FailureCode.NODE_FAILED)
            bare = {"view": {"error": {"code": code, "message": failure.message}}}
            yield _end("failed", record or bare)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
            yield _end("cancelled", in_memo)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            reason = event.workflow_execution_terminated_event_attributes.reason
            text = "terminated through Temporal" + (f": {reason}" if reason else "")
            yield _end("cancelled", {"reason": text, "view": {"cancelled_by": "temporal"}})
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
            yield _end("failed", {"reason": "timed out in Temporal"})
        case _:
            pass


def mapping(values: Sequence[Any]) -> Mapping[str, Any]:
    """The first value, if it is a mapping, as all that we write; a stranger may write anything."""
    return values[0] if values and isinstance(values[0], Mapping) else {}


def _end(status: str, record: Mapping[str, Any]) -> Told:
    view = record.get("view") or {}
    error = view.get("error") or {}
    # Halted and cancelled runs are completed ones to Temporal: the record says which.
    if f"run.{record.get('outcome')}" in wire.TERMINAL_EVENTS:
        status = record["outcome"]
    data: dict[str, Json] = {"reason": record.get("reason")}
    if status == "failed":
        data |= {"code": error.get("code"), "message": error.get("message")}
    return Told(
        type=f"run.{status}",
        address=error.get("address"),
        actor=view.get("cancelled_by"),
        data=data,
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
            written = dict(zip(upserted(event), values, strict=True))
            return replace(known, closing=written.get(wire.MEMO_CLOSING, known.closing))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            if not values or not is_visit(name, values[0]):
                return known
            return replace(known, visits={**known.visits, event.event_id: values[0]})
        case _:
            return known


def _told(event: HistoryEvent, values: Sequence[Any], known: Known) -> Iterator[Told]:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            if not event.workflow_execution_started_event_attributes.continued_execution_run_id:
                yield run_started(values)
        case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
            written = dict(zip(upserted(event), values, strict=True))
            yield from facts(written.get(wire.MEMO_FACTS, []))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if (address := known.visits.get(event.event_id)) is not None:
                yield visit_started(address)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            if (address := known.visits.get(completed.scheduled_event_id)) is not None:
                yield from visit_reported(address, mapping(values))
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            if (address := known.visits.get(failed.scheduled_event_id)) is not None:
                yield broken(address, failed.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            timed_out = event.activity_task_timed_out_event_attributes
            if (address := known.visits.get(timed_out.scheduled_event_id)) is not None:
                yield broken(address, timed_out.failure)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            canceled = event.activity_task_canceled_event_attributes
            if (address := known.visits.get(canceled.scheduled_event_id)) is not None:
                yield visit_stopped(address)
        case EventType.EVENT_TYPE_MARKER_RECORDED:
            if values:
                yield from local(event, values[0], mapping(values[1:]))
        case _:
            yield from run_ended(event, mapping(values), known.closing)
