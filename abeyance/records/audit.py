"""Reads the audit of a run: its events, with the data that only an audit has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import func, select

from abeyance import views
from abeyance.core.json import Json
from abeyance.errors import Unavailable
from abeyance.records import audit_chain, questions
from abeyance.records.documents import Documents, Transaction
from abeyance.records.event_rows import is_as_written
from abeyance.records.events import FIELDS, event_id, fields
from abeyance.records.question_rows import LISTED
from abeyance.records.runs import run
from abeyance.records.selecting import AnyRow, the_run
from abeyance.records.tables import events, runs

_COLUMNS: Final = (*FIELDS, events.c.after, events.c.capability, events.c.audit, events.c.hash)
_IN_ORDER: Final = (
    func.coalesce(events.c.number, events.c.after),
    events.c.after.is_not(None),
    events.c.position,
)
"""Each event of a run, and then the acts from outside before the next event."""


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


def _content(documents: Documents, run_id: str, row: AnyRow) -> dict[str, Json]:
    event = views.Event(id=event_id(row.number or 0), run_id=run_id, **fields(documents, row))
    audit = None if row.audit is None else documents.read(row.audit)
    content = audit_chain.content_of(event, audit)
    if row.number is None:
        # This is not an event of the run.
        del content["id"]
    return content


def _damaged(run_id: str, why: str) -> Unavailable:
    return Unavailable(
        f"the records of the run {run_id!r} are damaged ({why}): restore the database from a backup"
    )
