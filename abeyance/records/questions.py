"""Reads questions: the inbox over all runs, those of one run, and one by its id.

A batch marks waiting questions in the column `listed`, so the inbox reads one index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, and_, func, or_, select

from abeyance import projections, views
from abeyance.core.policy import Principal
from abeyance.core.terms import GROUP
from abeyance.filters import InboxFilter, Order
from abeyance.keyring import WrongKey
from abeyance.records import cursors, selecting
from abeyance.records.cursors import Page
from abeyance.records.documents import Documents, Transaction
from abeyance.records.question_rows import LISTED, PRIORITIES, STANDS
from abeyance.records.selecting import AnyRow, Condition
from abeyance.records.tables import FAR, micros, moment, people, questions, runs

_BY_DEADLINE: Final = (questions.c.due, questions.c.interrupt_id)
_KEYS: Final[Mapping[str, Sequence[Column[Any]]]] = {
    "deadline": _BY_DEADLINE,
    "age": (questions.c.created_at, *_BY_DEADLINE),
    "priority": (questions.c.priority, *_BY_DEADLINE),
    "risk": (questions.c.risk, *_BY_DEADLINE),
}
_HIGHEST_RISK: Final = 100
_ALL: Final = 100_000
_SHOWN: Final = (
    *(questions.c.view, questions.c.interrupt_id, questions.c.capability),
    *(questions.c.created_at, questions.c.deadline, questions.c.status, questions.c.rewound_by),
)
"""The columns of a question's view; those after the first can be read without its key."""
_STARTED_BY: Final = (
    select(runs.c.started_by)
    .where(runs.c.id == questions.c.run)
    .correlate(questions)
    .scalar_subquery()
    .label("started_by")
)
_COUNTS: Final = and_(
    STANDS,
    or_(questions.c.listed.is_not(None), questions.c.status.not_in(LISTED)),
)
"""The questions that are settled or listed, so not those that an ended run has left open."""


def inbox(
    tx: Transaction,
    filters: InboxFilter,
    *,
    order: Order = "deadline",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[views.InterruptView]:
    """Return a page of the questions that wait, each without its reason, payload and schema.

    Ties go by deadline, then by id. Raises `invalid_body` for a cursor of another list or order.
    """
    of = filters.mine
    mine = None if of is None else [of.subject, *sorted(of.groups)]
    found = selecting.page(
        tx,
        (*_SHOWN, _STARTED_BY),
        [
            questions.c.deployment == tx.deployment,
            questions.c.listed == filters.status,
            *_of_ids(tx.deployment, filters.ids),
            *_of_question(filters),
            *_for_people(filters),
            *_of_runs(tx.deployment, filters),
            *selecting.readable(questions.c.run, filters.reads),
            *selecting.containing(questions.c.search, filters.q),
        ],
        selecting.Order(key=_KEYS[order.removeprefix("-")], is_turned=order.startswith("-")),
        criteria=cursors.criteria(filters, order=order, mine=mine),
        cursor=cursor,
        limit=limit,
    )
    items = [
        projections.short(_view(tx.documents, row)).model_copy(
            update={"started_by": row.started_by}
        )
        for row in found.items
    ]
    return Page(items=items, next_cursor=found.next_cursor, total=found.total)


def _of_ids(deployment: int, ids: Collection[str]) -> Iterator[Condition]:
    if ids:
        # Look them up by run, because an index has the ids of each run.
        run_ids = {id_.rpartition(".")[0] for id_ in ids}
        wanted = (runs.c.deployment == deployment, runs.c.run_id.in_(sorted(run_ids)))
        yield questions.c.run.in_(select(runs.c.id).where(*wanted))
        yield questions.c.interrupt_id.in_(sorted(ids))


def _of_question(filters: InboxFilter) -> Iterator[Condition]:
    if filters.capabilities:
        yield selecting.among(questions.c.capability, sorted(filters.capabilities))
    if filters.graph is not None:
        yield questions.c.graph == filters.graph
    if filters.before is not None:
        yield questions.c.due < micros(filters.before)
    # `+ 0` keeps SQLite from using the index of an order here, with which it would read every row.
    if filters.priority is not None:
        yield questions.c.priority + 0 == PRIORITIES[filters.priority]
    if filters.min_risk is not None:
        yield questions.c.risk + 0 <= -min(filters.min_risk, _HIGHEST_RISK + 1)


def _for_people(filters: InboxFilter) -> Iterator[Condition]:
    if filters.assignee is not None:
        yield _named(people.c.why == "assignee", people.c.who == filters.assignee)
    if filters.mine is not None:
        yield _mine(filters.mine, micros(datetime.now(UTC)))


def _mine(principal: Principal, now: int) -> Condition:
    own = [principal.subject, *(f"{GROUP}{name}" for name in principal.groups)]
    is_asked = and_(
        people.c.why != "claim",
        people.c.who.in_(own),
        or_(people.c.since.is_(None), people.c.since <= now),
    )
    is_claimed = and_(
        people.c.why == "claim", people.c.who == principal.subject, people.c.until > now
    )
    return _named(or_(is_asked, is_claimed))


def _named(*conditions: Condition) -> Condition:
    return questions.c.id.in_(select(people.c.question).where(*conditions))


def _of_runs(deployment: int, filters: InboxFilter) -> Iterator[Condition]:
    wanted = {
        runs.c.deployment: deployment,
        runs.c.conversation_id: filters.conversation_id,
        runs.c.started_by: filters.started_by,
    }
    conditions = [column == value for column, value in wanted.items() if value is not None]
    if len(conditions) > 1:
        # A run that has ended has no question on a list.
        is_open = (runs.c.ended_at.is_(None), runs.c.is_newest)
        yield questions.c.run.in_(select(runs.c.id).where(*is_open, *conditions))


def question(
    tx: Transaction, run_id: str, interrupt_id: str, *, origin: str | None = None
) -> views.InterruptView | None:
    """Return one question, whole: as it stands, or else as the latest rewind discarded it. None if the
    run has no question of that id, or another `origin`.
    """
    if not interrupt_id.isprintable():
        # No id has such characters, and not every database takes them.
        return None
    wanted = [
        *selecting.the_run(tx.deployment, run_id, origin),
        questions.c.interrupt_id == interrupt_id,
        _COUNTS | ~STANDS,
    ]
    found = _read(tx, wanted)
    return max(found, key=lambda view: view.rewound_by or FAR, default=None)


def of_run(
    tx: Transaction,
    run_id: str,
    *,
    status: str = "open",
    discarded: bool = False,
    origin: str | None = None,
) -> list[views.InterruptView]:
    """Return the questions of a run that have a status, or `all`, whole; with `discarded` those that a
    rewind has discarded.

    Waiting questions come first, in the order of asking, then the settled ones, in the order of settling.
    """
    wanted = [
        *selecting.the_run(tx.deployment, run_id, origin),
        ~STANDS if discarded else _COUNTS,
    ]
    if status != "all":
        wanted.append(questions.c.status == status)
    return _read(tx, wanted)


def _read(tx: Transaction, wanted: Sequence[Condition]) -> list[views.InterruptView]:
    query = (
        select(*_SHOWN)
        .join(runs, questions.c.run == runs.c.id)
        .where(*wanted)
        .order_by(
            questions.c.settled_at.is_not(None),
            questions.c.settled_at,
            questions.c.created_at,
            questions.c.id,
        )
    )
    return [_view(tx.documents, row) for row in tx.connection.execute(query)]


def listed_of(
    tx: Transaction, ids: Sequence[int], *, most: int = _ALL
) -> Iterator[tuple[int, views.InterruptView]]:
    """Yield the waiting questions of the runs with these rows, at most `most` of each, in the order of
    asking.
    """
    number = func.row_number().over(partition_by=questions.c.run, order_by=questions.c.id)
    numbered = select(questions.c.run, questions.c.id, *_SHOWN, number.label("number"))
    waiting = numbered.where(questions.c.run.in_(ids), questions.c.listed.is_not(None)).subquery()
    query = select(waiting).where(waiting.c.number <= most)
    for row in tx.connection.execute(query.order_by(waiting.c.id)):
        yield row.run, _view(tx.documents, row)


def _view(documents: Documents, row: AnyRow) -> views.InterruptView:
    try:
        view = views.InterruptView.model_validate(documents.read(row.view))
        if not row.rewound_by:
            return view
        changes: dict[str, Any] = {"rewound_by": row.rewound_by}
        if view.status in LISTED:
            changes |= {"status": row.status, "settled_reason": "the run was rewound"}
        return view.model_copy(update=changes)
    except WrongKey as error:
        return views.InterruptView(
            id=row.interrupt_id,
            run_id=row.interrupt_id.rpartition(".")[0],
            graph="",
            name="",
            kind=views.UNREADABLE,
            address="",
            prompt=f"This question cannot be read here: {error}",
            requested_capability=row.capability,
            created_at=moment(row.created_at),
            deadline=None if row.deadline is None else moment(row.deadline),
            status=row.status,
            rewound_by=row.rewound_by or None,
            degraded=True,
        )
