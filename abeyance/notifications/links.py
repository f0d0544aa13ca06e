"""Links to questions: that of the inbox, and personal ones, which one person can answer by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from abeyance.errors import Code, Refusal
from abeyance.notifications.config import Notifications

PATH: Final = "/links"
"""Where the API serves personal links."""

_LASTS: Final = timedelta(days=7)
"""How long a personal link to a question without a deadline is valid."""
_ALGORITHM: Final = "HS256"
_AUDIENCE: Final = "abeyance-link"
_CLAIMS: Final = ("aud", "exp", "sub", "question", "digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalLink:
    """What a personal link allows until it expires: one person answers one question, as it is now."""

    question: str
    person: str
    digest: str
    expires_at: datetime

    @classmethod
    def of(cls, question: Mapping[str, Any], person: str, *, now: datetime) -> Self:
        """Return the link for a person to an open question, by its view as JSON."""
        deadline = question.get("deadline")
        return cls(
            question=str(question["id"]),
            person=person,
            digest=str(question.get("digest") or ""),
            expires_at=now + _LASTS if deadline is None else datetime.fromisoformat(deadline),
        )

    @classmethod
    def read(cls, token: str, key: bytes, *, now: datetime) -> Self:
        """Return the link of a token. Raises `link_expired` if it is foreign, changed or too old."""
        import jwt  # noqa: PLC0415 it loads cryptography

        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[_ALGORITHM],
                audience=_AUDIENCE,
                options={"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False},
            )
            read = cls(
                question=str(claims["question"]),
                person=str(claims["sub"]),
                digest=str(claims["digest"]),
                expires_at=datetime.fromtimestamp(int(claims["exp"]), UTC),
            )
        except (jwt.InvalidTokenError, ValueError, OverflowError, OSError) as error:
            raise link_expired("was not made by this service, or is incomplete") from error
        if now >= read.expires_at:
            raise link_expired("is too old")
        return read

    def token(self, key: bytes) -> str:
        import jwt  # noqa: PLC0415 it loads cryptography

        claims = {
            "aud": _AUDIENCE,
            "exp": int(self.expires_at.timestamp()),
            "sub": self.person,
            "question": self.question,
            "digest": self.digest,
        }
        return jwt.encode(claims, key, algorithm=_ALGORITHM)


def link_expired(why: str) -> Refusal:
    """Return the refusal of a personal link, with the reason."""
    return Refusal(
        Code.LINK_EXPIRED,
        f"This link {why}, so nothing can be answered by it: sign in to see what is open.",
    )


def key_of(file: Notifications) -> bytes | None:
    """Return the key of personal links; None if there are none."""
    if file.links is None or file.links.key_env is None:
        return None
    return os.environ.get(file.links.key_env, "").encode() or None
