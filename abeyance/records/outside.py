"""Facts that runs cannot record themselves: Temporal has ended them, or no worker can continue them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, exists, select, update

from abeyance import views, wire
from abeyance.records.batch import BEGINNING, Batch, Fact
from abeyance.records.documents import Transaction
from abeyance.records.engines import lock_positions
from abeyance.records.questions import listed_of
from abeyance.records.selecting import AnyRow, Condition, the_run
from abeyance.records.tables import claims, events, micros, moment, questions, runs
from abeyance.records.writing import write, write_left

_UNDELIVERED: Final = "notification.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end that the run could not record: the run's first execution, and its view from Temporal.

    `execution` is the execution that has ended; None if Temporal does not have it any more.
    """

    origin: str
    view: views.RunView
    execution: str | None = None

    @property
    def at(self) -> datetime:
        """When the run ended."""
        return self.view.ended_at or self.view.updated_at


def end(tx: Transaction, ends: Iterable[End | Batch]) -> int:
    """Record the ends of runs that the records have as open, and return how many were new.

    A batch is one that a run has left at its end.
    """
    ended = 0
    for each in ends:
        if isinstance(each, Batch):
            ended += write_left(tx, each)
            continue
        if (batch := _batch(tx, each)) is not None:
            write(tx, [batch])
            ended += 1
        tx.connection.execute(
            delete(claims).where(
                claims.c.deployment == tx.deployment,
                claims.c.run_id == each.view.run_id,
                claims.c.claimed_at <= micros(each.at),
            )
        )
    return ended


def lose(
    tx: Transaction, run_ids: Sequence[str], *, at: datetime, origin: str | None = None
) -> int:
    """Record that Temporal does not have these open runs any more, and return their number.

    With an `origin` only the run with this first execution is lost, not a later one with its id.
    """
    query = select(runs.c.run_id, runs.c.origin, runs.c.view).where(
        runs.c.deployment == tx.deployment,
        runs.c.run_id.in_(run_ids),
        runs.c.is_newest,
        runs.c.ended_at.is_(None),
        *([] if origin is None else [runs.c.origin == origin]),
    )
    how = {
        "status": "terminated",
        "reason": "Temporal does not have this run any more",
        "ended_at": at,
        "degraded": True,
    }
    lost = [
        End(
            origin=row.origin,
            view=views.RunView.model_validate(tx.documents.read(row.view)).model_copy(update=how),
        )
        for row in tx.connection.execute(query)
    ]
    return end(tx, lost)


def undelivered(
    tx: Transaction, run_id: str, failed: wire.NotificationFailed, *, at: datetime
) -> None:
    """Record for an ended run the receivers that a notification did not reach, once for each `at`."""
    lock_positions(tx.connection)
    found = _newest(tx, run_id, runs.c.ended_at.is_not(None))
    if found is None:
        return
    own = (events.c.run == found.id, events.c.type == _UNDELIVERED, events.c.at == micros(at))
    recorded = tx.connection.execute(select(events.c.data).where(*own)).scalars()
    before = [tx.documents.read(data) for data in recorded]
    asked = select(questions.c.capability).where(
        questions.c.run == found.id, questions.c.interrupt_id == failed.interrupt
    )
    # The question as it stands comes first, then the rows that rewinds discarded.
    capability = tx.connection.execute(asked.order_by(questions.c.rewound_by)).scalar()
    told = [
        {"event": failed.about, **each.model_dump(mode="json"), "id": failed.interrupt}
        for each in failed.undelivered
    ]
    facts = [
        Fact(number=0, time=at, type=_UNDELIVERED, data=data, capability=capability)
        for data in told
        if data not in before
    ]
    if facts:
        view = views.RunView.model_validate(tx.documents.read(found.view))
        write(tx, [_behind(found, view, facts)])


def hinder(tx: Transaction, hindered: Mapping[str, Sequence[views.BlockedView]]) -> None:
    """Record the open runs that their workers cannot continue, and why. All others are cleared."""
    own = (runs.c.deployment == tx.deployment, runs.c.is_newest, runs.c.ended_at.is_(None))
    freed = update(runs).where(*own, runs.c.hindered.is_not(None), runs.c.run_id.not_in(hindered))
    tx.connection.execute(freed.values(hindered=None))
    for run_id, why in hindered.items():
        written = tx.documents.write([each.model_dump(mode="json") for each in why], run_id)
        tx.connection.execute(
            update(runs).where(*own, runs.c.run_id == run_id).values(hindered=written)
        )


def _batch(tx: Transaction, ended: End) -> Batch | None:
    """Return the batch that records an end; None if the records have the end, or a later run."""
    # A later run may have the id, and a run that was retried or rewound may have ended before.
    is_new = runs.c.ended_at.is_(None) | (runs.c.ended_at < micros(ended.at))
    found = _newest(tx, ended.view.run_id, is_new, runs.c.created_at <= micros(ended.at))
    if found is None:
        return _unknown(tx, ended)
    settled = [_withdrawn(question, ended) for _, question in listed_of(tx, [found.id])]
    facts = [_withdrawal(question, ended) for question in settled]
    view = views.RunView.model_validate(tx.documents.read(found.view))
    changes: dict[str, Any] = {
        "status": ended.view.status,
        "outcome": ended.view.status,
        "reason": ended.view.reason,
        "updated_at": ended.at,
        "ended_at": ended.at,
        "open": 0,
        "running": [],
        "blocked": [],
        "retrying": [],
    }
    facts.append(
        Fact(
            number=0,
            time=ended.at,
            type=f"run.{ended.view.status}".replace("-", "_"),
            actor="temporal",
            data={"reason": ended.view.reason},
            # No workflow task did this.
            task=ended.execution and f"{ended.execution}/",
        )
    )
    return _behind(found, view.model_copy(update=changes), facts, settled)


def _unknown(tx: Transaction, ended: End) -> Batch | None:
    """Return the batch of a run that the records lack: it ended before it handed anything over."""
    later = exists().where(runs.c.deployment == tx.deployment, runs.c.run_id == ended.view.run_id)
    if tx.connection.scalar(select(later)):
        return None
    return Batch(
        number=BEGINNING + 1,
        after=BEGINNING,
        origin=ended.origin,
        view=ended.view,
        active_at=ended.view.updated_at,
        facts_before=0,
    )


def _newest(tx: Transaction, run_id: str, *conditions: Condition) -> AnyRow | None:
    """Return the newest run of an id, and the number of its latest event."""
    columns = (runs.c.id, runs.c.origin, runs.c.batch, runs.c.told, runs.c.active_at, runs.c.view)
    query = select(*columns).where(*the_run(tx.deployment, run_id), *conditions)
    return tx.connection.execute(query).one_or_none()


def _behind(
    found: AnyRow,
    view: views.RunView,
    facts: Sequence[Fact],
    settled: Sequence[views.InterruptView] = (),
) -> Batch:
    """Return a batch that numbers events after all that are recorded."""
    return Batch(
        number=found.batch + 1,
        after=found.batch,
        origin=found.origin,
        view=view,
        active_at=moment(found.active_at),
        facts_before=found.told,
        facts=[
            fact.model_copy(update={"number": number})
            for number, fact in enumerate(facts, found.told + 1)
        ],
        questions=[*settled],
    )


def _withdrawn(question: views.InterruptView, ended: End) -> views.InterruptView:
    changes = {"status": "cancelled", "settled_at": ended.at, "settled_reason": ended.view.reason}
    return question.model_copy(update=changes)


def _withdrawal(question: views.InterruptView, ended: End) -> Fact:
    return Fact(
        number=0,
        time=ended.at,
        type="interrupt.cancelled",
        address=question.address,
        actor="temporal",
        data={"id": question.id, "name": question.name, "reason": ended.view.reason},
        capability=question.requested_capability,
    )
