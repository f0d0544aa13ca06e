"""What a history tells of its run as a whole: that it began, its facts, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from abeyance import wire
from abeyance.core.canonical import Json
from abeyance.errors import FailureCode

CLOSING: Final = frozenset(
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


def started(values: Sequence[Any]) -> Told:
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


def ended(
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
