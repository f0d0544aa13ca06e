"""Reads runs: one, lists of them, the number of active ones, and those longest inactive.

The run of an id is the newest with that id, because an id may be used again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, func, select

from abeyance import projections, views
from abeyance.core.idempotency import Keys
from abeyance.core.policy import ReadRights
from abeyance.core.state import Status
from abeyance.errors import BlockedCode
from abeyance.filters import RunFilter
from abeyance.keyring import WrongKey
from abeyance.records import cursors, selecting
from abeyance.records.batch import Extras
from abeyance.records.cursors import Page
from abeyance.records.documents import Transaction
from abeyance.records.questions import listed_of
from abeyance.records.questions import of_run as questions_of_run
from abeyance.records.selecting import AnyRow, Condition, Order
from abeyance.records.tables import FAR, events, micros, moment, questions, runs

_KEYS: Final = {
    "age": (runs.c.created_at, runs.c.id),
    "activity": (runs.c.active_at, runs.c.id),
}
_AT_ONCE: Final = 500
_MOST: Final = 50
"""The most questions of a run that a list shows."""
_SHOWN: Final = (
    *(runs.c.id, runs.c.view, runs.c.hindered, runs.c.run_id, runs.c.graph, runs.c.status),
    *(runs.c.conversation_id, runs.c.session_type, runs.c.started_by),
    *(runs.c.created_at, runs.c.updated_at, runs.c.ended_at),
)
"""The columns of a view, and those for the part of it that can be read without its key."""

_STATUSES: Final = (runs.c.status, runs.c.is_blocked | runs.c.hindered.is_not(None))
_CHANGED: Final = (
    select(runs.c.run_id, *_STATUSES, func.max(events.c.position))
    .join(runs, events.c.run == runs.c.id)
    .where(events.c.position > bindparam("after"))
    .group_by(runs.c.id)
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ActiveRun:
    """An open run and its last activity."""

    last_activity_at: datetime
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """The record of an ended run: its closing state, its latest calls with an idempotency key, and the
    JSON of the snapshot from which a retry continues, if a retry is possible.
    """

    record: views.ClosingRecord
    keys: Keys
    snapshot: Any


def run(tx: Transaction, run_id: str, *, origin: str | None = None) -> views.RunView | None:
    """Return a run with the questions that wait in it, whole.

    Return None if no run has this id, or if the newest one has another `origin`.
    """
    query = select(*_SHOWN).where(*selecting.the_run(tx.deployment, run_id, origin))
    found = tx.connection.execute(query).one_or_none()
    if found is None:
        return None
    waiting = [view for _, view in listed_of(tx, [found.id])]
    return _view(tx, found, interrupts=waiting)


def extras(tx: Transaction, run_id: str, *, origin: str | None = None) -> Extras:
    """Return the extras of a run; they are empty for a run that `run` does not find.

    Raises WrongKey.
    """
    query = select(runs.c.extras).where(*selecting.the_run(tx.deployment, run_id, origin))
    found = tx.connection.execute(query).scalar()
    return Extras() if found is None else Extras.model_validate(tx.documents.read(found))


def unsettled(tx: Transaction, executions: Mapping[str, str]) -> set[str]:
    """Return the runs that are open in the records, or missing there.

    `executions` has the newest execution of each in Temporal: the records may have the end of an earlier
    one, before a retry or a rewind that ended while the database was away.
    """
    run_ids, settled = [*executions], set[str]()
    for first in range(0, len(run_ids), _AT_ONCE):
        query = (
            select(runs.c.run_id, runs.c.ended_at, events.c.task)
            .outerjoin(events, (events.c.run == runs.c.id) & (events.c.number == runs.c.told))
            .where(
                runs.c.deployment == tx.deployment,
                runs.c.run_id.in_(run_ids[first : first + _AT_ONCE]),
                runs.c.is_newest,
            )
        )
        for row in tx.connection.execute(query):
            # As a condition of the query, this would make SQLite read all ended runs. Events after the
            # end have no task.
            execution = row.task and row.task.partition("/")[0]
            if row.ended_at is not None and execution in (None, executions[row.run_id]):
                settled.add(row.run_id)
    return {*run_ids} - settled


def ended(
    tx: Transaction, run_id: str, *, execution: str | None = None, origin: str | None = None
) -> EndedRun | None:
    """Return a run that has ended; None if its end is not recorded, or as `run`. Raises WrongKey.

    With an `execution` only the end of that execution counts.
    """
    found = run(tx, run_id, origin=origin)
    if found is None or found.ended_at is None:
        return None
    if execution is not None and unsettled(tx, {run_id: execution}):
        return None
    # This raises WrongKey without the key, when the view says no more than the lists do.
    beside = extras(tx, run_id, origin=origin)
    interrupts = questions_of_run(tx, run_id, status="all", origin=origin)
    record = views.closing_record(found, interrupts, beside.transcripts)
    return EndedRun(record=record, keys=beside.keys, snapshot=beside.snapshot)


def statuses(tx: Transaction, run_id: str) -> frozenset[str]:
    """Return the statuses that a caller can wait for: the run's own, and `blocked` if it is blocked."""
    query = select(*_STATUSES).where(*selecting.the_run(tx.deployment, run_id))
    found = tx.connection.execute(query).one_or_none()
    return frozenset() if found is None else _statuses(*found)


def changed(connection: Connection, after: int) -> tuple[int, Mapping[str, frozenset[str]]]:
    """Return the newest position, and `statuses` of the runs with events after the position `after`.

    Runs of one id in several deployments are taken together.
    """
    found = connection.execute(_CHANGED, {"after": after})
    last, by_id = after, defaultdict[str, frozenset[str]](frozenset)
    for run_id, status, is_blocked, position in found:
        last, by_id[run_id] = max(last, position), by_id[run_id] | _statuses(status, is_blocked)
    return last, by_id


def _statuses(status: str, is_blocked: object) -> frozenset[str]:
    return frozenset({status, views.UNTIL_BLOCKED} if is_blocked else {status})


def latest_numbers(tx: Transaction, run_id: str) -> tuple[int, int]:
    """Return the numbers of the latest batch and of the latest event of a run, or zeros."""
    query = select(runs.c.batch, runs.c.told).where(*selecting.the_run(tx.deployment, run_id))
    found = tx.connection.execute(query).one_or_none()
    return (0, 0) if found is None else (found.batch, found.told)


def page(
    tx: Transaction, filters: RunFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[views.RunView]:
    """Return a page of runs, in the order of the filter, without their values.

    Each has the first of its questions that wait, as the inbox shows them. Raises `invalid_body` for a
    cursor of another list.
    """
    found = selecting.page(
        tx,
        _SHOWN,
        [*_conditions(tx.deployment, filters)],
        Order(key=_KEYS[filters.order.removeprefix("-")], is_turned=filters.order.startswith("-")),
        criteria=cursors.criteria(filters, labels=sorted(filters.labels)),
        cursor=cursor,
        limit=limit,
    )
    waiting: dict[int, list[views.InterruptView]] = defaultdict(list)
    ids = [row.id for row in found.items]
    for id_, view in listed_of(tx, ids, most=_MOST):
        waiting[id_].append(projections.short(view))
    items = [
        _view(tx, row, interrupts=waiting[row.id], values={}, result=None) for row in found.items
    ]
    return Page(items=items, next_cursor=found.next_cursor, total=found.total)


def of_conversation(
    tx: Transaction, conversation_id: str, *, session_type: str | None, reads: ReadRights
) -> list[str]:
    """Return the ids of the open runs of a conversation, oldest first, of one session type or of all."""
    query = select(runs.c.run_id).where(
        runs.c.deployment == tx.deployment,
        runs.c.conversation_id == conversation_id,
        runs.c.is_newest,
        runs.c.ended_at.is_(None),
        *selecting.readable(runs.c.id, reads),
    )
    if session_type is not None:
        query = query.where(runs.c.session_type == session_type)
    return [*tx.connection.execute(query.order_by(runs.c.created_at, runs.c.id)).scalars()]


def active(tx: Transaction, *, coming: Collection[str], going: Collection[str]) -> int:
    """Return the number of runs that are open and not ending, without those that are `going` in a moment.

    Runs that are `coming` count too, unless they are recorded as over.
    """
    own = select(func.count()).where(runs.c.deployment == tx.deployment, runs.c.is_newest)
    is_open = (runs.c.ended_at.is_(None), runs.c.status != Status.ENDING)
    others = own.where(*is_open, runs.c.run_id.not_in([*coming, *going]))
    over = own.where(~and_(*is_open), runs.c.run_id.in_([*coming]))
    found = tx.connection.execute(select(others.scalar_subquery(), over.scalar_subquery())).one()
    return int(found[0]) + len(coming) - int(found[1])


def at_work(tx: Transaction) -> list[tuple[str, bool]]:
    """Return the open runs whose code is at work or that are blocked, and whether a visit is blocked."""
    query = (
        select(runs.c.run_id, runs.c.is_blocked)
        .where(runs.c.deployment == tx.deployment, runs.c.is_newest, runs.c.ended_at.is_(None))
        .where((runs.c.status != Status.AWAITING_INPUT) | runs.c.is_blocked)
        .order_by(runs.c.id)
    )
    return [(run_id, is_blocked) for run_id, is_blocked in tx.connection.execute(query)]


def by_activity(tx: Transaction, *, inactive_since: datetime | None = None) -> list[ActiveRun]:
    """Return the open runs that are not ending, the least recently active first.

    With `inactive_since`, leave out runs that were active after it, and those that wait for a moment of
    their own: the deadline of a question, or the end of a hold.
    """
    query = select(runs.c.active_at, runs.c.run_id).where(
        runs.c.deployment == tx.deployment,
        runs.c.is_newest,
        runs.c.ended_at.is_(None),
        runs.c.status != Status.ENDING,
    )
    if inactive_since is not None:
        waiting = select(questions.c.run).where(
            questions.c.deployment == tx.deployment,
            questions.c.listed.is_not(None),
            (questions.c.listed == "held") | (questions.c.due < FAR),
        )
        query = query.where(runs.c.active_at <= micros(inactive_since), runs.c.id.not_in(waiting))
    found = tx.connection.execute(query.order_by(runs.c.active_at, runs.c.run_id))
    return [ActiveRun(last_activity_at=moment(at), run_id=run_id) for at, run_id in found]


def open_ids(tx: Transaction) -> list[str]:
    """Return the ids of all runs that have not ended."""
    query = select(runs.c.run_id).where(
        runs.c.deployment == tx.deployment, runs.c.is_newest, runs.c.ended_at.is_(None)
    )
    return sorted(tx.connection.scalars(query))


def _conditions(deployment: int, filters: RunFilter) -> Iterator[Condition]:
    yield runs.c.deployment == deployment
    yield runs.c.is_newest
    if filters.statuses:
        yield runs.c.status.in_(sorted(filters.statuses))
    for name in ("graph", "conversation_id", "started_by"):
        if (wanted := getattr(filters, name)) is not None:
            yield runs.c[name] == wanted
    if filters.blocked is not None:
        is_blocked = runs.c.is_blocked | runs.c.hindered.is_not(None)
        yield is_blocked if filters.blocked else ~is_blocked
    if filters.since is not None:
        yield runs.c.created_at >= micros(filters.since)
    if filters.until is not None:
        yield runs.c.created_at < micros(filters.until)
    for label in filters.labels:
        yield selecting.labelled(runs.c.id, [label])
    yield from selecting.readable(runs.c.id, filters.reads)
    yield from selecting.containing(runs.c.search, filters.q)


def _view(tx: Transaction, row: AnyRow, **beside: Any) -> views.RunView:
    try:
        view = views.RunView.model_validate(tx.documents.read(row.view))
        if row.hindered is not None:
            why = map(views.BlockedView.model_validate, tx.documents.read(row.hindered))
            beside["blocked"] = [*why, *view.blocked]
        # The run records nothing when code runs again, so leave out the retries that are over.
        now = datetime.now(UTC)
        beside["retrying"] = [each for each in view.retrying if each.due > now]
    except WrongKey as error:
        view = views.RunView(
            run_id=row.run_id,
            graph=row.graph,
            graph_version="",
            status=row.status,
            conversation_id=row.conversation_id,
            session_type=row.session_type,
            labels=selecting.labels_of(tx, row.id),
            started_by=row.started_by,
            created_at=moment(row.created_at),
            updated_at=moment(row.updated_at),
            ended_at=None if row.ended_at is None else moment(row.ended_at),
            blocked=[views.BlockedView(code=BlockedCode.KEY_MISSING, message=str(error))],
            degraded=True,
        )
    return view.model_copy(update=beside)
