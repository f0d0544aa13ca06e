"""Writes the events of a run, each with a hash that covers it and the hash of the event before.

A run numbers its own events, and may be over. So an act from outside, such as the revocation of a grant,
is stored beside them, without a number and with a hash of its own. Only audits read these rows. No
history has them, so they stay when events are taken back, rewound or made anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import bindparam, delete, insert, select, update

from abeyance.records.batch import Fact
from abeyance.records.documents import Transaction
from abeyance.records.selecting import AnyRow
from abeyance.records.tables import events, micros, runs

HASHED: Final = ("number", "at", "type", "address", "actor", "capability", "data", "audit")
"""The columns that the hash of an event covers, beside the hash of the event before."""
_LATER: Final = (
    select(events.c.number, events.c.at, events.c.type, events.c.address, events.c.actor)
    .where(events.c.run == bindparam("run"), events.c.number > bindparam("before"))
    .order_by(events.c.number)
)
_UNKNOWN: Final = delete(events).where(
    events.c.run == bindparam("run"), events.c.number >= bindparam("first")
)
_LATEST: Final = (
    select(events.c.number, events.c.hash)
    .where(events.c.run == bindparam("run"), events.c.number < bindparam("number"))
    .order_by(events.c.number.desc())
    .limit(1)
)
_INSERT: Final = insert(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The latest event of a run, after which others are written: its number and its hash."""

    run: int
    run_id: str
    number: int
    hash: str


def take_back(tx: Transaction, tail: Tail, before: int, facts: Sequence[Fact]) -> Tail:
    """Delete the events that the run does not know. Events that it knows stay in their place.

    Return the latest event that stays.
    """
    due = {(each.number, micros(each.time), each.type, each.address, each.actor) for each in facts}
    later = tx.connection.execute(_LATER, {"run": tail.run, "before": before}).all()
    unknown = next((row.number for row in later if tuple(row) not in due), None)
    return tail if unknown is None else cut(tx, tail, unknown)


def cut(tx: Transaction, tail: Tail, first: int) -> Tail:
    """Delete the events from a number on, and return the latest event that stays."""
    tx.connection.execute(_UNKNOWN, {"run": tail.run, "first": first})
    return _latest(tx, tail, before=first)


def write(tx: Transaction, tail: Tail, facts: Sequence[Fact]) -> Tail:
    """Write the events that are not there yet, and return the latest one of the run."""
    numbers = [fact.number for fact in facts if fact.number <= tail.number]
    missing: set[int] = set()
    if numbers:
        own = (events.c.run == tail.run, events.c.number.in_(numbers))
        missing = {*numbers} - {
            *tx.connection.execute(select(events.c.number).where(*own)).scalars()
        }
    rows: list[dict[str, Any]] = []
    for fact in sorted(facts, key=lambda fact: fact.number):
        if fact.number > tail.number:
            row = _row(tx, tail.run, tail.run_id, fact)
            hash_ = hash_of(tail.hash, (row[name] for name in HASHED))
            tail = replace(tail, number=fact.number, hash=hash_)
            rows.append({**row, "hash": hash_})
        elif fact.number in missing:
            rows.append({**_row(tx, tail.run, tail.run_id, fact), "hash": ""})
    if rows:
        tx.connection.execute(_INSERT, rows)
    return _chained(tx, tail, min(missing)) if missing else tail


def _latest(tx: Transaction, tail: Tail, *, before: int) -> Tail:
    found = tx.connection.execute(_LATEST, {"run": tail.run, "number": before}).one_or_none()
    if found is None:
        return replace(tail, number=0, hash="")
    return replace(tail, number=found.number, hash=found.hash)


def _chained(tx: Transaction, tail: Tail, first: int) -> Tail:
    """Compute the hashes of the events from a number on again, and return the latest event."""
    tail = _latest(tx, tail, before=first)
    later = select(events).where(events.c.run == tail.run, events.c.number >= first)
    for row in tx.connection.execute(later.order_by(events.c.number)).all():
        hash_ = hash_of(tail.hash, (getattr(row, name) for name in HASHED))
        tail = replace(tail, number=row.number, hash=hash_)
        chained = update(events).where(events.c.position == row.position)
        tx.connection.execute(chained.values(hash=hash_))
    return tail


def write_beside(tx: Transaction, run: int, fact: Fact) -> None:
    """Write an act of somebody outside the run, after its latest event. The caller holds the lock under
    which events get their positions.
    """
    own = select(runs.c.run_id, runs.c.told).where(runs.c.id == run)
    run_id, told = tx.connection.execute(own).one()
    row = {**_row(tx, run, run_id, fact), "number": None, "after": told}
    hash_ = hash_of(str(told), (row[name] for name in HASHED))
    tx.connection.execute(_INSERT, {**row, "hash": hash_})


def is_as_written(row: AnyRow, before: str) -> bool:
    """Return whether a row is as it was written: an event, with the hash of the event `before`, or an
    act from outside.
    """
    before = before if row.number is not None else str(row.after)
    return bool(row.hash == hash_of(before, (getattr(row, name) for name in HASHED)))


def hash_of(before: str, hashed: Iterable[Any]) -> str:
    """Return the hash over the columns of an event, and over the hash of the event before, else ""."""
    return sha256(json.dumps([before, *hashed]).encode()).hexdigest()


def _row(tx: Transaction, run: int, run_id: str, fact: Fact) -> dict[str, Any]:
    return {
        "deployment": tx.deployment,
        "run": run,
        "number": fact.number,
        "at": micros(fact.time),
        "type": fact.type,
        "address": fact.address,
        "actor": fact.actor,
        "capability": fact.capability,
        "data": tx.documents.write(fact.data, run_id),
        "audit": None if fact.audit is None else tx.documents.write(fact.audit, run_id),
        "task": fact.task,
    }
