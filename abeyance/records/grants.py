"""Grants: written with the events of a run, found for its calls, listed, and revoked.

The event of the answer that makes a grant has all of its data, so a grant is written with the answer or
not at all. A use is taken before its call runs, and the event of the call has it too. So grants and uses
can be made anew from histories. No history has the revocation of a grant, so a grant that is made anew is
written as revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final, Literal

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from abeyance.core.approvals import Grant, Wanted, bytes_of, unknown
from abeyance.keyring import WrongKey
from abeyance.records import event_rows
from abeyance.records.batch import Batch, Fact
from abeyance.records.documents import Documents, Transaction
from abeyance.records.engines import add_missing, lock_positions
from abeyance.records.grant_views import GrantStatus, GrantUse, GrantView
from abeyance.records.selecting import AnyRow, lock_deployment
from abeyance.records.tables import (
    GRANTED,
    grant_uses,
    grants,
    micros,
    micros_or_none,
    moment,
    runs,
)

JSON: Final = TypeAdapter(Grant)
REMEMBERED: Final = "approval.remembered"
REVOKED: Final = "approval.revoked"
"""The type of an audit line about a revoked grant."""
_MOST_LISTED: Final = 500
"""The most grants in a list of all: their number grows forever."""


def record(
    tx: Transaction,
    batch: Batch,
    *,
    row: int,
    facts: Sequence[Fact],
    revoked_at: datetime | None = None,
) -> None:
    """Write the grants and the uses of events that are not there yet. `row` is the row of their run. With
    `revoked_at` the grants are written as revoked.
    """
    for fact in facts:
        if fact.type == REMEMBERED and fact.audit is not None:
            made = JSON.validate_python(fact.audit["grant"])
            values = {
                "deployment": tx.deployment,
                "id": made.id,
                "run": row,
                "event": fact.number,
                "is_of_run": made.run_id is not None,
                "tool": made.tool,
                "graph": made.graph,
                "made_by": made.by,
                "until": micros(made.until),
                "revoked_at": micros_or_none(revoked_at),
                "document": tx.documents.write(fact.audit["grant"], batch.view.run_id),
            }
            add_missing(tx.connection, grants, [values])
        elif fact.type == GRANTED:
            used = {
                "deployment": tx.deployment,
                "grant_id": fact.data["grant"],
                "origin": batch.origin,
            }
            used |= {"call": fact.address, "run_id": batch.view.run_id, "at": micros(fact.time)}
            add_missing(tx.connection, grant_uses, [used])


def take_back(tx: Transaction, row: int, before: int, facts: Sequence[Fact]) -> None:
    """Delete the grants that a run does not know: those of events after `before` that `facts` lack."""
    known = [fact.data["grant"] for fact in facts if fact.type == REMEMBERED]
    unknown = (grants.c.run == row, grants.c.event > before, grants.c.id.not_in(known))
    tx.connection.execute(delete(grants).where(*unknown))


def discard(tx: Transaction, row: int, kept: int, at: datetime, by: str | None) -> None:
    """Revoke the grants that a run made after the point to which somebody has rewound it."""
    since = (grants.c.run == row, grants.c.event > kept, grants.c.revoked_at.is_(None))
    tx.connection.execute(update(grants).where(*since).values(revoked_at=micros(at), revoked_by=by))


def covering(
    tx: Transaction, call: Wanted, *, now: datetime, may: Callable[[Grant], bool]
) -> Grant | None:
    """Return a standing grant that covers a call: the one that the call has used already, else the first
    that has a use left, else None. `may` says whether a grant holds.
    """
    query = (
        select(grants.c.document)
        .join(runs, grants.c.run == runs.c.id)
        .where(grants.c.deployment == tx.deployment, *_counts(now))
        .where(grants.c.tool == call.tool, grants.c.graph == call.graph)
        .where(
            or_(
                ~grants.c.is_of_run,
                and_(runs.c.run_id == call.run_id, runs.c.origin == call.origin),
            )
        )
        .order_by(grants.c.number)
    )
    free: Grant | None = None
    for document in tx.connection.execute(query).scalars().all():
        grant = _read(tx.documents, document)
        if grant is None or not grant.covers(call) or not may(grant):
            continue
        uses = _uses(tx, grant.id)
        if any((use.origin, use.call) == (call.origin, call.call) for use in uses):
            return grant
        if free is None and (grant.uses is None or len(uses) < grant.uses):
            free = grant
    return free


def take(
    tx: Transaction, call: Wanted, *, now: datetime, may: Callable[[Grant], bool]
) -> Grant | None:
    """Take a use of the grant that covers a call, and return the grant, or None if there is none. A call
    takes one use, however often it comes.
    """
    lock_deployment(tx)
    grant = covering(tx, call, now=now, may=may)
    if grant is not None:
        values = {"deployment": tx.deployment, "grant_id": grant.id, "origin": call.origin}
        values |= {"call": call.call, "run_id": call.run_id, "at": micros(now)}
        add_missing(tx.connection, grant_uses, [values])
    return grant


def revoke(
    tx: Transaction, id_: str, *, by: str, now: datetime, check: Callable[[Grant], None]
) -> GrantView:
    """Revoke a grant, and return it. Raises `not_found`, and what `check` raises.

    The audit of the run that made the grant has the revocation.
    """
    lock_positions(tx.connection)
    lock_deployment(tx)
    own = (grants.c.deployment == tx.deployment, grants.c.id == id_, grants.c.until > micros(now))
    row = tx.connection.execute(select(grants).where(*own)).one_or_none()
    if row is None:
        raise unknown(id_)
    grant = JSON.validate_python(tx.documents.read(row.document))
    check(grant)
    view = _view(tx, grant, row, now)
    if row.revoked_at is not None:
        return view
    revoked = update(grants).where(*own).values(revoked_at=micros(now), revoked_by=by)
    tx.connection.execute(revoked)
    told = Fact(
        number=0,
        time=now,
        type=REVOKED,
        actor=by,
        capability=grant.capability,
        data={"grant": id_, "tool": grant.tool},
    )
    event_rows.write_beside(tx, row.run, told)
    about = {"status": "revoked", "revoked_at": now, "revoked_by": by}
    return view.model_copy(update=about)


def listed(
    tx: Transaction,
    now: datetime,
    by: str | None = None,
    *,
    status: Literal["standing", "all"] = "standing",
    may: Callable[[Grant], bool] | None = None,
) -> list[GrantView]:
    """Return the standing grants, oldest first, made `by` somebody or by anybody. With the `status` all,
    return the newest of all that were ever made. `may` says whether a grant holds; None if nobody knows.
    """
    query = select(grants).where(grants.c.deployment == tx.deployment)
    if by is not None:
        query = query.where(grants.c.made_by == by)
    if status == "standing":
        query = query.where(*_counts(now)).order_by(grants.c.number)
        rows = tx.connection.execute(query).all()
    else:
        newest = query.order_by(grants.c.number.desc()).limit(_MOST_LISTED)
        rows = tx.connection.execute(newest).all()[::-1]
    found = [
        _view(tx, grant, row, now, may)
        for row in rows
        if (grant := _read(tx.documents, row.document)) is not None
    ]
    return [each for each in found if status in (each.status, "all")]


def counting(tx: Transaction, by: str, now: datetime) -> tuple[int, int]:
    """Return the number of a maker's standing grants, and the bytes that they take."""
    standing = listed(tx, now, by)
    return len(standing), sum(bytes_of(each.same) for each in standing)


def _counts(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return grants.c.revoked_at.is_(None), grants.c.until > micros(now)


def _read(documents: Documents, document: str) -> Grant | None:
    """Return a grant, None if this process lacks its key: then it lets no call run."""
    try:
        return JSON.validate_python(documents.read(document))
    except WrongKey:
        return None


def _view(
    tx: Transaction,
    grant: Grant,
    row: AnyRow,
    now: datetime,
    may: Callable[[Grant], bool] | None = None,
) -> GrantView:
    used = [
        GrantUse(run_id=use.run_id, call=use.call, at=moment(use.at)) for use in _uses(tx, grant.id)
    ]
    return GrantView(
        **asdict(grant),
        status=_status(grant, row, len(used), now, holds=may is None or may(grant)),
        used=used,
        revoked_at=None if row.revoked_at is None else moment(row.revoked_at),
        revoked_by=row.revoked_by,
    )


def _status(grant: Grant, row: AnyRow, used: int, now: datetime, *, holds: bool) -> GrantStatus:
    if row.revoked_at is not None:
        return "revoked"
    if grant.uses is not None and used >= grant.uses:
        return "used-up"
    if grant.until <= now:
        return "expired"
    return "standing" if holds else "void"


def _uses(tx: Transaction, id_: str) -> Sequence[AnyRow]:
    own = (grant_uses.c.deployment == tx.deployment, grant_uses.c.grant_id == id_)
    return tx.connection.execute(
        select(grant_uses).where(*own).order_by(grant_uses.c.at, grant_uses.c.call)
    ).all()
