"""Removes erased runs, whose tombstones stay, and runs that were kept long enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from sqlalchemy import delete, exists, insert, select, update

from abeyance.records.documents import Transaction
from abeyance.records.engines import lock_positions
from abeyance.records.tables import erased, grant_uses, micros, moment, runs

Standing: TypeAlias = Literal["kept", "erased", "unknown"]
"""Whether there is a run of an id, one that was erased, or neither."""

_PORTION: Final = 100
"""How many runs are removed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure of the runs of an id that had ended by `at`. `is_done`: none of their data is left."""

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


def standing(tx: Transaction, run_id: str) -> Standing:
    """Return whether there is a run of this id, one that was erased, or neither."""
    kept = exists().where(runs.c.deployment == tx.deployment, runs.c.run_id == run_id)
    if tx.connection.execute(select(kept)).scalar_one():
        return "kept"
    return "unknown" if erasure_of(tx, run_id) is None else "erased"


def erasure_of(tx: Transaction, run_id: str) -> Erasure | None:
    """Return the erasure of an id, None if no run of it was erased."""
    query = select(erased.c.run_id, erased.c.at, erased.c.is_done).where(
        erased.c.deployment == tx.deployment, erased.c.run_id == run_id
    )
    found = tx.connection.execute(query).one_or_none()
    if found is None:
        return None
    return Erasure(run_id=found.run_id, at=moment(found.at), is_done=found.is_done)


def bury(tx: Transaction, erasure: Erasure, tombstone: Callable[[Sequence[str]], str]) -> None:
    """Delete the records of the runs of an id that had begun by the erasure, and write their tombstone,
    which `tombstone` makes from the first executions of these runs.
    """
    # Others may erase the run as well, or write a batch of it, which looks for the tombstone.
    lock_positions(tx.connection)
    own = (
        runs.c.deployment == tx.deployment,
        runs.c.run_id == erasure.run_id,
        runs.c.created_at <= micros(erasure.at),
    )
    origins = tx.connection.execute(select(runs.c.origin).where(*own)).scalars().all()
    row = {"deployment": tx.deployment, "run_id": erasure.run_id, "at": micros(erasure.at)}
    row |= {"tombstone": tombstone(sorted(origins)), "is_done": erasure.is_done}
    key = (erased.c.deployment == tx.deployment, erased.c.run_id == erasure.run_id)
    tx.connection.execute(delete(erased).where(*key))
    tx.connection.execute(insert(erased).values(row))
    tx.connection.execute(delete(runs).where(*own))
    # Their uses of a grant still count.
    uses = update(grant_uses).where(
        grant_uses.c.deployment == tx.deployment, grant_uses.c.origin.in_(origins)
    )
    tx.connection.execute(uses.values(run_id=""))


def finish(tx: Transaction, done: Erasure) -> None:
    """Write that an erasure is complete."""
    mark = update(erased).where(
        erased.c.deployment == tx.deployment,
        erased.c.run_id == done.run_id,
        erased.c.at == micros(done.at),
    )
    tx.connection.execute(mark.values(is_done=True))


def resume(tx: Transaction, run_id: str, began: datetime) -> None:
    """Write that the erasure of a run is not complete, because Temporal has the run. A run of the same id
    that `began` after the erasure stays.
    """
    key = (erased.c.deployment == tx.deployment, erased.c.run_id == run_id)
    before = update(erased).where(*key, erased.c.at >= micros(began))
    tx.connection.execute(before.values(is_done=False))


def unfinished(tx: Transaction) -> list[Erasure]:
    """Return some erasures that are not complete, the oldest first."""
    query = (
        select(erased.c.run_id, erased.c.at)
        .where(erased.c.deployment == tx.deployment, ~erased.c.is_done)
        .order_by(erased.c.at)
        .limit(_PORTION)
    )
    return [
        Erasure(run_id=row.run_id, at=moment(row.at), is_done=False)
        for row in tx.connection.execute(query)
    ]


def ended_before(tx: Transaction, until: datetime) -> list[OldRun]:
    """Return some of the runs that had ended by a moment, the oldest first."""
    query = (
        select(runs.c.id, runs.c.run_id, runs.c.ended_at, runs.c.is_newest)
        .where(runs.c.deployment == tx.deployment, runs.c.ended_at <= micros(until))
        .order_by(runs.c.ended_at)
        .limit(_PORTION)
    )
    return [
        OldRun(
            row=row.id, run_id=row.run_id, ended_at=moment(row.ended_at), is_newest=row.is_newest
        )
        for row in tx.connection.execute(query)
    ]


def remove(tx: Transaction, rows: Sequence[int]) -> None:
    """Delete the records of ended runs, by their rows."""
    ended = (runs.c.deployment == tx.deployment, runs.c.id.in_(rows), runs.c.ended_at.is_not(None))
    tx.connection.execute(delete(runs).where(*ended))
