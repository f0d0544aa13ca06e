"""Writes a batch of a run: its row, its questions, its events.

A run hands over one batch after the other, but a batch may come twice, and late, from a worker that was
thought dead; and one may come of which the run knows nothing, because the workflow task in which it was
made came to nothing. So a batch is written only if no later one was, and the next one takes back what the
run does not know. What is only told (`Writer.tell`) is written alike: the next batch has it again.

A run that was rewound does not know what it did since either, and says so. That stays, marked with the
number of the event `run.rewound`, and its events are numbered after it.
"""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Connection,
    Executable,
    bindparam,
    case,
    delete,
    func,
    select,
    update,
)

from abeyance import views
from abeyance.core.terms import Priority
from abeyance.keyring import WrongKey
from abeyance.records import engines, event_rows, grant_rows, report, search_texts
from abeyance.records.batch import BEGINNING, Batch, Fact, Rewound, Written, numbered
from abeyance.records.documents import Documents
from abeyance.records.engines import add_missing, insert
from abeyance.records.event_rows import Tail
from abeyance.records.report import SHOWN
from abeyance.records.tables import (
    FAR,
    claims,
    erased,
    events,
    labels,
    micros,
    micros_or_none,
    people,
    questions,
    runs,
)

Row: TypeAlias = dict[str, Any]

LISTED: Final = ("open", "held")
"""The statuses of a question that waits for somebody, or to begin."""
PRIORITIES: Final[Mapping[Priority, int]] = {"high": 0, "normal": 1, "low": 2}
_ANSWERED: Final = "interrupt.answered"
_POSITIONS: Final = 0x6162_6579
"""The lock under which events get their positions."""

# To make a statement takes longer than SQLite needs to carry it out, so each is made once.
_LOCK: Final = select(func.pg_advisory_xact_lock(_POSITIONS), func.pg_notify(engines.CHANNEL, ""))
_ID: Final = (
    runs.c.deployment == bindparam("deployment"),
    runs.c.run_id == bindparam("run_id"),
)
_RUN: Final = (
    select(
        *(runs.c.id, runs.c.batch, runs.c.told, runs.c.hash, runs.c.is_newest),
        *(runs.c.rewind, runs.c.rewound_by),
    )
    .where(*_ID, runs.c.origin == bindparam("origin"))
    .with_for_update()
)
_BY_AGE: Final = select(runs.c.id).where(*_ID).order_by(runs.c.created_at.desc(), runs.c.id.desc())
_ERASED: Final = select(erased.c.at).where(
    erased.c.deployment == bindparam("deployment"), erased.c.run_id == bindparam("run_id")
)
_HAS_ENDED: Final = select(runs.c.ended_at.is_not(None)).where(runs.c.id == bindparam("run"))
_UPDATE_RUN: Final = update(runs).where(runs.c.id == bindparam("key"))
_UNKNOWN_QUESTIONS: Final = select(questions.c.interrupt_id).where(
    questions.c.run == bindparam("run"),
    questions.c.batch > bindparam("after"),
    questions.c.batch < bindparam("number"),
    questions.c.rewound_by.is_(None),
)
_DISCARD_EVENTS: Final = (
    update(events)
    .where(
        events.c.run == bindparam("key"),
        events.c.number > bindparam("kept"),
        events.c.number < bindparam("by"),
        events.c.rewound_by.is_(None),
    )
    .values(rewound_by=bindparam("by"))
)
_DELETE_CLAIM: Final = delete(claims).where(claims.c.token == bindparam("taken"))
_NAMED: Final = (
    questions.c.run == bindparam("run"),
    questions.c.interrupt_id.in_(bindparam("ids", expanding=True)),
)
_DELETE_QUESTIONS: Final = delete(questions).where(*_NAMED)
_VIEWS: Final = select(questions.c.interrupt_id, questions.c.view).where(*_NAMED)
_KEYS: Final = select(questions.c.interrupt_id, questions.c.id).where(
    *_NAMED, questions.c.batch == bindparam("number")
)
_DELETE_PEOPLE: Final = delete(people).where(
    people.c.question.in_(bindparam("questions", expanding=True))
)


def lock(connection: Connection) -> None:
    """Let no other transaction write until the end of this one."""
    # SQLite has one writer anyway. Readers go by the position: one that becomes visible after a later one
    # would be missed. Who listens is told at the end of the transaction.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)


def write(
    connection: Connection, documents: Documents, deployment: int, batches: Sequence[Batch]
) -> list[Written]:
    """Write batches of runs of a deployment, in a transaction of the caller's.

    Return what became of each.
    """
    lock(connection)
    return [_write(connection, documents, deployment, batch) for batch in batches]


def fill(connection: Connection, documents: Documents, deployment: int, batch: Batch) -> None:
    """Write what is missing of a batch of a history, whether a later one was written or not. Grants that
    are missing are written as revoked: nobody knows whether they were.
    """
    lock(connection)
    run = _run(connection, documents, deployment, batch)
    if run is None:
        return
    if batch.number > run.latest:
        _write(connection, documents, deployment, batch, revoked_at=batch.active_at)
        return
    rewound, by = batch.rewound, None
    if rewound is not None:
        by = run.rewound_by if rewound.salt == run.rewind else rewound.by
        if by is not None:
            _discard(connection, run, batch, rewound, by=by)
    _, facts = numbered(batch, by)
    tail = event_rows.write(connection, documents, run.tail, facts)
    grant_rows.record(
        *(connection, documents, deployment, batch),
        row=run.id,
        facts=facts,
        revoked_at=batch.active_at,
    )
    connection.execute(_UPDATE_RUN.values(told=tail.number, hash=tail.hash), {"key": run.id})
    _write_questions(connection, documents, deployment, run, batch)
    if connection.execute(_HAS_ENDED, {"run": run.id}).scalar_one():
        _take_off_lists(connection, [run.id])


def _write(
    connection: Connection,
    documents: Documents,
    deployment: int,
    batch: Batch,
    *,
    revoked_at: datetime | None = None,
) -> Written:
    run = _run(connection, documents, deployment, batch)
    if run is None:
        return Written(status="written")
    if batch.number < run.latest:
        return Written(status="outrun", latest=run.latest)
    if batch.is_whole:
        facts_known = batch.facts_before + len(batch.facts)
        if run.latest <= batch.after and facts_known <= run.tail.number:
            # There is nothing to take back, and nothing new.
            return Written(status="written")
        batch = _of_strays(connection, run, batch)
    rewound = batch.rewound
    by = None if rewound is None else _rewind(connection, run, batch, rewound)
    if batch.number > run.latest:
        before, facts = numbered(batch, by)
        if run.latest > batch.after:
            run = replace(run, tail=event_rows.take_back(connection, run.tail, before, facts))
            grant_rows.take_back(connection, run.id, before, facts)
        tail = event_rows.write(connection, documents, run.tail, facts)
        grant_rows.record(
            *(connection, documents, deployment, batch),
            row=run.id,
            facts=facts,
            revoked_at=revoked_at,
        )
        _write_run(connection, documents, run.id, batch, tail)
        if run.latest <= BEGINNING:
            # Now it is known when Temporal began it: clocks of clients differ.
            run = replace(run, is_newest=_newest(connection, deployment, batch) == run.id)
        if batch.claim is not None:
            connection.execute(_DELETE_CLAIM, {"taken": batch.claim})
        _write_questions(connection, documents, deployment, run, batch)
    shift = 0 if rewound is None or by is None else by - rewound.at
    if run.latest <= batch.after:
        return Written(status="written", shift=shift)
    # Nobody may have heard of them when it came for the first time.
    return Written(status="written", strays=_strays(connection, run, batch), shift=shift)


def _strays(connection: Connection, run: _Run, batch: Batch) -> list[str]:
    """Return the questions that were changed by batches of which the run does not know."""
    between = {"run": run.id, "after": batch.after, "number": batch.number}
    return [*connection.execute(_UNKNOWN_QUESTIONS, between).scalars()]


def _of_strays(connection: Connection, run: _Run, batch: Batch) -> Batch:
    """Return a batch of all questions with those that have to be put right."""
    strays = _strays(connection, run, batch)
    asked = {view.id: view for view in batch.questions}
    changes = {
        "questions": [asked[id_] for id_ in strays if id_ in asked],
        "gone": [id_ for id_ in strays if id_ not in asked],
    }
    return batch.model_copy(update=changes)


def _rewind(connection: Connection, run: _Run, batch: Batch, rewound: Rewound) -> int:
    """Discard what was recorded since the point of a rewind, once, and return the number of its event."""
    if run.rewind == rewound.salt and run.rewound_by is not None:
        # The task in which this batch was made for the first time came to nothing.
        return run.rewound_by
    by = rewound.by or max(run.tail.number, rewound.at) + 1
    grant_rows.discard(connection, run.id, rewound.at, batch.active_at, rewound.actor)
    _discard(connection, run, batch, rewound, by=by)
    return by


def _discard(connection: Connection, run: _Run, batch: Batch, rewound: Rewound, *, by: int) -> None:
    connection.execute(_DISCARD_EVENTS, {"key": run.id, "kept": rewound.at, "by": by})
    # The run hands over everything that is open with this batch.
    since = update(questions).where(
        questions.c.run == run.id,
        questions.c.batch > batch.after,
        questions.c.batch < batch.number,
        questions.c.rewound_by.is_(None),
        questions.c.interrupt_id.not_in([view.id for view in batch.questions]),
    )
    waiting = questions.c.status.in_(LISTED)
    status = case((waiting, "cancelled"), else_=questions.c.status)
    connection.execute(since.values(listed=None, rewound_by=by, status=status))
    if by > (run.rewound_by or 0):
        connection.execute(_UPDATE_RUN.values(rewind=rewound.salt, rewound_by=by), {"key": run.id})


@dataclass(frozen=True, slots=True)
class _Run:
    """The row of a run, the number of its latest batch, its latest event, and whether no later run has
    its id.

    `rewind` is the latest of its rewinds, and `rewound_by` the number of its event.
    """

    id: int
    latest: int
    tail: Tail
    is_newest: bool
    rewind: str | None = None
    rewound_by: int | None = None


def _run(
    connection: Connection, documents: Documents, deployment: int, batch: Batch
) -> _Run | None:
    """Return the run of a batch, whose row is made if it is missing; None if the run was erased."""
    namesakes = {"deployment": deployment, "run_id": batch.view.run_id}
    identity = {**namesakes, "origin": batch.origin}
    found = connection.execute(_RUN, identity).one_or_none()
    if found is None:
        erased_at = connection.execute(_ERASED, namesakes).scalar()
        if erased_at is not None and micros(batch.view.created_at) <= erased_at:
            return None
        columns = {"batch": 0, "told": 0, "hash": "", "is_newest": True}
        columns |= _columns(documents, batch)
        add_missing(connection, runs, [{**identity, **columns}])
        _newest(connection, deployment, batch)
        found = connection.execute(_RUN, identity).one()
    tail = Tail(
        deployment=deployment,
        run=found.id,
        run_id=batch.view.run_id,
        number=found.told,
        hash=found.hash,
    )
    return _Run(found.id, found.batch, tail, found.is_newest, found.rewind, found.rewound_by)


def _newest(connection: Connection, deployment: int, batch: Batch) -> int:
    """Return the newest run of the batch's id, and take all others off the lists."""
    namesakes = {"deployment": deployment, "run_id": batch.view.run_id}
    newest, *older = connection.execute(_BY_AGE, namesakes).scalars()
    if older:
        for ids, is_newest in (([newest], True), (older, False)):
            marked = update(runs).where(runs.c.id.in_(ids), runs.c.is_newest.is_not(is_newest))
            connection.execute(marked.values(is_newest=is_newest))
        _take_off_lists(connection, older)
    return int(newest)


def _take_off_lists(connection: Connection, ids: Sequence[int], by: Batch | None = None) -> None:
    listed = update(questions).where(questions.c.run.in_(ids), questions.c.listed.is_not(None))
    number: Any = questions.c.batch
    if by is not None:
        # What the run does not know has to be told apart from what it does, later too.
        number = case((number > by.after, number), else_=by.number)
    connection.execute(listed.values(listed=None, batch=number))


def _columns(documents: Documents, batch: Batch) -> Row:
    view = batch.view
    return {
        "graph": view.graph,
        "status": view.status,
        "conversation_id": view.conversation_id,
        "session_type": view.session_type,
        "started_by": view.started_by,
        "created_at": micros(view.created_at),
        "updated_at": micros(view.updated_at),
        "active_at": micros(batch.active_at),
        "ended_at": micros_or_none(view.ended_at),
        "is_blocked": bool(view.blocked),
        "hindered": None,
        "search": search_texts.of_run(view),
        "view": _document(documents, view),
    }


def _document(documents: Documents, view: views.RunView | views.InterruptView) -> str:
    # Of the sixty fields of a question few say anything.
    return documents.write(view.model_dump(mode="json", exclude_defaults=True), view.run_id)


def _write_run(
    connection: Connection, documents: Documents, run: int, batch: Batch, tail: Tail
) -> None:
    columns = {"batch": batch.number, "told": tail.number, "hash": tail.hash}
    columns |= _columns(documents, batch)
    connection.execute(_UPDATE_RUN, {"key": run, **columns})
    add_missing(
        connection,
        labels,
        [{"run": run, "label": f"{name}={value}"} for name, value in batch.view.labels.items()],
    )


def _write_questions(
    connection: Connection, documents: Documents, deployment: int, run: _Run, batch: Batch
) -> None:
    if batch.view.ended_at is not None:
        _take_off_lists(connection, [run.id], by=batch)
    if batch.gone:
        connection.execute(_DELETE_QUESTIONS, {"run": run.id, "ids": batch.gone})
    if not batch.questions:
        return
    told, of = _kept(connection, documents, run, batch, _told(batch.facts)), batch.view
    rows = [
        {
            "batch": batch.number,
            **_question(documents, deployment, run, view, of=of, told=told.get(view.id, {})),
        }
        for view in batch.questions
    ]
    connection.execute(_put_questions(connection.dialect.name), rows)
    ids = [view.id for view in batch.questions]
    which = {"run": run.id, "ids": ids, "number": batch.number}
    found = connection.execute(_KEYS, which)
    keys = {interrupt_id: key for interrupt_id, key in found}  # noqa: C416 (rows are no pairs to mypy)
    connection.execute(_DELETE_PEOPLE, {"questions": [*keys.values()]})
    written = [view for view in batch.questions if view.id in keys]
    named = [row for view in written for row in _people(keys[view.id], view)]
    add_missing(connection, people, named)


def _told(facts: Sequence[Fact]) -> Mapping[str, Row]:
    """Return what events tell of questions beyond their views: what was shown last, and the answer. A
    settled question keeps nothing of the first, and of a long answer nothing either.
    """
    told: dict[str, Row] = defaultdict(dict)
    for fact in facts:
        audit, id_ = fact.audit or {}, str(fact.data.get("id"))
        if "shown" in audit:
            told[id_]["shown"] = audit["shown"]
        if fact.type == _ANSWERED:
            told[id_]["answer"] = audit.get("answer")
    return told


def _kept(
    connection: Connection, documents: Documents, run: _Run, batch: Batch, told: Mapping[str, Row]
) -> Mapping[str, Row]:
    """Return what is told of questions, and the long answers that their run does not know any more."""
    views_ = (view for view in batch.questions if view.status == "answered" and view.answer is None)
    ids = [view.id for view in views_ if "answer" not in told.get(view.id, {})]
    if not ids:
        return told
    kept = dict(told)
    for row in connection.execute(_VIEWS, {"run": run.id, "ids": ids}).all():
        with contextlib.suppress(WrongKey):
            answer = documents.read(row.view).get("answer")
            kept[row.interrupt_id] = {**told.get(row.interrupt_id, {}), "answer": answer}
    return kept


def _question(
    documents: Documents,
    deployment: int,
    run: _Run,
    view: views.InterruptView,
    *,
    of: views.RunView,
    told: Mapping[str, Any],
) -> Row:
    deadline = micros_or_none(view.deadline)
    is_settled = view.status not in LISTED
    is_listed = not is_settled and run.is_newest and of.ended_at is None
    if is_settled and view.answer is None:
        view = view.model_copy(update={"answer": told.get("answer")})
    shown = told.get("shown") if is_settled else view.model_dump(mode="json", include={*SHOWN})
    return {
        "run": run.id,
        "deployment": deployment,
        "interrupt_id": view.id,
        "status": view.status,
        "listed": view.status if is_listed else None,
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
        "rewound_by": None,
        "search": search_texts.of_question(of, view, is_sealed=documents.are_sealed),
        "view": _document(documents, view),
        "shown": shown and documents.write({name: shown.get(name) for name in SHOWN}, view.run_id),
    }


def _people(question: int, view: views.InterruptView) -> Iterator[Row]:
    def named(why: str, names: Sequence[str], **times: int) -> Iterator[Row]:
        for who in dict.fromkeys(names):
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
    made, key = insert(questions, dialect), [questions.c.run, questions.c.interrupt_id]
    written = [each for each in questions.c if each not in key and each is not questions.c.id]
    return made.on_conflict_do_update(
        index_elements=key,
        set_={
            **{each.name: made.excluded[each.name] for each in written},
            "shown": func.coalesce(made.excluded.shown, questions.c.shown),
        },
        # What comes again does not bring back what a rewind has discarded.
        where=(questions.c.batch < made.excluded.batch)
        | ((questions.c.batch == made.excluded.batch) & questions.c.rewound_by.is_(None)),
    )
