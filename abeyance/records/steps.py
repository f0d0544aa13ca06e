"""Steps: the events of a run that the core does not publish, of its start, its code and its end. Pure.

Each `node.started` is followed by exactly one of `node.finished`, `node.retrying`, `node.failed` and
`node.stopped`, unless the run ended first, or left the visit while it waited for an answer. The same
visit may start again under the same address. A tool call has the same events, as `tool.started` and so
on; a model turn also has `model.turn`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from abeyance import wire
from abeyance.core.address import Address
from abeyance.core.json import Json
from abeyance.core.outcome import (
    CALL_GRANTED,
    CALL_STARTED,
    AttemptFailed,
    Failed,
    Finished,
    Interrupted,
    Stopped,
    VisitOutcome,
)
from abeyance.core.state import Ending
from abeyance.errors import FailureCode

_OF_TURNS: Final = ("turn", "model", "calls", "usage", "finish_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An event, without its time and its number. `audit` is what the audit alone adds to it."""

    type: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    capability: str | None = None
    audit: dict[str, Any] | None = None


def began(start: wire.StartRun, graph: str) -> Step:
    """Return the event of the start of a run."""
    data = {
        "graph": graph,
        "graph_version": start.graph_version,
        "conversation_id": start.conversation_id,
        "session_type": start.session_type,
    }
    if start.sent_by is not None:
        data["on_behalf_of"] = start.started_by
    return Step(type="run.started", actor=start.sent_by or start.started_by, data=data)


def started(address: str) -> Step:
    """Return the event of the start of a visit's code."""
    return Step(type=f"{_node_or_tool(address)}.started", address=address)


def reported(address: str, outcome: VisitOutcome) -> Iterator[Step]:
    """Yield the events of a visit's outcome."""
    what = _node_or_tool(address)
    match outcome:
        case Finished() | Interrupted():
            for emitted in outcome.emitted:
                data = {"data": emitted.data}
                yield Step(type=f"user.{emitted.name}", address=address, data=data)
            # A visit that interrupted is not over; its questions have events.
            if isinstance(outcome, Finished):
                yield from _granted(address, outcome.granted)
                yield from _finished(address, what, outcome)
        case Stopped():
            yield from _granted(address, _begun_under(outcome.journal))
            yield Step(type=f"{what}.stopped", address=address)
        case AttemptFailed():
            failed = {
                "message": outcome.message,
                "attempt": outcome.attempts.count,
                "pause": outcome.pause,
            }
            yield Step(type=f"{what}.retrying", address=address, data=failed)
        case Failed():
            why = {"code": outcome.code, "message": outcome.message}
            yield from _granted(address, _begun_under(outcome.journal))
            yield Step(type=f"{what}.failed", address=address, data=why)
        case _:
            # The run itself publishes what blocks a visit.
            pass


def _begun_under(journal: Json) -> Json:
    """Return the grant under which a call has begun that is not finished."""
    return journal.get(CALL_GRANTED) if journal and journal.get(CALL_STARTED) else None


def _granted(address: str, granted: Json) -> Iterator[Step]:
    """Yield the event of a call that ran under a grant, if it did."""
    if granted is not None:
        # The transcript has the same fields beside the call.
        approval = {name: granted[name] for name in ("grant", "by")}
        data = {**approval, "approval": approval, "tool": granted["tool"], "call": granted["call"]}
        yield Step(
            type="approval.granted",
            address=address,
            actor=granted["by"],
            data=data,
            capability=granted["capability"],
            # A call that began under an older release does not have it.
            audit={"shown": granted["shown"]} if granted.get("shown") else None,
        )


def _finished(address: str, what: str, outcome: Finished) -> Iterator[Step]:
    status = outcome.tool_status
    data = {} if status is None else {"outcome": status}
    yield Step(type=f"{'tool' if data else what}.finished", address=address, data=data)
    if outcome.turn is not None:
        about = {name: outcome.turn.get(name) for name in _OF_TURNS}
        yield Step(type="model.turn", address=address, data=about)


def ended(ending: Ending) -> Step:
    """Return the event of a run's end."""
    error = ending.error
    data: dict[str, Any] = {"reason": ending.reason}
    if ending.outcome == "failed":
        data["code"] = error.code if error else FailureCode.NODE_FAILED
        data["message"] = error and error.message
    return Step(
        type=f"run.{ending.outcome}",
        address=None if error is None else error.address,
        actor=ending.actor if ending.outcome == "cancelled" else None,
        data=data,
    )


def _node_or_tool(address: str) -> str:
    return "tool" if Address.parse(address).is_call else "node"
