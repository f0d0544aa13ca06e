"""Removes runs that are erased, of which a tombstone stays, and those that were kept long enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from sqlalchemy import Connection, delete, exists, insert, select, update

from abeyance.records.documents import Documents
from abeyance.records.tables import erased, grant_uses, micros, moment, runs

Standing: TypeAlias = Literal["kept", "erased", "unknown"]
"""Whether there is a run of an id, one that was erased, or neither."""

_PORTION: Final = 100
"""How many runs are removed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure of the runs of an id that had ended at a moment. `is_done`: nothing of them is left."""

    run_id: str
    at: datetime
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRun:
    """A run that was kept long enough, by its row. `is_newest`: no later run has its id."""

    row: int
    run_id: str
    ended_at: datetime
    is_newest: bool


def standing(
    connection: Connection, documents: Documents, deployment: int, run_id: str
) -> Standing:
    """Return whether there is a run of this id, one that was erased, or neither."""
    kept = exists().where(runs.c.deployment == deployment, runs.c.run_id == run_id)
    if connection.execute(select(kept)).scalar_one():
        return "kept"
    return "unknown" if erasure_of(connection, documents, deployment, run_id) is None else "erased"


def erasure_of(
    connection: Connection, documents: Documents, deployment: int, run_id: str
) -> Erasure | None:
    """Return what was erased of an id, None if nothing was."""
    del documents
    query = select(erased.c.run_id, erased.c.at, erased.c.is_done).where(
        erased.c.deployment == deployment, erased.c.run_id == run_id
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    return Erasure(run_id=found.run_id, at=moment(found.at), is_done=found.is_done)


def bury(
    connection: Connection,
    documents: Documents,
    deployment: int,
    erasure: Erasure,
    tombstone: Callable[[Sequence[str]], str],
) -> None:
    """Delete what is recorded of the runs of an id that had begun by then, and write their tombstone.

    It is made of the first executions of these runs.
    """
    del documents
    own = (
        runs.c.deployment == deployment,
        runs.c.run_id == erasure.run_id,
        runs.c.created_at <= micros(erasure.at),
    )
    origins = connection.execute(select(runs.c.origin).where(*own)).scalars().all()
    row = {"deployment": deployment, "run_id": erasure.run_id, "at": micros(erasure.at)}
    row |= {"tombstone": tombstone(sorted(origins)), "is_done": erasure.is_done}
    key = (erased.c.deployment == deployment, erased.c.run_id == erasure.run_id)
    connection.execute(delete(erased).where(*key))
    connection.execute(insert(erased).values(row))
    connection.execute(delete(runs).where(*own))
    # That they used a grant counts on.
    uses = update(grant_uses).where(
        grant_uses.c.deployment == deployment, grant_uses.c.origin.in_(origins)
    )
    connection.execute(uses.values(run_id=""))


def finish(connection: Connection, documents: Documents, deployment: int, done: Erasure) -> None:
    """Write that nothing is left of what was erased."""
    del documents
    mark = update(erased).where(
        erased.c.deployment == deployment,
        erased.c.run_id == done.run_id,
        erased.c.at == micros(done.at),
    )
    connection.execute(mark.values(is_done=True))


def unfinished(connection: Connection, documents: Documents, deployment: int) -> list[Erasure]:
    """Return erasures of which something is left, the oldest first, some at once."""
    del documents
    query = (
        select(erased.c.run_id, erased.c.at)
        .where(erased.c.deployment == deployment, ~erased.c.is_done)
        .order_by(erased.c.at)
        .limit(_PORTION)
    )
    return [
        Erasure(run_id=row.run_id, at=moment(row.at), is_done=False)
        for row in connection.execute(query)
    ]


def ended_before(
    connection: Connection, documents: Documents, deployment: int, until: datetime
) -> list[OldRun]:
    """Return runs that had ended at a moment, the oldest first, some at once."""
    del documents
    query = (
        select(runs.c.id, runs.c.run_id, runs.c.ended_at, runs.c.is_newest)
        .where(runs.c.deployment == deployment, runs.c.ended_at <= micros(until))
        .order_by(runs.c.ended_at)
        .limit(_PORTION)
    )
    return [
        OldRun(
            row=row.id, run_id=row.run_id, ended_at=moment(row.ended_at), is_newest=row.is_newest
        )
        for row in connection.execute(query)
    ]


def remove(
    connection: Connection, documents: Documents, deployment: int, rows: Sequence[int]
) -> None:
    """Delete what is recorded of some ended runs, by their rows."""
    del documents
    ended = (runs.c.deployment == deployment, runs.c.id.in_(rows), runs.c.ended_at.is_not(None))
    connection.execute(delete(runs).where(*ended))
