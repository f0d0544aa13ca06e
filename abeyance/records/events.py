"""Reads events: those of a run by number, and those of all runs by position.

Positions become visible in their order (`abeyance.records.writing`), so a reader that goes on after the
latest position it has seen misses none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select

from abeyance import views
from abeyance.filters import EventFilter
from abeyance.records import selecting
from abeyance.records.documents import Documents
from abeyance.records.selecting import AnyRow, Condition
from abeyance.records.tables import events, moment, runs

_COLUMNS: Final = (
    events.c.position,
    events.c.number,
    events.c.at,
    events.c.type,
    events.c.address,
    events.c.actor,
    events.c.data,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The positions of the oldest and the newest event of a deployment; 0 if it has none."""

    oldest: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Events of all runs, and the position up to which there are no others that pass the filter."""

    items: list[views.StreamEvent]
    position: int


def of_run(
    connection: Connection,
    documents: Documents,
    deployment: int,
    run_id: str,
    *,
    after: int = 0,
    limit: int = 1_000,
) -> list[views.Event]:
    """Return the events of a run after a number, in order; none if there is no run of this id."""
    query = (
        select(*_COLUMNS)
        .join(runs, events.c.run == runs.c.id)
        .where(runs.c.deployment == deployment, runs.c.run_id == run_id, runs.c.is_newest)
        .where(events.c.number > after)
        .order_by(events.c.number)
        .limit(limit)
    )
    return [
        views.Event(id=_id(row.number), **_fields(documents, row), run_id=run_id)
        for row in connection.execute(query)
    ]


def of_all(
    connection: Connection,
    documents: Documents,
    deployment: int,
    filters: EventFilter,
    *,
    after: int = 0,
    limit: int = 1_000,
) -> Stretch:
    """Return the events of all runs after a position that pass a filter, in order."""
    # What becomes visible between the two queries comes with the next stretch.
    newest = max(after, positions(connection, deployment).newest)
    query = (
        select(*_COLUMNS, runs.c.run_id, runs.c.graph)
        .join(runs, events.c.run == runs.c.id)
        .where(events.c.deployment == deployment)
        .where(events.c.position > after, events.c.position <= newest, *_conditions(filters))
        .order_by(events.c.position)
        .limit(limit)
    )
    items = [
        views.StreamEvent(
            id=_id(row.position),
            event_id=_id(row.number),
            run_id=row.run_id,
            graph=row.graph,
            **_fields(documents, row),
        )
        for row in connection.execute(query)
    ]
    return Stretch(items=items, position=int(items[-1].id) if len(items) == limit else newest)


def positions(connection: Connection, deployment: int) -> Positions:
    """Return the positions between which a reader may begin."""
    own = events.c.deployment == deployment
    # Apart, each is one look into the index.
    oldest = select(func.min(events.c.position)).where(own).scalar_subquery()
    newest = select(func.max(events.c.position)).where(own).scalar_subquery()
    first, last = connection.execute(select(oldest, newest)).one()
    return Positions(oldest=first or 0, newest=last or 0)


def _conditions(filters: EventFilter) -> Iterator[Condition]:
    if filters.graph is not None:
        yield runs.c.graph == filters.graph
    if filters.types:
        yield selecting.among(events.c.type, filters.types)
    if filters.capabilities:
        yield selecting.among(events.c.capability, filters.capabilities)
    yield from selecting.readable(events.c.run, filters.reads)


def _id(number: int) -> str:
    # As text it is greater than those before.
    return f"{number:012}"


def _fields(documents: Documents, row: AnyRow) -> dict[str, Any]:
    return {
        "time": moment(row.at),
        "type": row.type,
        "address": row.address,
        "actor": row.actor,
        "data": documents.read(row.data),
    }
