"""Writes the rows of questions, and of the people whom they are for."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Executable,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    update,
)

from abeyance import views
from abeyance.core.terms import Priority
from abeyance.keyring import WrongKey
from abeyance.records import report
from abeyance.records.batch import Batch
from abeyance.records.documents import Documents, Transaction
from abeyance.records.engines import add_missing, insert
from abeyance.records.report import SHOWN
from abeyance.records.selecting import search_text_of_question
from abeyance.records.tables import FAR, micros, micros_or_none, people, questions

Row: TypeAlias = dict[str, Any]

LISTED: Final = ("open", "held")
"""The statuses of a question that waits for an answer, or whose answer is held."""
PRIORITIES: Final[Mapping[Priority, int]] = {"high": 0, "normal": 1, "low": 2}
STANDS: Final = questions.c.rewound_by == 0
"""No rewind has discarded the row. A question has another row for each rewind that discarded it."""
_ANSWERED: Final = "interrupt.answered"
_LONGEST: Final = 256
"""The most characters in the name of somebody who could answer. An index holds few more."""
_UNKNOWN: Final = select(questions.c.interrupt_id).where(
    questions.c.run == bindparam("run"),
    questions.c.batch > bindparam("after"),
    questions.c.batch < bindparam("number"),
    STANDS,
)
_NAMED: Final = (
    questions.c.run == bindparam("run"),
    questions.c.interrupt_id.in_(bindparam("ids", expanding=True)),
    STANDS,
)
_DELETE: Final = delete(questions).where(*_NAMED)
_VIEWS: Final = select(questions.c.interrupt_id, questions.c.view).where(*_NAMED)
_KEYS: Final = select(questions.c.interrupt_id, questions.c.id).where(
    *_NAMED, questions.c.batch == bindparam("number")
)
_DELETE_PEOPLE: Final = delete(people).where(
    people.c.question.in_(bindparam("questions", expanding=True))
)


def write(tx: Transaction, batch: Batch, *, row: int, is_live: bool) -> None:
    """Write the questions of a batch. `row` is that of their run; lists have them if it `is_live`."""
    if batch.gone:
        tx.connection.execute(_DELETE, {"run": row, "ids": batch.gone})
    if not batch.questions:
        return
    told, of = _missing_from_views(tx, row, batch), batch.view
    is_listed = is_live and of.ended_at is None
    rows = [
        {
            "run": row,
            "deployment": tx.deployment,
            "batch": batch.number,
            "listed": view.status if is_listed and view.status in LISTED else None,
            **_question(tx.documents, view, of=of, told=told[view.id]),
        }
        for view in batch.questions
    ]
    tx.connection.execute(_put_questions(tx.connection.dialect.name), rows)
    ids = [view.id for view in batch.questions]
    which = {"run": row, "ids": ids, "number": batch.number}
    found = tx.connection.execute(_KEYS, which)
    keys = {interrupt_id: key for interrupt_id, key in found}  # noqa: C416 (rows are no pairs to mypy)
    tx.connection.execute(_DELETE_PEOPLE, {"questions": [*keys.values()]})
    written = [view for view in batch.questions if view.id in keys]
    named = [each for view in written for each in _people(keys[view.id], view)]
    add_missing(tx.connection, people, named)


def take_off_lists(tx: Transaction, rows: Sequence[int], by: Batch | None = None) -> None:
    """Take the questions of runs off the lists. `by` is the batch with the end of the run."""
    listed = update(questions).where(questions.c.run.in_(rows), questions.c.listed.is_not(None))
    number: Any = questions.c.batch
    if by is not None:
        # A later batch, too, must distinguish the rows that the run knows from those that it does not.
        number = case((number > by.after, number), else_=by.number)
    tx.connection.execute(listed.values(listed=None, batch=number))


def strays(tx: Transaction, row: int, batch: Batch) -> list[str]:
    """Return the questions of a run that were changed by batches unknown to the run."""
    between = {"run": row, "after": batch.after, "number": batch.number}
    return [*tx.connection.execute(_UNKNOWN, between).scalars()]


def discard(tx: Transaction, row: int, batch: Batch, *, by: int) -> None:
    """Mark the questions of a run that a rewind discards. `by` is the number of the rewind's event."""
    # This batch has every question of the run that is open.
    told = [view.id for view in batch.questions]
    asked = [view.id for view in batch.questions if view.status in LISTED]
    waits = questions.c.status.in_(LISTED)
    since = (
        questions.c.run == row,
        questions.c.batch > batch.after,
        questions.c.batch < batch.number,
        STANDS,
        or_(
            questions.c.interrupt_id.not_in(told), and_(questions.c.interrupt_id.in_(asked), ~waits)
        ),
    )
    # A history may have more about a question than its row had when it was discarded first.
    before = delete(questions).where(questions.c.run == row, questions.c.rewound_by == by)
    named = select(questions.c.interrupt_id).where(*since)
    tx.connection.execute(before.where(questions.c.interrupt_id.in_(named)))
    status = case((waits, "cancelled"), else_=questions.c.status)
    discarded = update(questions).where(*since)
    tx.connection.execute(discarded.values(listed=None, rewound_by=by, status=status))


def without_discarded(tx: Transaction, row: int, batch: Batch) -> Batch:
    """Return a batch of a history without the questions that a rewind has discarded since."""
    ids = [view.id for view in batch.questions]
    since = select(questions.c.interrupt_id).where(
        questions.c.run == row,
        questions.c.interrupt_id.in_(ids),
        questions.c.batch >= batch.number,
        ~STANDS,
    )
    discarded = {*tx.connection.execute(since).scalars()}
    standing = [view for view in batch.questions if view.id not in discarded]
    return batch.model_copy(update={"questions": standing})


def _missing_from_views(tx: Transaction, row: int, batch: Batch) -> Mapping[str, Row]:
    """Return the recorded facts about the questions of a batch that their views lack: the content shown
    last, which a settled question does not keep, and the answer, which a run does not keep if it is long.
    """
    told: dict[str, Row] = {view.id: {} for view in batch.questions}
    for fact in batch.facts:
        audit, of = fact.audit or {}, told.get(str(fact.data.get("id")), {})
        if "shown" in audit:
            of["shown"] = audit["shown"]
        if fact.type == _ANSWERED:
            of["answer"] = audit.get("answer")
    lacking = [
        view.id
        for view in batch.questions
        if view.status == "answered" and view.answer is None and "answer" not in told[view.id]
    ]
    if lacking:
        for found in tx.connection.execute(_VIEWS, {"run": row, "ids": lacking}).all():
            with contextlib.suppress(WrongKey):
                told[found.interrupt_id]["answer"] = tx.documents.read(found.view).get("answer")
    return told


def _question(
    documents: Documents,
    view: views.InterruptView,
    *,
    of: views.RunView,
    told: Mapping[str, Any],
) -> Row:
    deadline = micros_or_none(view.deadline)
    is_settled = view.status not in LISTED
    if is_settled and view.answer is None:
        view = view.model_copy(update={"answer": told.get("answer")})
    shown = told.get("shown") if is_settled else view.model_dump(mode="json", include={*SHOWN})
    return {
        "interrupt_id": view.id,
        "status": view.status,
        "graph": of.graph,
        "outcome": report.outcome_of(view) if is_settled else None,
        "deciders": report.lines(report.deciders_of(view)) if is_settled else None,
        "capability": view.requested_capability,
        "priority": PRIORITIES[view.priority],
        "risk": -(view.risk or 0),
        "created_at": micros(view.created_at),
        "settled_at": micros_or_none(view.settled_at),
        "deadline": deadline,
        "due": FAR if deadline is None else deadline,
        "rewound_by": 0,
        "search": search_text_of_question(of, view, is_sealed=documents.are_sealed),
        "view": documents.write_view(view),
        "shown": shown and documents.write({name: shown.get(name) for name in SHOWN}, view.run_id),
    }


def _people(question: int, view: views.InterruptView) -> Iterator[Row]:
    def named(why: str, names: Sequence[str], **times: int) -> Iterator[Row]:
        for who in dict.fromkeys(name for name in names if len(name) <= _LONGEST):
            yield {
                "question": question,
                "who": who,
                "why": why,
                "since": None,
                "until": None,
            } | times

    if view.status not in LISTED:
        return
    yield from named("assignee", view.assignees)
    yield from named("quorum", [] if view.quorum is None else view.quorum.of)
    escalated = {who: each.at for each in reversed(view.escalations) for who in each.to}
    for who, at in escalated.items():
        yield from named("escalation", [who], since=micros(at))
    if view.claim is not None:
        yield from named("claim", [*view.claim.people], until=micros(view.claim.until))


@functools.cache
def _put_questions(dialect: str) -> Executable:
    made = insert(questions, dialect)
    key = [questions.c.run, questions.c.interrupt_id, questions.c.rewound_by]
    written = [each for each in questions.c if each not in key and each is not questions.c.id]
    return made.on_conflict_do_update(
        index_elements=key,
        set_={
            **{each.name: made.excluded[each.name] for each in written},
            "shown": func.coalesce(made.excluded.shown, questions.c.shown),
        },
        where=questions.c.batch <= made.excluded.batch,
    )
