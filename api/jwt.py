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
            f"{' and '.join(missing)} must be set too: tokens are checked against all three"
        )

    async def claims(self, token: str) -> Mapping[str, Any]:
        """What a token says, of which `sub` is a text.

        Raises `unauthenticated` saying what is wrong with it, and Unavailable where its key cannot be
        fetched.
        """
        if len(token) > _MOST_CHARS:
            raise unfit(f"has {len(token)} characters; the limit is {_MOST_CHARS}")
        try:
            head = jwt.get_unverified_header(token)
            algorithm = head.get("alg")
            if algorithm not in ALGORITHMS:
                name = str(algorithm)[:_SHOWN_CHARS]
                raise unfit(f"is signed by {name!r} (alg): use one of {', '.join(ALGORITHMS)}")
            key = await self.keys.key(head.get("kid"), algorithm)
            if key is None:
                raise unfit(
                    "is signed by a key (kid) that the issuer has not published for this algorithm"
                )
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
    return Refusal(Code.UNAUTHENTICATED, f"The token {fault}. Get a new one from its issuer.")


def _fault(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "has expired (exp)"
        case jwt.ImmatureSignatureError():
            return "is not valid yet (nbf, iat)"
        case jwt.InvalidIssuerError():
            return "has another issuer (iss) than ABEYANCE_JWT_ISSUER"
        case jwt.InvalidAudienceError():
            return "has another audience (aud) than ABEYANCE_JWT_AUDIENCE"
        case jwt.MissingRequiredClaimError():
            return f"lacks the claim {error.claim}"
        case InvalidSubjectError():
            return "has an unusable subject: sub is not a string"
        case jwt.InvalidIssuedAtError():
            return "has an unusable time of issue: iat is not a number"
        case jwt.InvalidSignatureError():
            return "has a wrong signature"
        case jwt.InvalidKeyError():
            return "is signed by a key that is too short or of the wrong type"
        case _:
            return "is neither a known token nor a valid JSON Web Token"
