"""Writes a batch of a run: its row, its questions, its events.

A batch may come twice, and late: after one that was written without it, by a worker that was thought
dead. Its events are written if they are missing, and the rest only if no later batch was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Table, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from abeyance import views
from abeyance.core.terms import Priority
from abeyance.records.batch import Batch, Fact
from abeyance.records.documents import Documents
from abeyance.records.tables import (
    FAR,
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
_POSITIONS: Final = 0x6162_6579
"""The lock under which events get their positions."""


def write(
    connection: Connection, documents: Documents, deployment: int, batches: Sequence[Batch]
) -> None:
    """Write batches of runs of a deployment, in a transaction of the caller's."""
    if connection.dialect.name == "postgresql":
        # Readers go by the position. One that becomes visible after a later one would be missed.
        connection.execute(select(func.pg_advisory_xact_lock(_POSITIONS)))
    for batch in batches:
        run = _run(connection, documents, deployment, batch)
        rows = [
            _event(documents, deployment, run.id, batch.view.run_id, fact) for fact in batch.facts
        ]
        _add(connection, events, rows)
        if batch.number > run.latest:
            _write_run(connection, documents, run.id, batch)
            _write_questions(connection, documents, deployment, run, batch)


@dataclass(frozen=True, slots=True)
class _Run:
    """The row of a run, the number of its latest batch, and whether no later run has its id."""

    id: int
    latest: int
    is_newest: bool


def _run(connection: Connection, documents: Documents, deployment: int, batch: Batch) -> _Run:
    """Return the run of a batch, whose row is made if it is missing."""
    namesakes = {"deployment": deployment, "run_id": batch.view.run_id}
    identity = {**namesakes, "origin": batch.origin}
    query = select(runs.c.id, runs.c.batch, runs.c.is_newest)
    query = query.filter_by(**identity).with_for_update()
    found = connection.execute(query).one_or_none()
    if found is None:
        columns = {"batch": 0, "is_newest": True, **_columns(documents, batch)}
        _add(connection, runs, [{**identity, **columns}])
        _mark_newest(connection, namesakes)
        found = connection.execute(query).one()
    return _Run(found.id, found.batch, found.is_newest)


def _mark_newest(connection: Connection, namesakes: Row) -> None:
    """Take all runs of an id but the newest off the lists."""
    by_age = select(runs.c.id).filter_by(**namesakes)
    by_age = by_age.order_by(runs.c.created_at.desc(), runs.c.id.desc())
    _, *older = connection.execute(by_age).scalars()
    if older:
        marked = update(runs).where(runs.c.id.in_(older), runs.c.is_newest)
        connection.execute(marked.values(is_newest=False))
        _take_off_lists(connection, older)


def _take_off_lists(connection: Connection, ids: Sequence[int]) -> None:
    listed = update(questions).where(questions.c.run.in_(ids), questions.c.listed.is_not(None))
    connection.execute(listed.values(listed=None))


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
        "search": _search_of_run(view),
        "view": _document(documents, view),
    }


def _document(documents: Documents, view: views.RunView | views.InterruptView) -> str:
    # Of the sixty fields of a question few say anything.
    return documents.write(view.model_dump(mode="json", exclude_defaults=True), view.run_id)


def _write_run(connection: Connection, documents: Documents, run: int, batch: Batch) -> None:
    columns = {"batch": batch.number, **_columns(documents, batch)}
    connection.execute(update(runs).where(runs.c.id == run).values(columns))
    _add(
        connection,
        labels,
        [{"run": run, "label": f"{name}={value}"} for name, value in batch.view.labels.items()],
    )


def _write_questions(
    connection: Connection, documents: Documents, deployment: int, run: _Run, batch: Batch
) -> None:
    if batch.view.ended_at is not None:
        _take_off_lists(connection, [run.id])
    for view in batch.questions:
        columns = _question(documents, deployment, run, batch.view, view)
        row = _insert(connection, questions).values(columns)
        connection.execute(
            row.on_conflict_do_update(
                index_elements=[questions.c.run, questions.c.interrupt_id], set_=columns
            )
        )
    ids = [view.id for view in batch.questions]
    found = connection.execute(
        select(questions.c.interrupt_id, questions.c.id).where(
            questions.c.run == run.id, questions.c.interrupt_id.in_(ids)
        )
    )
    keys = {interrupt_id: key for interrupt_id, key in found}  # noqa: C416 (rows are no pairs to mypy)
    connection.execute(delete(people).where(people.c.question.in_(keys.values())))
    named = [row for view in batch.questions for row in _people(keys[view.id], view)]
    _add(connection, people, named)


def _question(
    documents: Documents, deployment: int, run: _Run, of: views.RunView, view: views.InterruptView
) -> Row:
    deadline = micros_or_none(view.deadline)
    is_listed = view.status in LISTED and run.is_newest and of.ended_at is None
    return {
        "run": run.id,
        "deployment": deployment,
        "interrupt_id": view.id,
        "status": view.status,
        "listed": view.status if is_listed else None,
        "capability": view.requested_capability,
        "priority": PRIORITIES[view.priority],
        "risk": -(view.risk or 0),
        "created_at": micros(view.created_at),
        "settled_at": micros_or_none(view.settled_at),
        "deadline": deadline,
        "due": FAR if deadline is None else deadline,
        "search": _search_of_question(of, view, is_sealed=documents.are_sealed),
        "view": _document(documents, view),
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


def _event(documents: Documents, deployment: int, run: int, run_id: str, fact: Fact) -> Row:
    return {
        "deployment": deployment,
        "run": run,
        "number": fact.number,
        "at": micros(fact.time),
        "type": fact.type,
        "address": fact.address,
        "actor": fact.actor,
        "capability": fact.capability,
        "data": documents.write(fact.data, run_id),
        "shown": None if fact.shown is None else documents.write(fact.shown, run_id),
    }


def _search_of_run(view: views.RunView) -> str:
    labelled = (f"{name}={value}" for name, value in view.labels.items())
    return searchable(
        view.run_id, view.graph, view.conversation_id, view.started_by, view.sent_by, *labelled
    )


def _search_of_question(of: views.RunView, view: views.InterruptView, *, is_sealed: bool) -> str:
    named = [*view.assignees, view.answered_by, view.requested_capability]
    clear = searchable(view.id, view.name, view.address, *named, _search_of_run(of))
    if is_sealed:
        return clear
    return f"{clear}\n{searchable(view.prompt, *_texts(view.reason))}"


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
        case bool() | None:
            pass
        case _:
            yield str(value)


def searchable(*texts: str | None) -> str:
    """Return texts as a search compares them: without regard to upper and lower case.

    What no database holds in a text, which JSON may, is a question mark.
    """
    folded = "\n".join(text.casefold() for text in texts if text)
    return folded.replace("\0", "?").encode(errors="replace").decode()


def _add(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert the rows that are not there yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
