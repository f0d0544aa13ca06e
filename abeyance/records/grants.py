"""Reads grants, takes their uses, and revokes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from abeyance.core.grants import Grant, Wanted, unknown
from abeyance.keyring import WrongKey
from abeyance.records import event_rows, grant_rows
from abeyance.records.documents import Documents
from abeyance.records.grant_rows import JSON
from abeyance.records.grant_views import GrantUse, GrantView
from abeyance.records.selecting import AnyRow, alone
from abeyance.records.tables import grant_uses, grants, micros, moment, runs
from abeyance.records.writing import write

REVOKED: Final = "approval.revoked"
"""What an audit calls it that somebody revoked a grant."""


def covering(
    connection: Connection,
    documents: Documents,
    deployment: int,
    call: Wanted,
    *,
    now: datetime,
    may: Callable[[Grant], bool],
) -> Grant | None:
    """Return a grant that counts, covers a call and has a use for it, None without one: first the one
    that the call has used. `may` says whether a grant holds.
    """
    query = (
        select(grants.c.document)
        .join(runs, grants.c.run == runs.c.id)
        .where(grants.c.deployment == deployment, *_counts(now))
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
    for document in connection.execute(query).scalars().all():
        grant = _read(documents, document)
        if grant is None or not grant.covers(call) or not may(grant):
            continue
        uses = _uses(connection, deployment, grant.id)
        if any((use.origin, use.call) == (call.origin, call.call) for use in uses):
            return grant
        if free is None and (grant.uses is None or len(uses) < grant.uses):
            free = grant
    return free


def take(
    connection: Connection,
    documents: Documents,
    deployment: int,
    call: Wanted,
    *,
    now: datetime,
    may: Callable[[Grant], bool],
) -> Grant | None:
    """Take a use of the grant that covers a call, and return it, None without one. A call takes one use,
    however often it comes.
    """
    alone(connection, deployment)
    grant = covering(connection, documents, deployment, call, now=now, may=may)
    if grant is not None:
        values = {"deployment": deployment, "grant_id": grant.id, "origin": call.origin}
        values |= {"call": call.call, "run_id": call.run_id, "at": micros(now)}
        connection.execute(grant_rows.missing(connection, grant_uses, values))
    return grant


def revoke(
    connection: Connection,
    documents: Documents,
    deployment: int,
    id_: str,
    *,
    by: str,
    now: datetime,
    check: Callable[[Grant], None],
) -> GrantView:
    """Revoke a grant, and return it. Raises `unknown_grant`, and what `check` raises.

    It is told in the audit of the run that made it.
    """
    # First the lock under which events get their positions.
    write(connection, documents, deployment, [])
    alone(connection, deployment)
    own = (grants.c.deployment == deployment, grants.c.id == id_, grants.c.until > micros(now))
    query = select(grants.c.run, grants.c.document, grants.c.revoked_at, grants.c.revoked_by)
    row = connection.execute(query.where(*own)).one_or_none()
    if row is None:
        raise unknown(id_)
    grant = JSON.validate_python(documents.read(row.document))
    check(grant)
    view = _view(connection, deployment, grant)
    if row.revoked_at is not None:
        revoked_at, by_whom = moment(row.revoked_at), row.revoked_by
        return view.model_copy(update={"revoked_at": revoked_at, "revoked_by": by_whom})
    revoked = update(grants).where(*own).values(revoked_at=micros(now), revoked_by=by)
    connection.execute(revoked)
    event_rows.write_beside(
        *(connection, documents, row.run),
        at=now,
        type_=REVOKED,
        actor=by,
        capability=grant.capability,
        data={"grant": id_, "tool": grant.tool},
    )
    return view.model_copy(update={"revoked_at": now, "revoked_by": by})


def listed(
    connection: Connection,
    documents: Documents,
    deployment: int,
    now: datetime,
    by: str | None = None,
) -> list[GrantView]:
    """Return the grants that count, oldest first; those `by` somebody, or all."""
    query = select(grants.c.document).where(grants.c.deployment == deployment, *_counts(now))
    if by is not None:
        query = query.where(grants.c.made_by == by)
    found = connection.execute(query.order_by(grants.c.number)).scalars().all()
    read = [_read(documents, document) for document in found]
    return [_view(connection, deployment, grant) for grant in read if grant is not None]


def counting(
    connection: Connection, documents: Documents, deployment: int, by: str, now: datetime
) -> int:
    """Return how many grants of a maker count."""
    del documents
    own = (grants.c.deployment == deployment, grants.c.made_by == by, *_counts(now))
    return connection.execute(select(func.count()).select_from(grants).where(*own)).scalar_one()


def _counts(now: datetime) -> tuple[ColumnElement[bool], ...]:
    return grants.c.revoked_at.is_(None), grants.c.until > micros(now)


def _read(documents: Documents, document: str) -> Grant | None:
    """Return a grant, None for one that this process has no key of: then it lets nothing run."""
    try:
        return JSON.validate_python(documents.read(document))
    except WrongKey:
        return None


def _view(connection: Connection, deployment: int, grant: Grant) -> GrantView:
    used = [
        GrantUse(run_id=use.run_id, call=use.call, at=moment(use.at))
        for use in _uses(connection, deployment, grant.id)
    ]
    return GrantView(**asdict(grant), used=used)


def _uses(connection: Connection, deployment: int, id_: str) -> Sequence[AnyRow]:
    own = (grant_uses.c.deployment == deployment, grant_uses.c.grant_id == id_)
    return connection.execute(
        select(grant_uses).where(*own).order_by(grant_uses.c.at, grant_uses.c.call)
    ).all()
