"""Votes: the answers of several people to one question, and what they come to together.

One person has one vote. Who votes on behalf of somebody else uses up the votes of both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from abeyance.core.json import Json, canonical, sha256, size
from abeyance.core.terms import Quorum
from abeyance.core.text import truncate

_STORED_BYTES: Final = 512
_STORED_NOTE_CHARS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """What one person answered, and when. A settled question keeps only a short answer and note."""

    by: str
    on_behalf_of: str | None = None
    at: datetime
    answer: Json = None
    answer_sha256: str = ""
    note: str | None = None

    @property
    def people(self) -> frozenset[str]:
        """Whose vote this is: of who voted, and of whom they stood for."""
        return frozenset({self.by, self.on_behalf_of or self.by})

    @property
    def is_yes(self) -> bool:
        """Whether the vote approves."""
        return is_yes(self.answer)

    @property
    def stored(self) -> Vote:
        """The vote as a settled question keeps it."""
        answer = self.answer if size(self.answer) <= _STORED_BYTES else None
        note = self.note and truncate(self.note, _STORED_NOTE_CHARS)
        return replace(self, answer=answer, note=note)


def is_yes(answer: Json) -> bool:
    """Return whether an answer approves. Everything that does not is a rejection."""
    return answer is True or (isinstance(answer, Mapping) and answer.get("approved") is True)


def content(answer: Json) -> str:
    """Return what people agree to who approve: the answer without the approval itself and its note."""
    if not isinstance(answer, Mapping):
        return canonical({})
    return canonical({k: v for k, v in answer.items() if k not in {"approved", "note"}})


def repeated(
    votes: Sequence[Vote], answer: Json, *, by: str, on_behalf_of: Collection[str | None] | None
) -> Vote | None:
    """Return the vote that the same person cast before with the same answer, if there is one.

    `on_behalf_of` are in whose place it may have been; None for whomever.
    """
    if not votes:
        return None
    same = (by, sha256(answer))
    return next(
        (
            vote
            for vote in votes
            if (vote.by, vote.answer_sha256) == same
            and (on_behalf_of is None or vote.on_behalf_of in on_behalf_of)
        ),
        None,
    )


def cast(votes: Sequence[Vote], vote: Vote) -> tuple[Vote, ...]:
    """Return the votes with a new one, in place of those of the same people."""
    return (*(each for each in votes if not each.people & vote.people), vote)


def missing(quorum: Quorum, votes: Sequence[Vote]) -> int:
    """Return how many approvals are missing."""
    return max(0, quorum.count - sum(vote.is_yes for vote in votes))


def are_decisive(quorum: Quorum, votes: Sequence[Vote]) -> bool:
    """Return whether the votes approve or reject, so that no more are needed."""
    rejections = sum(not vote.is_yes for vote in votes)
    return not missing(quorum, votes) or rejections >= (1 if quorum.veto else quorum.count)
