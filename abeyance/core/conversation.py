"""Active runs of one conversation, and admission of further ones.

A run claims its conversation before it starts and releases it when it has ended, by a token that is
unique to this start: a run id may be reused, and a late release must not remove the claim of the next
run. So one run may have several claims, and they never conflict with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from abeyance.errors import Code, Refusal

MAX_CLAIMS: Final = 1_000
"""Maximum number of claims of one conversation."""
EXCLUSIVE: Final = "agent"
"""The session type of which a conversation has one active run, unless `allow_concurrent` is set."""
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is about to start or has started; `token` identifies this start."""

    run_id: str
    session_type: str
    token: str
    allow_concurrent: bool = False
    claimed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The claims of one conversation, oldest first."""

    conversation_id: str
    claims: tuple[Claim, ...] = ()

    def check(self, wanted: Claim) -> None:
        """Raise the refusal of a claim: `conversation_busy` or `too_many_runs`."""
        agents = list(
            dict.fromkeys(
                claim.run_id
                for claim in self.claims
                if claim.session_type == EXCLUSIVE and claim.run_id != wanted.run_id
            )
        )
        if agents and wanted.session_type == EXCLUSIVE and not wanted.allow_concurrent:
            raise Refusal(
                Code.CONVERSATION_BUSY,
                f"The conversation {self.conversation_id!r} has an active run {agents[0]!r}. Steer that "
                "one, cancel it, or start with allow_concurrent: true.",
                conversation_id=self.conversation_id,
                run_id=agents[0],
                runs=agents[:_MOST_TOLD],
            )
        if len(self.claims) >= MAX_CLAIMS:
            raise Refusal(
                Code.TOO_MANY_RUNS,
                f"The conversation {self.conversation_id!r} has {len(self.claims)} active runs, and "
                "it can have no more. Wait for some to end, or use another conversation.",
                conversation_id=self.conversation_id,
                limit=MAX_CLAIMS,
                actual=len(self.claims),
            )
