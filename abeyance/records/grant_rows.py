"""Writes the rows of grants and of the calls that ran under them, of the events of a run.

The event of the answer that makes a grant has all of it, so a grant is written with the answer or not at
all. A use is taken before its call runs, and the event of the call has it too: so both can be made anew
from histories. That a grant was revoked is in no history, so one that is made anew is written as revoked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, update

from abeyance.core.grants import Grant
from abeyance.records.batch import Batch, Fact
from abeyance.records.documents import Documents
from abeyance.records.engines import add_missing
from abeyance.records.tables import GRANTED, grant_uses, grants, micros, micros_or_none

JSON: Final = TypeAdapter(Grant)
REMEMBERED: Final = "approval.remembered"


def record(
    connection: Connection,
    documents: Documents,
    deployment: int,
    batch: Batch,
    *,
    row: int,
    facts: Sequence[Fact],
    revoked_at: datetime | None = None,
) -> None:
    """Write the grants and the uses that events tell of, those that are not there yet. `row` is that of
    their run, and grants count only without `revoked_at`.
    """
    for fact in facts:
        if fact.type == REMEMBERED and fact.audit is not None:
            made = JSON.validate_python(fact.audit["grant"])
            values = {
                "deployment": deployment,
                "id": made.id,
                "run": row,
                "event": fact.number,
                "is_of_run": made.run_id is not None,
                "tool": made.tool,
                "graph": made.graph,
                "made_by": made.by,
                "until": micros(made.until),
                "revoked_at": micros_or_none(revoked_at),
                "document": documents.write(fact.audit["grant"], batch.view.run_id),
            }
            add_missing(connection, grants, [values])
        elif fact.type == GRANTED:
            used = {
                "deployment": deployment,
                "grant_id": fact.data["grant"],
                "origin": batch.origin,
            }
            used |= {"call": fact.address, "run_id": batch.view.run_id, "at": micros(fact.time)}
            add_missing(connection, grant_uses, [used])


def take_back(connection: Connection, row: int, before: int, facts: Sequence[Fact]) -> None:
    """Delete the grants of a run that it does not know: those of events after `before`, which are not
    among these.
    """
    known = [fact.data["grant"] for fact in facts if fact.type == REMEMBERED]
    unknown = (grants.c.run == row, grants.c.event > before, grants.c.id.not_in(known))
    connection.execute(delete(grants).where(*unknown))


def discard(connection: Connection, row: int, kept: int, at: datetime, by: str | None) -> None:
    """Revoke the grants of a run that somebody has rewound to before it made them."""
    since = (grants.c.run == row, grants.c.event > kept, grants.c.revoked_at.is_(None))
    connection.execute(update(grants).where(*since).values(revoked_at=micros(at), revoked_by=by))
