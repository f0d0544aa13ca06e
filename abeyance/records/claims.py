"""The claims of runs on their conversations, and admission of further runs.

A start claims a place before there is a run, so that of two starts at the same time the second is
refused. The batch with the run's end takes the claim back (`abeyance.records.writing`).

A claim has a token that is unique to its start: a run id may be reused, and a late release must not
remove the claim of the next run. So one run may have several claims, and they never conflict with each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import delete, insert, select

from abeyance.errors import Code, Refusal
from abeyance.records.documents import Transaction
from abeyance.records.selecting import lock_deployment
from abeyance.records.tables import claims, micros, moment

MAX_CLAIMS: Final = 1_000
"""Maximum number of claims of one conversation."""
EXCLUSIVE: Final = "agent"
"""A conversation has one active run of this session type, unless `allow_concurrent` is set."""
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is about to start or has started; `token` identifies this start."""

    run_id: str
    session_type: str
    token: str
    allow_concurrent: bool = False
    claimed_at: datetime


def refuse(conversation_id: str, held: Sequence[Claim], wanted: Claim) -> None:
    """Refuse a claim that the held claims leave no place for: `conversation_busy`, `too_many_runs`."""
    others = (each.run_id for each in held if each.session_type == EXCLUSIVE)
    agents = [*dict.fromkeys(run_id for run_id in others if run_id != wanted.run_id)]
    if agents and wanted.session_type == EXCLUSIVE and not wanted.allow_concurrent:
        raise Refusal(
            Code.CONVERSATION_BUSY,
            f"The conversation {conversation_id!r} has an active run {agents[0]!r}. Steer that one, "
            "cancel it, or start with allow_concurrent: true.",
            conversation_id=conversation_id,
            run_id=agents[0],
            runs=agents[:_MOST_TOLD],
        )
    if len(held) >= MAX_CLAIMS:
        raise Refusal(
            Code.TOO_MANY_RUNS,
            f"The conversation {conversation_id!r} has {len(held)} active runs, and it can have no "
            "more. Wait for some to end, or use another conversation.",
            conversation_id=conversation_id,
            limit=MAX_CLAIMS,
            actual=len(held),
        )


def of_conversation(tx: Transaction, conversation_id: str) -> list[Claim]:
    """Return the claims on a conversation, oldest first, also void ones."""
    query = (
        select(claims)
        .where(claims.c.deployment == tx.deployment, claims.c.conversation_id == conversation_id)
        .order_by(claims.c.id)
    )
    return [
        Claim(
            run_id=row.run_id,
            session_type=row.session_type,
            token=row.token,
            claimed_at=moment(row.claimed_at),
        )
        for row in tx.connection.execute(query)
    ]


def make(tx: Transaction, conversation_id: str, claim: Claim) -> None:
    """Claim a place in a conversation, or again. Raises `conversation_busy` and `too_many_runs`."""
    lock_deployment(tx)
    refuse(conversation_id, of_conversation(tx, conversation_id), claim)
    # A run that is rewound may still have the place that it takes again.
    release(tx, [claim.token])
    tx.connection.execute(
        insert(claims).values(
            deployment=tx.deployment,
            conversation_id=conversation_id,
            run_id=claim.run_id,
            session_type=claim.session_type,
            token=claim.token,
            claimed_at=micros(claim.claimed_at),
        )
    )


def release(tx: Transaction, tokens: Sequence[str]) -> None:
    """Release claims; unknown ones are ignored."""
    own = claims.c.deployment == tx.deployment
    tx.connection.execute(delete(claims).where(own, claims.c.token.in_(tokens)))
