"""Reads events: those of a run by number, and those of all runs by position.

Positions become visible in their order (`abeyance.records.writing`), so a reader that goes on after the
latest position it has seen misses none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, func, select

from abeyance import views
from abeyance.errors import Code, Refusal
from abeyance.filters import EventFilter
from abeyance.keyring import WrongKey
from abeyance.records import selecting
from abeyance.records.documents import Documents, Transaction
from abeyance.records.selecting import AnyRow, Condition
from abeyance.records.tables import deployments, events, micros, moment, runs

FIELDS: Final = (
    events.c.position,
    events.c.number,
    events.c.at,
    events.c.type,
    events.c.address,
    events.c.actor,
    events.c.data,
    events.c.rewound_by,
)
"""The columns of an event."""
_DIGITS: Final = 12
_ID: Final = re.compile(rf"\d{{{_DIGITS}}}", re.ASCII)
_CURSOR: Final = re.compile(rf"(\d{{{_DIGITS}}})-([0-9a-f]{{1,15}})", re.ASCII)
_LOOKED_AT: Final = 20_000
"""How many positions one query looks at: few of them may pass a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The positions of the oldest and the newest event of a deployment; 0 if it has none.

    `made_at` is when its positions began, which distinguishes them from those of other records. It is 0
    if nothing was recorded yet.
    """

    oldest: int
    newest: int
    made_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the stream of all runs: a position among those that began at `made_at`."""

    position: int = 0
    made_at: int = 0

    def __str__(self) -> str:
        return f"{self.position:0{_DIGITS}}-{self.made_at:x}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """Return the place of a cursor of the stream, None if the text is not a cursor."""
        match = _CURSOR.fullmatch(text)
        return match and cls(position=int(match[1]), made_at=int(match[2], 16))

    def expired(self, now: int) -> Refusal:
        """Return the refusal of this place in records whose positions began at `now`."""
        return Refusal(
            Code.CURSOR_EXPIRED,
            "The cursor is of a database that was here before: continue from the oldest cursor, and list "
            "the runs to see what was missed.",
            oldest=str(Place(made_at=now)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Events of all runs, and the position up to which they are all that pass the filter.

    `is_last`: there are none after the position either, at present. `unreadable` are runs whose events
    are left out, because no key opens them.
    """

    items: list[views.StreamEvent]
    place: Place
    is_last: bool
    unreadable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some events of a run. `newest` is the number of its latest event, 0 if it has none.

    `is_last`: there are no others after them, at present. Events that are written later have a greater
    position than `position`.
    """

    items: list[views.Event]
    newest: int
    position: int
    is_last: bool
    has_ended: bool


def of_run(
    tx: Transaction, run_id: str, *, after: int = 0, limit: int = 1_000, discarded: bool = False
) -> list[views.Event]:
    """Return the events of a run after a number, in order; none if there is no run of this id.

    With `discarded` also those that a rewind has discarded.
    """
    rows = _rows(tx, run_id, after=after, limit=limit, discarded=discarded)
    return [_event(tx.documents, run_id, row) for row in rows]


def part_of_run(
    tx: Transaction,
    run_id: str,
    *,
    after: int = 0,
    beyond: int = 0,
    limit: int = 1_000,
    discarded: bool = False,
) -> Part | None:
    """Return the events of a run after a number, and beyond a position; None if there is no such run.

    `discarded` includes events that a rewind has discarded. If a workflow task is done again, another
    event may get the number of one that it recorded before. Positions are never given again.
    """
    found = tx.connection.execute(
        select(runs.c.told, runs.c.ended_at).where(*selecting.the_run(tx.deployment, run_id))
    ).one_or_none()
    if found is None:
        return None
    latest, ended_at = found
    # A later number may be greater than any that the column can hold.
    after = min(after, latest)
    rows = _rows(tx, run_id, after=after, beyond=beyond, limit=limit, discarded=discarded)
    return Part(
        items=[_event(tx.documents, run_id, row) for row in rows],
        newest=latest,
        position=newest(tx.connection),
        is_last=len(rows) < limit or rows[-1].number == latest,
        has_ended=ended_at is not None,
    )


def running(tx: Transaction, run_id: str) -> tuple[int, list[str]]:
    """Return the number of a run's latest event, and the addresses of the visits that run by then."""
    query = select(runs.c.told, runs.c.view).where(*selecting.the_run(tx.deployment, run_id))
    found = tx.connection.execute(query).one_or_none()
    if found is None:
        return 0, []
    latest, view = found
    return latest, tx.documents.read(view).get("running", [])


def of_all(tx: Transaction, filters: EventFilter, *, after: int = 0, limit: int = 1_000) -> Stretch:
    """Return the events of all runs after a position that pass a filter, in order."""
    # Events that become visible between the two queries come with the next stretch.
    between = positions(tx)
    begin = max(after, between.oldest - 1)
    end = max(after, min(between.newest, begin + _LOOKED_AT))
    query = (
        select(*FIELDS, runs.c.run_id, runs.c.graph)
        .join(runs, events.c.run == runs.c.id)
        .where(events.c.deployment == tx.deployment)
        .where(events.c.position > begin, events.c.position <= end, *_conditions(filters))
        .where(*_standing(discarded=False), events.c.number.is_not(None))
        .order_by(events.c.position)
        .limit(limit)
    )
    rows = tx.connection.execute(query).all()
    items, unreadable = list[views.StreamEvent](), set[str]()
    for row in rows:
        try:
            about = fields(tx.documents, row)
        except WrongKey:
            unreadable.add(row.run_id)
            continue
        items.append(
            views.StreamEvent(
                id=str(Place(position=row.position, made_at=between.made_at)),
                event_id=event_id(row.number),
                run_id=row.run_id,
                graph=row.graph,
                **about,
            )
        )
    if len(rows) == limit:
        end = rows[-1].position
    return Stretch(
        items=items,
        place=Place(position=end, made_at=between.made_at),
        is_last=end >= between.newest,
        unreadable=frozenset(unreadable),
    )


def positions(tx: Transaction) -> Positions:
    """Return the positions between which a reader may begin."""
    own = events.c.deployment == tx.deployment
    # As separate subqueries, each is one look into the index.
    oldest = select(func.min(events.c.position)).where(own).scalar_subquery()
    latest = select(func.max(events.c.position)).where(own).scalar_subquery()
    made_at = (
        select(deployments.c.made_at).where(deployments.c.id == tx.deployment).scalar_subquery()
    )
    first, last, made = tx.connection.execute(select(oldest, latest, made_at)).one()
    return Positions(oldest=first or 0, newest=last or 0, made_at=made or 0)


def place_before(tx: Transaction, since: datetime) -> Place:
    """Return the place before the first event of all runs after a time."""
    between = positions(tx)
    later = (
        select(events.c.position)
        .where(events.c.deployment == tx.deployment, events.c.at > micros(since))
        .order_by(events.c.position)
        .limit(1)
    )
    first = tx.connection.execute(later).scalar_one_or_none()
    position = between.newest if first is None else first - 1
    return Place(position=position, made_at=between.made_at)


def newest(connection: Connection) -> int:
    """Return the newest position of all deployments, 0 if there is none."""
    return connection.execute(select(func.max(events.c.position))).scalar_one() or 0


def event_id(number: int) -> str:
    """Return the id of an event of a run: as text it is greater than those before."""
    return f"{number:0{_DIGITS}}"


def number_of(text: str) -> int | None:
    """Return the number of the event with this id, None if the text is not an id."""
    return int(text) if _ID.fullmatch(text) else None


def _rows(
    tx: Transaction,
    run_id: str,
    *,
    after: int,
    beyond: int = 0,
    limit: int,
    discarded: bool = False,
) -> Sequence[AnyRow]:
    query = (
        select(*FIELDS)
        .join(runs, events.c.run == runs.c.id)
        .where(*selecting.the_run(tx.deployment, run_id))
        .where(events.c.number > after, events.c.position > beyond, *_standing(discarded=discarded))
        .order_by(events.c.number)
        .limit(limit)
    )
    return tx.connection.execute(query).all()


def _event(documents: Documents, run_id: str, row: AnyRow) -> views.Event:
    return views.Event(id=event_id(row.number), **fields(documents, row), run_id=run_id)


def _standing(*, discarded: bool) -> Iterator[Condition]:
    if not discarded:
        yield events.c.rewound_by.is_(None)


def _conditions(filters: EventFilter) -> Iterator[Condition]:
    """Yield the conditions under which an event, joined with its run, passes a filter."""
    if filters.graph is not None:
        yield runs.c.graph == filters.graph
    if filters.types:
        yield selecting.among(events.c.type, filters.types)
    if filters.capabilities:
        yield selecting.among(events.c.capability, filters.capabilities)
    yield from selecting.readable(events.c.run, filters.reads)


def fields(documents: Documents, row: AnyRow) -> dict[str, Any]:
    """Return the fields of an event that its row has."""
    return {
        "time": moment(row.at),
        "type": row.type,
        "address": row.address,
        "actor": row.actor,
        "data": documents.read(row.data),
        "rewound_by": row.rewound_by,
    }
