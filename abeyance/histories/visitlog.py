"""What the history of an activity tells of a visit: that its code started, and how it ended. Pure.

A visit that was stopped (by a pause, a hand-over, or the end of the run) is told as such, so that each
`node.started` is followed by exactly one of `node.finished`, `node.failed` and `node.stopped`, unless
the run ended first. The same visit may start again afterwards, under the same address. The call of a
tool is told in the same way, as `tool.started` and so on, and a turn of a model also as `model.turn`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from abeyance.core.address import Address
from abeyance.errors import FailureCode
from abeyance.histories.runlog import Told

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


def started(address: str, time: datetime | None = None) -> Told:
    """The code of a visit was sent off, or has begun where it ran locally."""
    return Told(type=f"{what(address)}.started", address=address, time=time)


def stopped(address: str) -> Told:
    """The run stopped the code."""
    return Told(type=f"{what(address)}.stopped", address=address)


def failed(address: str, code: str, message: str) -> Told:
    """The code failed for good."""
    return Told(
        type=f"{what(address)}.failed", address=address, data={"code": code, "message": message}
    )


def finished(address: str, ended: str | None) -> Told:
    """The code returned; a call of a tool `ended` so."""
    if ended is not None:
        return Told(type="tool.finished", address=address, data={"outcome": ended})
    return Told(type=f"{what(address)}.finished", address=address)


def turned(address: str, turn: Mapping[str, Any]) -> Told:
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


def what(address: str) -> Literal["node", "tool"]:
    """What a visit is that of."""
    return "tool" if Address.parse(address).is_call else "node"


def reported(address: str, report: Mapping[str, Any]) -> Iterator[Told]:
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
                yield finished(address, outcome.get("ended"))
                if (turn := outcome.get("turn")) is not None:
                    yield turned(address, turn)
        case "stopped":
            yield stopped(address)
        case "failed":
            yield failed(address, outcome["code"], outcome["message"])
        case _:
            # A worker may be newer than this reader. The facts say what came of the visit.
            pass


def broken(address: str, failure: Failure) -> Told:
    """An activity ended without a report: it was cancelled, took too long, or met a bug."""
    # The SDK wraps what happened in one that says only that it was an activity.
    inner = failure.cause if failure.HasField("activity_failure_info") else failure
    if inner.HasField("canceled_failure_info"):
        return stopped(address)
    return failed(address, str(FailureCode.NODE_FAILED), inner.message)


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
    yield started(address, _began(event, about.get("original_schedule_time")))
    if marker.HasField("failure"):
        yield broken(address, marker.failure)
    else:
        yield from reported(address, report)


def _began(event: HistoryEvent, given: Mapping[str, int] | None) -> datetime | None:
    if given is None:
        return None
    moment = datetime.fromtimestamp(given["seconds"], UTC)
    moment += timedelta(microseconds=given["nanos"] // 1000)
    # The worker's clock says when it began, the server's when it was recorded.
    return min(moment, event.event_time.ToDatetime(tzinfo=UTC))
