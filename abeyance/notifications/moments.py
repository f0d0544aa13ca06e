"""Moments: the events of a run that somebody may be notified of.

A run cannot read the file of rules, because the file may change between two replays. The client that
starts the run and the report of each visit give it patterns of event types. The worker that announces a
moment applies the rest of each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import Field

from abeyance import projections, wire
from abeyance.core.effects import Publish
from abeyance.core.json import sha256, size
from abeyance.core.outcome import Emitted
from abeyance.core.state import RunState
from abeyance.util import notification_workflow_id

ENDS: Final = ("run.completed", "run.halted", "run.cancelled", "run.failed")
EVENTS: Final = (
    *("interrupt.opened", "interrupt.reminded", "interrupt.escalated", "interrupt.reassigned"),
    *("interrupt.answered", "interrupt.expired", "interrupt.cancelled", "interrupt.changed"),
    *("interrupt.deadline_edited", "interrupt.reopened", "interrupt.claimed", "interrupt.released"),
    *("interrupt.voted", "interrupt.revised", "interrupt.held", "approval.remembered"),
    *("node.blocked", "node.unblocked", "budget.unpriced"),
    *("message.queued", "message.delivered", "message.returned", "message.rejected"),
    *("message.undelivered", "messages.cleared", "signal.refused"),
    *("run.awaiting_input", "run.paused", "run.resumed", "run.values_edited", "run.migrated"),
    "run.retried",
    *ENDS,
)
"""The types of events that rules may name, beside `user.<name>`."""
ABOUT_A_QUESTION: Final = "interrupt."
"""The prefix of the types of events about a question."""
OWN: Final = "user."
"""The prefix of the types of an author's own events."""

_OPENED: Final = "interrupt.opened"
_LARGEST: Final = 100_000
"""In bytes: a larger question is sent without its bulky fields, and larger data is left out."""


class Moment(wire.Record):
    """An event of a run, with the facts that rules match and receivers read.

    `key` is unique among the moments of one execution of the run. `interrupt` is the question of the
    event, as callers see it, without its answer.
    """

    key: str
    event: str
    time: datetime
    run_id: str
    graph: str
    status: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    interrupt: dict[str, Any] | None = None

    @property
    def summary(self) -> dict[str, Any]:
        """The fields for lists: its subject, and the run."""
        question = self.interrupt or {}
        return {
            "event": self.event,
            "time": self.time.isoformat(),
            "run_id": self.run_id,
            "graph": self.graph,
            "labels": self.labels,
            "interrupt": question.get("id"),
            "capability": question.get("requested_capability"),
        }

    def workflow_id(self, execution: str) -> str:
        """Return the id of the notification's workflow, which is the same for a repeat of the moment."""
        return notification_workflow_id(self.run_id, execution, self.key)


class Announcement(wire.Record):
    """Moments of one execution of a run."""

    execution: str
    moments: list[Moment]


class Receiver(wire.Record):
    """One receiver of a moment. It has no secret: the deliverer finds secrets in the file, by `target`.

    `shown` is its name for people. `person` is the entry in `people`, if the receiver is asked.
    """

    target: str
    shown: str
    person: str | None = None


class Receivers(wire.Record):
    """The receivers of a moment, and the people and groups whom it cannot reach."""

    found: list[Receiver]
    unreachable: list[wire.Undelivered]


def matches(pattern: str, text: str) -> bool:
    """Return whether a text fits a pattern, in which `*` is any characters."""
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


def wants(patterns: Iterable[str], event: str) -> bool:
    """Return whether one of the patterns fits a type of event.

    No pattern fits `notification.failed`: a notice about it might fail too.
    """
    return event != "notification.failed" and any(matches(pattern, event) for pattern in patterns)


def of_facts(state: RunState, start: wire.StartRun, facts: Sequence[Publish]) -> list[Moment]:
    """Return a moment for each published fact of a run that one of its patterns fits."""
    return [
        _moment(
            state,
            start,
            str(fact.number),
            fact.type,
            fact.time,
            address=fact.address,
            actor=fact.actor,
            data=fact.data,
        )
        for fact in facts
        if wants(start.notify, fact.type)
    ]


def of_rewound(
    state: RunState, start: wire.StartRun, facts: Sequence[Publish], now: datetime
) -> list[Moment]:
    """Return a moment for each question that is open after a rewind: people have a stale notice of it.

    People hear of the questions among the facts anyway.
    """
    told = {fact.data["id"] for fact in facts if fact.type == _OPENED}
    return [
        _moment(
            state,
            start,
            f"open-{entry.id}",
            _OPENED,
            now,
            address=entry.address,
            data={"id": entry.id, "name": entry.name, "kind": entry.kind},
        )
        for entry in state.ledger.open.values()
        if entry.status == "open" and entry.id not in told and wants(start.notify, _OPENED)
    ]


def of_emitted(
    state: RunState, start: wire.StartRun, address: str, emitted: Sequence[Emitted]
) -> list[Moment]:
    """Return the moments among the author's own events that the visit at `address` published."""
    return [
        _moment(
            state,
            start,
            sha256([address, each.time.isoformat(), number]),
            type_,
            each.time,
            address=address,
            data={"data": each.data},
        )
        for number, each in enumerate(emitted)
        if wants(start.notify, type_ := f"{OWN}{each.name}")
    ]


def of_end(state: RunState, start: wire.StartRun, now: datetime) -> list[Moment]:
    """Return the moment of a run's end."""
    ending, event = state.ending, f"run.{state.status}"
    if not wants(start.notify, event):
        return []
    error = None if ending is None else ending.error
    data: dict[str, Any] = {"reason": None if ending is None else ending.reason}
    if event == "run.failed" and error is not None:
        data |= {"code": error.code, "message": error.message}
    return [
        _moment(
            state,
            start,
            "end",
            event,
            now,
            address=None if error is None else error.address,
            actor=None if ending is None else ending.actor,
            data=data,
        )
    ]


def _moment(
    state: RunState,
    start: wire.StartRun,
    key: str,
    event: str,
    time: datetime,
    *,
    data: Mapping[str, Any],
    address: str | None = None,
    actor: str | None = None,
) -> Moment:
    return Moment(
        key=key,
        event=event,
        time=time,
        run_id=state.run_id,
        graph=state.spec.name,
        status=str(state.status),
        address=address,
        actor=actor,
        data=dict(data) if size(data) <= _LARGEST else {"truncated": True},
        labels=start.labels,
        interrupt=_question(state, data.get("id")) if event.startswith(ABOUT_A_QUESTION) else None,
    )


def _question(state: RunState, id_: Any) -> dict[str, Any] | None:
    try:
        shown = projections.interrupt(state, id_)
    except KeyError:
        # It was settled so long ago that the run has forgotten it.
        return None
    hidden: dict[str, Any] = {"answer": True, "answer_sha256": True}
    view = shown.model_dump(mode="json", exclude={**hidden, "votes": {"__all__": hidden}})
    if size(view) > _LARGEST:
        bulk = {"reason": None, "payload": None, "preview": None, "response_schema": None}
        view |= {**bulk, "parents": []}
        view["abridged"] = True
    return view
