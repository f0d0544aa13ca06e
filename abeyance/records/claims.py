"""The claims of runs on their conversations.

A start claims a place before there is a run, so that of two that begin at once the second is refused. The
batch that tells of the run's end takes the claim back (`abeyance.records.writing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from abeyance.core.conversation import Claim, Conversation
from abeyance.records.documents import Documents
from abeyance.records.selecting import alone
from abeyance.records.tables import claims, micros, moment


def of_conversation(
    connection: Connection, documents: Documents, deployment: int, conversation_id: str
) -> list[Claim]:
    """Return the claims on a conversation, oldest first, also void ones."""
    del documents
    query = (
        select(claims)
        .where(claims.c.deployment == deployment, claims.c.conversation_id == conversation_id)
        .order_by(claims.c.id)
    )
    return [
        Claim(
            run_id=row.run_id,
            session_type=row.session_type,
            token=row.token,
            claimed_at=moment(row.claimed_at),
        )
        for row in connection.execute(query)
    ]


def make(
    connection: Connection,
    documents: Documents,
    deployment: int,
    conversation_id: str,
    claim: Claim,
) -> None:
    """Claim a place in a conversation, also anew. Raises `conversation_busy` and `too_many_runs`."""
    alone(connection, deployment)
    held = of_conversation(connection, documents, deployment, conversation_id)
    Conversation(conversation_id=conversation_id, claims=tuple(held)).check(claim)
    # A run that is rewound may still have the place that it takes again.
    release(connection, documents, deployment, [claim.token])
    connection.execute(
        insert(claims).values(
            deployment=deployment,
            conversation_id=conversation_id,
            run_id=claim.run_id,
            session_type=claim.session_type,
            token=claim.token,
            claimed_at=micros(claim.claimed_at),
        )
    )


def release(
    connection: Connection, documents: Documents, deployment: int, tokens: Sequence[str]
) -> None:
    """Release claims; unknown ones are ignored."""
    del documents
    own = claims.c.deployment == deployment
    connection.execute(delete(claims).where(own, claims.c.token.in_(tokens)))
