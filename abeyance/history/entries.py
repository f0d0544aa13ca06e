"""The events of the feed that single events of a history make, without their ids. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from abeyance import names, views
from abeyance.core.address import Address
from abeyance.core.json import Json
from abeyance.errors import FailureCode

_LOCAL: Final = "core_local_activity"
"""The marker by which Temporal's SDK records a local activity, when it is over."""


_OF_TURNS: Final = ("turn", "model", "calls", "usage", "finish_reason")


def is_visit(activity: str, address: Any) -> bool:
    """Return whether an activity of this name and summary runs a node's code.

    Other activities decide a node's routes, for example.
    """
    try:
        place = Address.parse(str(address))
    except ValueError:
        return False
    return place.segments[-1].type in {"node", "tool"} and activity == place.label


def visit_started(address: str, time: datetime | None = None) -> Entry:
    """The activity of a visit was scheduled, or a local one began."""
    return Entry(type=f"{node_or_tool(address)}.started", address=address, time=time)


def visit_stopped(address: str) -> Entry:
    """The run stopped the visit."""
    return Entry(type=f"{node_or_tool(address)}.stopped", address=address)


def visit_failed(address: str, code: str, message: str) -> Entry:
    """The visit failed after its last attempt."""
    return Entry(
        type=f"{node_or_tool(address)}.failed",
        address=address,
        data={"code": code, "message": message},
    )


def node_or_tool(address: str) -> Literal["node", "tool"]:
    """The kind of a visit's events."""
    return "tool" if Address.parse(address).is_call else "node"


def visit_reported(address: str, report: Mapping[str, Any]) -> Iterator[Entry]:
    """The events of an activity's result, which is the outcome of its visit."""
    outcome = report.get("outcome") or {}
    match outcome.get("kind"):
        case "finished" | "interrupted" as kind:
            for emitted in outcome.get("emitted") or ():
                yield Entry(
                    type=f"user.{emitted['name']}", address=address, data={"data": emitted["data"]}
                )
            # A visit that interrupted is not over; its questions have events.
            if kind == "finished":
                ended = outcome.get("tool_status")
                data = {} if ended is None else {"outcome": ended}
                what = node_or_tool(address) if ended is None else "tool"
                yield Entry(type=f"{what}.finished", address=address, data=data)
                if (turn := outcome.get("turn")) is not None:
                    about = {name: turn.get(name) for name in _OF_TURNS}
                    yield Entry(type="model.turn", address=address, data=about)
        case "stopped":
            yield visit_stopped(address)
        case "attempt_failed":
            attempt = (outcome.get("attempts") or {}).get("count")
            about = {"message": outcome.get("message"), "attempt": attempt}
            yield Entry(
                type=f"{node_or_tool(address)}.retrying",
                address=address,
                data={**about, "pause": outcome.get("pause")},
            )
        case "failed":
            yield visit_failed(address, outcome["code"], outcome["message"])
        case _:
            # The run itself publishes what blocks a visit. A newer worker may have other outcomes; the
            # facts in the memo have the rest.
            pass


def broken(address: str, failure: Failure) -> Entry:
    """An activity ended without a report: it was cancelled, took too long, or met a bug."""
    # The SDK wraps the failure in one that says only that it was an activity's.
    inner = failure.cause if failure.HasField("activity_failure_info") else failure
    if inner.HasField("canceled_failure_info"):
        return visit_stopped(address)
    return visit_failed(address, str(FailureCode.NODE_FAILED), inner.message)


def local_sources(event: HistoryEvent) -> list[Payload]:
    """The summary of a local activity, and its report if it has one."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != _LOCAL or not event.user_metadata.HasField("summary"):
        return []
    result = marker.details["result"].payloads if "result" in marker.details else []
    return [event.user_metadata.summary, *result[:1]]


def is_local_visit(event: HistoryEvent, address: Any) -> bool:
    """Return whether a local activity with this summary has run a node's code."""
    about = _about(event)
    # With a backoff it was one attempt of several.
    return about.get("backoff") is None and is_visit(about["activity_type"], address)


def _about(event: HistoryEvent) -> Mapping[str, Any]:
    details = event.marker_recorded_event_attributes.details
    return mapping([json.loads(details["data"].payloads[0].data)])


def local(event: HistoryEvent, address: str, report: Mapping[str, Any]) -> Iterator[Entry]:
    """The events of a local activity."""
    marker = event.marker_recorded_event_attributes
    if not is_local_visit(event, address):
        return
    yield visit_started(address, _began(event, _about(event).get("original_schedule_time")))
    if marker.HasField("failure"):
        yield broken(address, marker.failure)
    else:
        yield from visit_reported(address, report)


def _began(event: HistoryEvent, schedule_time: Mapping[str, int] | None) -> datetime | None:
    if schedule_time is None:
        return None
    moment = datetime.fromtimestamp(schedule_time["seconds"], UTC)
    moment += timedelta(microseconds=schedule_time["nanos"] // 1000)
    # The worker's clock has the start, the server's clock the time of the record.
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
"""The types of the last event of a history."""

_MEMO: Final = (names.MEMO_FACTS, names.MEMO_CLOSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event of the feed without its id. `time` None is that of the history's event."""

    type: str
    time: datetime | None = None
    address: str | None = None
    actor: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


def run_started(values: Sequence[Any]) -> Entry:
    """A run began with a `StartRun` and the spec of its graph."""
    start, spec = mapping(values), mapping(values[1:])
    sent_by = start.get("sent_by")
    return Entry(
        type="run.started",
        actor=sent_by or start.get("started_by"),
        data={
            "graph": spec.get("name"),
            "graph_version": start.get("graph_version"),
            "conversation_id": start.get("conversation_id"),
            "session_type": start.get("session_type"),
            **({} if sent_by is None else {"on_behalf_of": start.get("started_by")}),
        },
    )


def upserted(event: HistoryEvent) -> Mapping[str, Payload]:
    """The facts and the closing record of a memo update."""
    fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
    return {name: fields[name] for name in _MEMO if name in fields}


def facts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Entry]:
    """The facts that `workflows.visibility.fact_batches` wrote."""
    for row in rows:
        yield Entry(
            type=row["type"],
            time=datetime.fromisoformat(row["time"]),
            address=row["address"],
            actor=row["actor"],
            data=row["data"],
        )


def closing_sources(event: HistoryEvent) -> Sequence[Payload]:
    """The payload of the closing record in the last event of a history, if it has one."""
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
) -> Iterator[Entry]:
    """The run ended, unless another history continues it. `in_memo` is a cancelled run's record."""
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
            yield _end("terminated", {"reason": text, "view": {"cancelled_by": "temporal"}})
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
            yield _end("timed_out", {"reason": "timed out in Temporal"})
        case _:
            pass


def mapping(values: Sequence[Any]) -> Mapping[str, Any]:
    """The first value if it is a mapping, as ours all are; other writers may write anything."""
    return values[0] if values and isinstance(values[0], Mapping) else {}


def _end(status: str, record: Mapping[str, Any]) -> Entry:
    view = record.get("view") or {}
    error = view.get("error") or {}
    # To Temporal halted and cancelled runs are completed; the record has the outcome.
    if f"run.{record.get('outcome')}" in views.TERMINAL_EVENTS:
        status = record["outcome"]
    data: dict[str, Json] = {"reason": record.get("reason")}
    if status == "failed":
        data |= {"code": error.get("code"), "message": error.get("message")}
    return Entry(
        type=f"run.{status}",
        address=error.get("address"),
        actor=view.get("cancelled_by"),
        data=data,
    )
