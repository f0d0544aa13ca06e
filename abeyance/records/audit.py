"""Reads audits: the events of a run, or of all runs, with what only an audit says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import func, select

from abeyance import views
from abeyance.core.json import Json
from abeyance.errors import Unavailable
from abeyance.filters import AuditFilter
from abeyance.records import audit_chain, questions
from abeyance.records.cursors import unusable
from abeyance.records.documents import Documents, Transaction
from abeyance.records.event_rows import is_as_written
from abeyance.records.events import (
    FIELDS,
    Place,
    Positions,
    conditions,
    event_id,
    fields,
    positions,
)
from abeyance.records.question_rows import LISTED
from abeyance.records.runs import run
from abeyance.records.selecting import AnyRow, the_run
from abeyance.records.tables import events, micros, runs

_COLUMNS: Final = (*FIELDS, events.c.after, events.c.capability, events.c.audit, events.c.hash)
_IN_ORDER: Final = (
    func.coalesce(events.c.number, events.c.after),
    events.c.after.is_not(None),
    events.c.position,
)
"""Each event of a run, and then what was done from outside before the next one."""
_SCANNED: Final = 100_000
"""In positions: how much of the events of all runs a page looks at."""


def contents(tx: Transaction, run_id: str) -> Sequence[Mapping[str, Json]]:
    """Return the contents of the lines of an audit, none if there is no run of this id.

    Raises Unavailable if an event is not as it was written, and WrongKey.
    """
    view = run(tx, run_id)
    if view is None:
        return []
    identity = select(runs.c.id, runs.c.origin, runs.c.hash).where(*the_run(tx.deployment, run_id))
    row = tx.connection.execute(identity).one()
    told: list[dict[str, Json]] = []
    before = ""
    query = select(*_COLUMNS).where(events.c.run == row.id).order_by(*_IN_ORDER)
    for each in tx.connection.execute(query):
        if not is_as_written(each, before):
            what = f"event {each.number}, or one before it,"
            if each.number is None:
                what = f"{each.type!r} after event {each.after}"
            raise _damaged(run_id, f"{what} is not as it was written")
        if each.number is not None:
            before = each.hash
        told.append(_content(tx.documents, run_id, each))
    if before != row.hash:
        raise _damaged(run_id, "the latest events are missing")
    asked = questions.of_run(tx, run_id, status="all")
    settled = [each for each in asked if each.status not in LISTED]
    now = datetime.now(UTC)
    return [*told, audit_chain.closing(view, settled, execution=row.origin, now=now)]


def of_all(
    tx: Transaction, filters: AuditFilter, *, after: str | None = None, limit: int = 100
) -> tuple[list[dict[str, Json]], str | None]:
    """Return contents of lines of all runs that pass a filter, in the order of their positions, and the
    cursor after which to go on; None if there is nothing more.

    Raises WrongKey, and the refusals `invalid_body` for what is no cursor and `cursor_expired`.
    """
    between = positions(tx)
    place, newest = _place(after, between), between.newest
    # So that a page takes no longer however few events pass the filter.
    last = min(newest, place.position + _SCANNED)
    query = (
        select(*_COLUMNS, runs.c.run_id, runs.c.graph)
        .join(runs, events.c.run == runs.c.id)
        .where(events.c.deployment == tx.deployment, *conditions(filters))
        .where(events.c.position > place.position, events.c.position <= last)
        .order_by(events.c.position)
        .limit(limit)
    )
    if filters.since is not None:
        query = query.where(events.c.at >= micros(filters.since))
    if filters.until is not None:
        query = query.where(events.c.at < micros(filters.until))
    rows = tx.connection.execute(query).all()
    told = [{**_content(tx.documents, row.run_id, row), "graph": row.graph} for row in rows]
    if len(rows) == limit:
        return told, str(replace(place, position=rows[-1].position))
    return told, str(replace(place, position=last)) if last < newest else None


def _place(cursor: str | None, between: Positions) -> Place:
    place = Place(made_at=between.made_at) if cursor is None else Place.parse(cursor)
    if place is None:
        raise unusable(cursor or "", name="after")
    if place.made_at != between.made_at:
        raise place.expired(between.made_at)
    return place


def _content(documents: Documents, run_id: str, row: AnyRow) -> dict[str, Json]:
    event = views.Event(id=event_id(row.number or 0), run_id=run_id, **fields(documents, row))
    audit = None if row.audit is None else documents.read(row.audit)
    content = audit_chain.content_of(event, audit)
    if row.number is None:
        # It is no event of the run.
        del content["id"]
    return content


def _damaged(run_id: str, why: str) -> Unavailable:
    return Unavailable(
        f"the records of the run {run_id!r} are damaged ({why}): restore the database from a backup"
    )
