"""JSON Web Tokens: whether one was made by the issuer that we trust, for us, and still holds.

The algorithms are a list of our own, all of them with a private and a public key: a token that could be
made with what is public, or that is not signed at all, is refused before anybody looks for a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import jwt
from jwt.exceptions import InvalidSubjectError

from abeyance.api.jwks import ALGORITHMS, JwksCache
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.settings import Settings

LEEWAY_SECONDS: Final = 30
"""How far the clocks of the issuer and of this machine may be apart."""

_MOST_CHARS: Final = 16_384
_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtVerifier:
    """Who signs tokens, for which audience, by which keys.

    `claim` is the name of the claim that holds the capabilities, or leads to it, with dots.
    `may_allow_everything`: whether `*` there counts. An issuer that passes on the scopes that a client
    asks for would give it to everybody.
    """

    name: str
    audience: str
    claim: str
    keys: JwksCache
    may_allow_everything: bool = False

    @classmethod
    def read(cls, settings: Settings) -> Self | None:
        """The issuer of the settings; None without one.

        Raises SettingsError naming what is missing, or saying what is wrong with the keys.
        """
        name, audience, place = settings.jwt_issuer, settings.jwt_audience, settings.jwt_jwks
        if name is None and audience is None and place is None:
            return None
        if name is not None and audience is not None and place is not None:
            return cls(
                name=name,
                audience=audience,
                claim=settings.jwt_capabilities,
                keys=JwksCache(place),
                may_allow_everything=settings.jwt_allow_everything,
            )
        given = {"ISSUER": name, "AUDIENCE": audience, "JWKS": place}
        missing = [f"ABEYANCE_JWT_{which}" for which, value in given.items() if value is None]
        raise SettingsError(
            f"{' and '.join(missing)} must be set too: a token of an issuer is checked for who made it, "
            "for whom, and by which key"
        )

    async def claims(self, token: str) -> Mapping[str, Any]:
        """What a token says, of which `sub` is a text.

        Raises `unauthenticated` saying what is wrong with it, and Unavailable where its key cannot be
        fetched.
        """
        if len(token) > _MOST_CHARS:
            raise unfit(f"has {len(token)} characters, and {_MOST_CHARS} are accepted")
        try:
            head = jwt.get_unverified_header(token)
            algorithm = head.get("alg")
            if algorithm not in ALGORITHMS:
                told = f"says {str(algorithm)[:_SHOWN_CHARS]!r} (alg)"
                raise unfit(f"{told}; signatures are by {', '.join(ALGORITHMS)}")
            key = await self.keys.key(head.get("kid"), algorithm)
            if key is None:
                raise unfit("was signed by a key (kid) that the issuer has not published for that")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.audience,
                issuer=self.name,
                leeway=LEEWAY_SECONDS,
                options={
                    "require": ["exp", "sub", "iss", "aud"],
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.PyJWTError as error:
            raise unfit(_fault(error)) from None
        return claims


def unfit(fault: str) -> Refusal:
    """The refusal of a token, for a fault such as `has expired`."""
    return Refusal(Code.UNAUTHENTICATED, f"The token {fault}. Get another one from its issuer.")


def _fault(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "has expired (exp)"
        case jwt.ImmatureSignatureError():
            return "does not hold yet (nbf, iat)"
        case jwt.InvalidIssuerError():
            return "was made by another issuer (iss) than ABEYANCE_JWT_ISSUER"
        case jwt.InvalidAudienceError():
            return "was made for another audience (aud) than ABEYANCE_JWT_AUDIENCE"
        case jwt.MissingRequiredClaimError():
            return f"has no {error.claim}"
        case InvalidSubjectError():
            return "names nobody: its sub is no text"
        case jwt.InvalidIssuedAtError():
            return "says no time when it was made: its iat is no number"
        case jwt.InvalidSignatureError():
            return "does not have the signature of its issuer"
        case jwt.InvalidKeyError():
            return "was signed by a key that is too short, or of another kind"
        case _:
            return "is not one of ours, and cannot be read as a JSON Web Token"
