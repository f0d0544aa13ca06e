"""The delegations of a deployment, a row for each, also those deleted before their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import delete, insert, select, update

from abeyance.core.delegations import Delegation, Delegations
from abeyance.records.documents import Documents, Transaction
from abeyance.records.selecting import lock_deployment
from abeyance.records.tables import delegations

_JSON: Final = TypeAdapter(Delegation)
_SEALED_FOR: Final = "delegations"
"""In place of the id of a run."""


def book(tx: Transaction) -> Delegations:
    """Return the delegations, oldest first, and those that were deleted."""
    query = (
        select(delegations)
        .where(delegations.c.deployment == tx.deployment)
        .order_by(delegations.c.number)
    )
    rows = [
        (row, _JSON.validate_python(tx.documents.read(row.document)))
        for row in tx.connection.execute(query)
    ]
    return Delegations(
        all=tuple(each for row, each in rows if not row.is_deleted),
        deleted={each.id: each for row, each in rows if row.is_deleted},
    )


def change(tx: Transaction, changed: Callable[[Delegations], Delegations]) -> Delegations:
    """Change the delegations, for one caller at a time, and return them. Raises what `changed` raises."""
    lock_deployment(tx)
    before = book(tx)
    after = changed(before)
    own = delegations.c.deployment == tx.deployment
    kept = {each.id for each in after.all}
    known = {each.id for each in before.all}
    if over := (known | {*before.deleted}) - kept - {*after.deleted}:
        tx.connection.execute(delete(delegations).where(own, delegations.c.id.in_(over)))
    if gone := (known - kept) & {*after.deleted}:
        deleted = update(delegations).where(own, delegations.c.id.in_(gone))
        tx.connection.execute(deleted.values(is_deleted=True))
    for each in after.all:
        if each.id not in known:
            row = _row(tx.documents, tx.deployment, each)
            tx.connection.execute(insert(delegations).values(row))
    return after


def _row(documents: Documents, deployment: int, made: Delegation) -> dict[str, Any]:
    return {
        "deployment": deployment,
        "id": made.id,
        "is_deleted": False,
        "document": documents.write(_JSON.dump_python(made, mode="json"), _SEALED_FOR),
    }
