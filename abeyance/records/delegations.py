"""The delegations of a deployment, a row for each, also those deleted before their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, insert, select, update

from abeyance.core.delegations import Delegation, Delegations
from abeyance.records.documents import Documents
from abeyance.records.selecting import alone
from abeyance.records.tables import delegations

_JSON: Final = TypeAdapter(Delegation)
_SEALED_FOR: Final = "delegations"
"""In place of the id of a run."""


def book(connection: Connection, documents: Documents, deployment: int) -> Delegations:
    """Return the delegations, oldest first, and what is known of those that were deleted."""
    query = (
        select(delegations)
        .where(delegations.c.deployment == deployment)
        .order_by(delegations.c.number)
    )
    rows = [
        (row, _JSON.validate_python(documents.read(row.document)))
        for row in connection.execute(query)
    ]
    return Delegations(
        all=tuple(each for row, each in rows if not row.is_deleted),
        deleted={each.id: each for row, each in rows if row.is_deleted},
    )


def change(
    connection: Connection,
    documents: Documents,
    deployment: int,
    changed: Callable[[Delegations], Delegations],
) -> Delegations:
    """Change the delegations, by one caller at a time, and return them. Raises what `changed` raises."""
    alone(connection, deployment)
    before = book(connection, documents, deployment)
    after = changed(before)
    own = delegations.c.deployment == deployment
    kept = {each.id for each in after.all}
    known = {each.id for each in before.all}
    if over := (known | {*before.deleted}) - kept - {*after.deleted}:
        connection.execute(delete(delegations).where(own, delegations.c.id.in_(over)))
    if gone := (known - kept) & {*after.deleted}:
        deleted = update(delegations).where(own, delegations.c.id.in_(gone))
        connection.execute(deleted.values(is_deleted=True))
    for each in after.all:
        if each.id not in known:
            row = _row(documents, deployment, each)
            connection.execute(insert(delegations).values(row))
    return after


def _row(documents: Documents, deployment: int, made: Delegation) -> dict[str, Any]:
    return {
        "deployment": deployment,
        "id": made.id,
        "is_deleted": False,
        "document": documents.write(_JSON.dump_python(made, mode="json"), _SEALED_FOR),
    }
