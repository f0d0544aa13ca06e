"""Writes a batch of a run: its row, its questions, its events.

A run hands over one batch after the other, but a batch may come twice, and late, from a worker that was
thought dead. And if a workflow task fails or times out, the run does not know the batch that the task
handed over. So a batch is written only if no later one was, and the next one takes back whatever the run
does not know. News that a run only tells (`Writer.tell`) is written so too: the next batch repeats it.

A rewound run, too, does not know what it did after the point of the rewind, and its batch says so. These
events stay, marked with the number of the event `run.rewound`; later events are numbered after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    bindparam,
    delete,
    select,
    update,
)

from abeyance import views
from abeyance.records import event_rows, grants, question_rows
from abeyance.records.batch import BEGINNING, Batch, Rewound, Written, numbered
from abeyance.records.documents import Documents, Transaction
from abeyance.records.engines import add_missing, lock_positions
from abeyance.records.event_rows import Tail
from abeyance.records.selecting import search_text
from abeyance.records.tables import (
    claims,
    erased,
    events,
    labels,
    micros,
    micros_or_none,
    runs,
)

Row: TypeAlias = dict[str, Any]

# SQLAlchemy takes longer to build a statement than SQLite to run it, so each is built once.
_ID: Final = (
    runs.c.deployment == bindparam("deployment"),
    runs.c.run_id == bindparam("run_id"),
)
_RUN: Final = (
    select(
        *(runs.c.id, runs.c.batch, runs.c.told, runs.c.hash, runs.c.is_newest),
        *(runs.c.rewind, runs.c.rewound_by, runs.c.ended_at),
    )
    .where(*_ID, runs.c.origin == bindparam("origin"))
    .with_for_update()
)
_BY_AGE: Final = select(runs.c.id).where(*_ID).order_by(runs.c.created_at.desc(), runs.c.id.desc())
_ERASED: Final = select(erased.c.at).where(
    erased.c.deployment == bindparam("deployment"), erased.c.run_id == bindparam("run_id")
)
_UPDATE_RUN: Final = update(runs).where(runs.c.id == bindparam("key"))
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


def write(tx: Transaction, batches: Sequence[Batch]) -> list[Written]:
    """Write batches of a deployment's runs, in the caller's transaction, and return their outcomes."""
    lock_positions(tx.connection)
    return [_write(tx, batch) for batch in batches]


def write_left(tx: Transaction, batch: Batch) -> bool:
    """Write the batch that a run has left at its end, and return whether it was new.

    The batch has all questions of the run. Any others that are recorded come from a workflow task that
    was done again, and are deleted.
    """
    lock_positions(tx.connection)
    run = _run(tx, batch)
    if run is None or batch.number <= run.latest:
        return False
    if batch.rewound is None:
        known = {view.id for view in batch.questions}
        strays = [id_ for id_ in question_rows.strays(tx, run.id, batch) if id_ not in known]
        batch = batch.model_copy(update={"gone": [*batch.gone, *strays]})
    _write(tx, batch)
    return True


def fill(tx: Transaction, batch: Batch) -> None:
    """Write the missing parts of a batch that a history has, even if a later batch was written. Missing
    grants are written as revoked, because no history tells whether they were.
    """
    lock_positions(tx.connection)
    run = _run(tx, batch)
    if run is None:
        return
    if batch.number > run.latest:
        _write(tx, batch, revoked_at=batch.active_at)
        return
    rewound, by = batch.rewound, None
    if rewound is not None:
        by = run.rewound_by if rewound.salt == run.rewind else rewound.by
        if by is not None:
            _discard(tx, run, batch, rewound, by=by)
    _, facts = numbered(batch, by)
    tail = event_rows.write(tx, run.tail, facts)
    grants.record(tx, batch, row=run.id, facts=facts, revoked_at=batch.active_at)
    tx.connection.execute(_UPDATE_RUN.values(told=tail.number, hash=tail.hash), {"key": run.id})
    question_rows.write(
        tx,
        question_rows.without_discarded(tx, run.id, batch),
        row=run.id,
        is_live=run.is_newest and not run.has_ended,
    )


def take_back(
    tx: Transaction,
    latest: Batch,
    questions: Sequence[views.InterruptView],
    *,
    over: Mapping[str, float] | None,
    until: datetime,
) -> None:
    """Take back the records after the latest batch of a run, if their tasks began before `until`: all
    that the run did before then is known. `questions` are all questions that the run knows.

    The run's next batch would take them back too, but an ended run has none, and a waiting run may have
    none for days.

    Clocks differ, so the task's name is checked too. `over` has, for each execution, the length of its
    history up to which tasks are over; None means that all tasks of every execution are over.
    """
    lock_positions(tx.connection)
    own = {"deployment": tx.deployment, "run_id": latest.view.run_id, "origin": latest.origin}
    row = tx.connection.execute(_RUN, own).one_or_none()
    bound = micros(until)
    if row is None or not latest.number < row.batch < bound:
        return
    shift = 0
    if latest.rewound is not None:
        if latest.rewound.salt != row.rewind:
            return
        shift = row.rewound_by - latest.rewound.at
    last = latest.latest_fact + shift
    task = tx.connection.execute(
        select(events.c.task)
        .where(events.c.run == row.id, events.c.number > last, events.c.rewound_by.is_(None))
        .order_by(events.c.number)
        .limit(1)
    ).scalar()
    execution, _, length = (task or "").partition("/")
    if not length:
        # The event was recorded from outside, such as an end by Temporal.
        return
    if over is not None and int(length) > over.get(execution, 0):
        return
    changes = {
        "number": bound,
        "after": latest.number,
        "questions": [*questions],
        "gone": [],
        "is_whole": True,
        "facts_before": last,
        "facts": [],
        "rewound": None,
    }
    write(tx, [latest.model_copy(update=changes)])


def _write(tx: Transaction, batch: Batch, *, revoked_at: datetime | None = None) -> Written:
    run = _run(tx, batch)
    if run is None:
        return Written(status="written")
    if batch.number < run.latest:
        return Written(status="outrun", latest=run.latest)
    if batch.is_whole:
        if run.latest <= batch.after and batch.latest_fact <= run.tail.number:
            # There is nothing to take back, and nothing new.
            return Written(status="written")
        if batch.latest_fact < (run.rewound_by or 0):
            # The run does not know yet that its rewind is recorded, but its next batch will.
            return Written(status="written")
        batch = _of_strays(tx, run, batch)
    rewound = batch.rewound
    by = None
    if rewound is not None:
        run, by = _rewind(tx, run, batch, rewound)
    if batch.number > run.latest:
        before, facts = numbered(batch, by)
        if run.latest > batch.after:
            run = replace(run, tail=event_rows.take_back(tx, run.tail, before, facts))
            grants.take_back(tx, run.id, before, facts)
        tail = event_rows.write(tx, run.tail, facts)
        grants.record(tx, batch, row=run.id, facts=facts, revoked_at=revoked_at)
        _write_run(tx, run.id, batch, tail)
        if run.latest <= BEGINNING:
            # This batch has the time at which Temporal began the run; the clocks of clients differ.
            run = replace(run, is_newest=_newest(tx, batch) == run.id)
        if batch.claim is not None:
            tx.connection.execute(_DELETE_CLAIM, {"taken": batch.claim})
        if batch.view.ended_at is not None:
            question_rows.take_off_lists(tx, [run.id], by=batch)
        question_rows.write(tx, batch, row=run.id, is_live=run.is_newest)
    shift = 0 if rewound is None or by is None else by - rewound.at
    # If the batch came before, nobody may have received its strays.
    strays = question_rows.strays(tx, run.id, batch) if run.latest > batch.after else []
    return Written(status="written", strays=strays, shift=shift)


def _of_strays(tx: Transaction, run: _Run, batch: Batch) -> Batch:
    """Reduce a batch of all questions to those that have to be put right."""
    strays = question_rows.strays(tx, run.id, batch)
    asked = {view.id: view for view in batch.questions}
    changes = {
        "questions": [asked[id_] for id_ in strays if id_ in asked],
        "gone": [id_ for id_ in strays if id_ not in asked],
    }
    return batch.model_copy(update=changes)


def _rewind(tx: Transaction, run: _Run, batch: Batch, rewound: Rewound) -> tuple[_Run, int]:
    """Discard what was recorded since the point of a rewind, once. Return the run, and the number of the
    rewind's event. A history may have events that were not recorded before the rewind: these are deleted.
    """
    if run.rewind == rewound.salt and run.rewound_by is not None:
        # The workflow task that made this batch for the first time is being done again.
        return run, run.rewound_by
    by = rewound.by or max(run.tail.number, rewound.at) + 1
    if run.tail.number >= by:
        run = replace(run, tail=event_rows.cut(tx, run.tail, by))
    grants.discard(tx, run.id, rewound.at, batch.active_at, rewound.actor)
    _discard(tx, run, batch, rewound, by=by)
    return run, by


def _discard(tx: Transaction, run: _Run, batch: Batch, rewound: Rewound, *, by: int) -> None:
    tx.connection.execute(_DISCARD_EVENTS, {"key": run.id, "kept": rewound.at, "by": by})
    question_rows.discard(tx, run.id, batch, by=by)
    if by > (run.rewound_by or 0):
        tx.connection.execute(
            _UPDATE_RUN.values(rewind=rewound.salt, rewound_by=by), {"key": run.id}
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """The recorded state of a run: its row, the number of its latest batch, and its latest event.

    It `is_newest` if no later run has its id. `rewind` is the latest of its rewinds, and `rewound_by` the
    number of its event.
    """

    id: int
    latest: int
    tail: Tail
    is_newest: bool
    has_ended: bool
    rewind: str | None
    rewound_by: int | None


def _run(tx: Transaction, batch: Batch) -> _Run | None:
    """Return the run of a batch, None if it was erased. A missing row is inserted."""
    namesakes = {"deployment": tx.deployment, "run_id": batch.view.run_id}
    identity = {**namesakes, "origin": batch.origin}
    found = tx.connection.execute(_RUN, identity).one_or_none()
    if found is None:
        erased_at = tx.connection.execute(_ERASED, namesakes).scalar()
        if erased_at is not None and micros(batch.view.created_at) <= erased_at:
            return None
        columns = {"batch": 0, "told": 0, "hash": "", "is_newest": True, "extras": "{}"}
        columns |= _columns(tx.documents, batch)
        add_missing(tx.connection, runs, [{**identity, **columns}])
        _newest(tx, batch)
        found = tx.connection.execute(_RUN, identity).one()
    return _Run(
        id=found.id,
        latest=found.batch,
        tail=Tail(run=found.id, run_id=batch.view.run_id, number=found.told, hash=found.hash),
        is_newest=found.is_newest,
        has_ended=found.ended_at is not None,
        rewind=found.rewind,
        rewound_by=found.rewound_by,
    )


def _newest(tx: Transaction, batch: Batch) -> int:
    """Return the newest run of the batch's id, and take all others off the lists."""
    namesakes = {"deployment": tx.deployment, "run_id": batch.view.run_id}
    newest, *older = tx.connection.execute(_BY_AGE, namesakes).scalars()
    if older:
        for ids, is_newest in (([newest], True), (older, False)):
            marked = update(runs).where(runs.c.id.in_(ids), runs.c.is_newest.is_not(is_newest))
            tx.connection.execute(marked.values(is_newest=is_newest))
        question_rows.take_off_lists(tx, older)
    return int(newest)


def _columns(documents: Documents, batch: Batch) -> Row:
    view = batch.view
    columns = {
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
        "search": search_text(view),
        "view": documents.write_view(view),
    }
    if batch.extras is not None:
        columns["extras"] = documents.write(batch.extras.model_dump(mode="json"), view.run_id)
    return columns


def _write_run(tx: Transaction, run: int, batch: Batch, tail: Tail) -> None:
    columns = {"batch": batch.number, "told": tail.number, "hash": tail.hash}
    columns |= _columns(tx.documents, batch)
    tx.connection.execute(_UPDATE_RUN, {"key": run, **columns})
    add_missing(
        tx.connection,
        labels,
        [{"run": run, "label": f"{name}={value}"} for name, value in batch.view.labels.items()],
    )
