"""Which runs of one conversation are active, and who may start another.

A run is claimed before it starts and released when it has ended, each time by a token that names this
start alone: an id may be used again, and a release that comes late must not take the claim of the
next run with it. So several claims may stand for one run, and they never stand in its way.

A value, like `RunState`: each change gives a new one, and a refusal leaves the old one as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from abeyance.errors import Code, Refusal

MAX_CLAIMS: Final = 1_000
"""How many claims one conversation holds at most."""
EXCLUSIVE: Final = "agent"
"""The type of session of which a conversation has one active run, unless somebody asks for more."""
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that is about to start or has started; `token` names this start of it."""

    run_id: str
    session_type: str
    token: str
    allow_concurrent: bool = False
    claimed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """The claims of one conversation, oldest first."""

    conversation_id: str
    claims: tuple[Claim, ...] = ()

    def check(self, wanted: Claim) -> None:
        """Raise the refusal of a claim: `conversation_busy`, or `too_many_runs`."""
        if any(claim.token == wanted.token for claim in self.claims):
            return
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

    def claimed(self, wanted: Claim, now: datetime) -> Conversation:
        """The conversation with a claim; with the same one again it is as it was.

        Raises what `check` raises.
        """
        self.check(wanted)
        if any(claim.token == wanted.token for claim in self.claims):
            return self
        return replace(self, claims=(*self.claims, replace(wanted, claimed_at=now)))

    def released(self, tokens: Sequence[str]) -> Conversation:
        """The conversation without these claims; those that it does not have do not matter."""
        left = tuple(claim for claim in self.claims if claim.token not in tokens)
        return self if len(left) == len(self.claims) else replace(self, claims=left)
