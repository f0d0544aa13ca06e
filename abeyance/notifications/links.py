"""Personal links to questions: by each, one person can answer one question."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from abeyance.errors import Code, Refusal
from abeyance.notifications.config import Notifications

PATH: Final = "/links"
"""The path at which the API serves personal links."""

_LASTS: Final = timedelta(days=7)
"""The validity of a personal link to a question without a deadline."""
_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "abeyance-link"
_CLAIMS: Final = ("aud", "iat", "sub", "question", "digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalLink:
    """A personal link: one person may answer one question, as it was when the link was made."""

    question: str
    person: str
    digest: str
    made_at: datetime

    @classmethod
    def of(cls, question: Mapping[str, Any], person: str, *, now: datetime) -> Self:
        """Return the link of a person to an open question, which is given by its view as JSON."""
        return cls(
            question=str(question["id"]),
            person=person,
            digest=str(question.get("digest") or ""),
            made_at=now,
        )

    @classmethod
    def read(cls, token: str, key: bytes) -> Self:
        """Return the link that a token holds. Raises `link_expired` for a foreign or altered token."""
        import jwt  # noqa: PLC0415 it loads cryptography

        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False},
            )
            return cls(
                question=str(claims["question"]),
                person=str(claims["sub"]),
                digest=str(claims["digest"]),
                made_at=datetime.fromtimestamp(int(claims["iat"]), UTC),
            )
        except (jwt.InvalidTokenError, ValueError, OverflowError, OSError) as error:
            raise link_expired("was not made by this service, or is incomplete") from error

    def refuse_late(self, deadline: datetime | None, *, now: datetime) -> None:
        """Raise `link_expired` after the deadline that the question has now, or after seven days if it
        has none.
        """
        if now >= (self.made_at + _LASTS if deadline is None else deadline):
            raise link_expired("is too old")

    def token(self, key: bytes) -> str:
        import jwt  # noqa: PLC0415 it loads cryptography

        claims = {
            "aud": _AUDIENCE,
            "iat": int(self.made_at.timestamp()),
            "sub": self.person,
            "question": self.question,
            "digest": self.digest,
        }
        return jwt.encode(claims, key, algorithm=_ALGORITHM)


def link_expired(why: str) -> Refusal:
    """Return the refusal of a personal link, with the reason."""
    return Refusal(
        Code.LINK_EXPIRED,
        f"This link {why}, so you cannot answer with it: sign in to see what is open.",
    )


def key_of(file: Notifications) -> bytes | None:
    """Return the key that signs personal links; None if the file or the environment has none."""
    if file.links is None or file.links.key_env is None:
        return None
    return os.environ.get(file.links.key_env, "").encode() or None
