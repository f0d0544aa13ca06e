"""Who is calling, and what they may do.

With a file of tokens, or an issuer of them, everybody needs one. Without both the service listens on
loopback only, and a request may name its principal itself, so that rules about capabilities can be tried:
who reaches a loopback port can do as they like on that machine anyway.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from abeyance.api.jwt import LEEWAY_SECONDS, JwtVerifier, unfit
from abeyance.api.problems import invalid
from abeyance.core import authority
from abeyance.core.policy import EVERYTHING, TEMPORAL, TIMEOUT, Principal
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.schemas.state_model import at_pointer

LOCAL: Final = "local"
"""The subject of a request that names none, where there is no authentication."""

SUBJECT_HEADER: Final = "X-Abeyance-Principal"
CAPABILITIES_HEADER: Final = "X-Abeyance-Capabilities"

_RESERVED: Final = frozenset({TEMPORAL.subject, TIMEOUT})
_MOST_CHARS: Final = 256
_MOST_CAPABILITIES: Final = 200


class Grant(BaseModel):
    """An entry of the file of tokens: the SHA-256 of a token, whose it is, and what it allows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = Field(min_length=1, max_length=_MOST_CHARS)
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    capabilities: tuple[Annotated[str, Field(min_length=1, max_length=_MOST_CHARS)], ...]


_GRANTS: Final = TypeAdapter(tuple[Grant, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Who was let in, and until when, as a time in seconds; None is for as long as they like."""

    principal: Principal
    until: float | None = None


class Tokens:
    """The tokens that are accepted: those of `grants`, and those that `issuer` has signed.

    Where both are None there is no authentication.
    """

    def __init__(self, grants: tuple[Grant, ...] | None, issuer: JwtVerifier | None = None) -> None:
        self._grants = grants
        self._issuer = issuer

    @classmethod
    def read(cls, path: Path | None, issuer: JwtVerifier | None = None) -> Tokens:
        """The tokens of a file. Raises SettingsError saying what is wrong with it, and where."""
        if path is None:
            return cls(None, issuer)
        source = f"ABEYANCE_TOKENS_FILE={path}"
        try:
            grants = _GRANTS.validate_json(path.read_bytes())
        except OSError as error:
            raise SettingsError(f"{source} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            faults = "; ".join(
                f"{fault['pointer'] or '(the file)'}: {fault['message']}"
                for fault in at_pointer(error)
            )
            raise SettingsError(
                f"{source} is not a list of "
                f'{{"subject": ..., "sha256": ..., "capabilities": [...]}}: {faults}'
            ) from error
        if not grants:
            raise SettingsError(f"{source} has no token: add at least one")
        if reserved := sorted({grant.subject for grant in grants} & _RESERVED):
            raise SettingsError(
                f"{source} has the reserved subject {reserved[0]!r}: choose another"
            )
        counted = Counter(grant.sha256.lower() for grant in grants)
        if twice := [digest for digest, times in counted.items() if times > 1]:
            raise SettingsError(f"{source} has the token hash {twice[0][:12]}... twice: remove one")
        return cls(grants, issuer)

    @property
    def are_required(self) -> bool:
        """Whether a request needs a token."""
        return self._grants is not None or self._issuer is not None

    async def admitted(self, request: Request) -> Admission:
        """Who is calling, and until when that holds. It is found out once for each request.

        Raises `unauthenticated`, `invalid_body` for a header that names nobody, and Unavailable where an
        issuer's token cannot be checked now.
        """
        known: Admission | None = getattr(request.state, "admission", None)
        if known is None:
            known = request.state.admission = await self._admitted(request)
        return known

    async def _admitted(self, request: Request) -> Admission:
        if not self.are_required:
            return Admission(principal=_as_claimed(request))
        for header in (SUBJECT_HEADER, CAPABILITIES_HEADER):
            if header in request.headers:
                raise _unknown(
                    f"The header {header} is not accepted here: the token names the caller."
                )
        given = request.headers.getlist("Authorization")
        # Of two a proxy might have looked at the other one.
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unknown("A token is required: send one header, Authorization: Bearer <token>.")
        digest = hashlib.sha256(token.strip().encode("latin-1")).hexdigest()
        found: Grant | None = None
        for grant in self._grants or ():
            # All are looked at, so that the time taken tells nothing.
            if hmac.compare_digest(grant.sha256.lower(), digest):
                found = grant
        if found is not None:
            known = Principal(subject=found.subject, capabilities=found.capabilities)
            return Admission(principal=known)
        if self._issuer is None:
            raise _unknown("The token is unknown or was revoked: use a valid one.")
        claims = await self._issuer.claims(token.strip())
        return Admission(
            principal=_vouched_for(claims, self._issuer),
            until=float(claims["exp"]) + LEEWAY_SECONDS,
        )


def _vouched_for(claims: Mapping[str, Any], issuer: JwtVerifier) -> Principal:
    """The principal of a token that was checked, and that this issuer has signed."""
    subject, claim = claims["sub"], issuer.claim
    if (fault := _subject_fault(subject)) is not None:
        raise unfit(f"has an unusable subject (sub): {fault}")
    listed = _found(claims, claim)
    capabilities = listed.split() if isinstance(listed, str) else [] if listed is None else listed
    if (
        not isinstance(capabilities, list)
        or len(capabilities) > _MOST_CAPABILITIES
        or not all(isinstance(name, str) and _is_name(name) for name in capabilities)
    ):
        raise unfit(
            f"has unusable capabilities: {claim} takes at most {_MOST_CAPABILITIES} names of 1 to "
            f"{_MOST_CHARS} characters, as a list or separated by spaces"
        )
    if EVERYTHING in capabilities and not issuer.may_allow_everything:
        # Not left out silently: then its owner would miss a right that the token names, and nobody
        # would know why.
        raise unfit(
            f"grants every capability ({claim}: {EVERYTHING!r}): the issuer must list each one, unless "
            "the operator sets ABEYANCE_JWT_ALLOW_EVERYTHING"
        )
    return Principal(subject=subject, capabilities=tuple(capabilities))


def _found(claims: Mapping[str, Any], claim: str) -> Any:
    # A name may have dots itself; without a claim of that name they lead into mappings.
    if claim in claims:
        return claims[claim]
    here: Any = claims
    for name in claim.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _as_claimed(request: Request) -> Principal:
    subject = request.headers.get(SUBJECT_HEADER)
    listed = request.headers.get(CAPABILITIES_HEADER)
    if listed is None:
        capabilities: tuple[str, ...] = (EVERYTHING,)
    else:
        capabilities = tuple(name for part in listed.split(",") if (name := part.strip()))
    if len(capabilities) > _MOST_CAPABILITIES:
        message = f"has {len(capabilities)} capabilities; the limit is {_MOST_CAPABILITIES}"
        raise _unusable(CAPABILITIES_HEADER, message)
    return Principal(
        subject=LOCAL if subject is None else _claimed_subject(subject), capabilities=capabilities
    )


def _claimed_subject(given: str) -> str:
    try:
        # The server reads header values as Latin-1; names are sent in UTF-8.
        subject = given.encode("latin-1").decode().strip()
    except UnicodeDecodeError:
        raise _unusable(SUBJECT_HEADER, f"{given!r} is not UTF-8") from None
    if (fault := _subject_fault(subject)) is not None:
        raise _unusable(SUBJECT_HEADER, fault)
    return subject


def _subject_fault(subject: str) -> str | None:
    if not _is_name(subject):
        return f"{subject[:100]!r} is not a subject: use 1 to {_MOST_CHARS} printable characters"
    if subject in _RESERVED:
        return f"the subject {subject!r} is reserved: choose another"
    return None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _MOST_CHARS and text == text.strip() and text.isprintable()


def _unusable(header: str, message: str) -> Refusal:
    return invalid([{"pointer": f"/{header.lower()}", "message": message, "in": "header"}])


def _unknown(message: str) -> Refusal:
    return Refusal(Code.UNAUTHENTICATED, message)


async def _admission(request: Request) -> Admission:
    tokens: Tokens = request.app.state.backend.tokens
    return await tokens.admitted(request)


Admitted = Annotated[Admission, Depends(_admission)]
"""Who is calling, and until when."""


async def _principal(admitted: Admitted, request: Request) -> Principal:
    # What a refusal tells depends on who reads it.
    request.state.who = admitted.principal
    return admitted.principal


Who = Annotated[Principal, Depends(_principal)]
"""Who is calling."""


def demand(who: Principal, *capabilities: str) -> None:
    """Raise `capability_required`, naming all that are missing, unless the principal has them all."""
    if lacking := who.lacks(capabilities):
        raise Refusal(
            Code.CAPABILITY_REQUIRED,
            f"{who.subject!r} lacks the capability {' and '.join(map(repr, lacking))}, which this "
            "request requires.",
            capability=lacking[0],
            capabilities=list(lacking),
        )


def may_read(who: Principal) -> bool:
    """Whether somebody may see values, prompts and answers."""
    return who.may(authority.READ)


def _demanding(capability: str) -> Dependency:
    async def check(who: Who) -> None:
        demand(who, capability)

    return Dependency(check)


START: Final = _demanding("runs:start")
READ: Final = _demanding(authority.READ)
CONTROL: Final = _demanding(authority.CONTROL)
RESPOND: Final = _demanding("runs:respond")
STEER: Final = _demanding(authority.STEER)
ADMIN: Final = _demanding("admin")
"""What a call asks of its caller, as the dependency of a route."""
