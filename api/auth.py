"""Authentication and capabilities.

With a tokens file or a token issuer, every request needs a token. Without both the service listens on
loopback only, and a request can name its own principal, so that rules about capabilities can be tried: a
local process can do anything on that machine anyway.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency
from pydantic import ValidationError

from abeyance.api.jwt import LEEWAY_SECONDS, JwtVerifier, invalid_token
from abeyance.api.sessions import Session, Sessions
from abeyance.core import policy
from abeyance.core.policy import ALL_RUNS, EVERYTHING, Principal, ReadRights
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, SettingsError
from abeyance.token_file import (
    MAX_CHARS,
    MAX_GROUPS,
    Grant,
    hash_of_token,
    is_name,
    read_grants,
    read_rights,
    subject_fault,
)
from abeyance.util import invalid

LOCAL: Final = "local"
"""Without authentication, the subject of a request that names none."""

SUBJECT_HEADER: Final = "X-Abeyance-Principal"
CAPABILITIES_HEADER: Final = "X-Abeyance-Capabilities"
GROUPS_HEADER: Final = "X-Abeyance-Groups"

_MAX_CAPABILITIES: Final = 200
_READS: Final = "reads"
"""The claim with the labels of the runs that the owner of a token may see."""
_logger = logging.getLogger("abeyance.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The principal of a request, the runs that it may see, and the facts about its token.

    `expires_at` is the Unix time at which an issued token or a session expires; `grant` is the entry of
    the tokens file; `issuer` has signed the token; `session` is the id of a session.
    """

    principal: Principal
    reads: ReadRights = ALL_RUNS
    expires_at: float | None = None
    grant: Grant | None = None
    issuer: str | None = None
    session: str | None = None


class Tokens:
    """The accepted tokens, from the file at `path` or signed by `issuer`, and the `sessions` of people
    who signed in with such a token or at the provider `oidc_issuer`.

    Without a file, an issuer and a provider there is no authentication. A changed file is read again;
    while it cannot be used, the tokens that were read before count, and the log says so once. Raises
    SettingsError with the position of the problem if the file cannot be used at first.
    """

    def __init__(
        self,
        path: Path | None = None,
        issuer: JwtVerifier | None = None,
        *,
        oidc_issuer: str | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        self._path = path
        self._issuer = issuer
        self._oidc_issuer = oidc_issuer
        self._sessions = sessions
        self._seen = _version(path)
        self._grants = () if path is None else read_grants(path)
        self._fault: str | None = None
        if path is not None and not self._grants:
            raise SettingsError(
                f"the tokens file {path} has no token: add one with `abeyance token add`"
            )

    def is_revoked(self, credentials: Credentials) -> bool:
        """Return whether the entry of the token was changed or removed in the file, or the owner has
        signed out.
        """
        session, sessions = credentials.session, self._sessions
        if session is not None and sessions is not None and sessions.is_ended(session):
            return True
        return credentials.grant is not None and credentials.grant not in self._current()

    def _current(self) -> tuple[Grant, ...]:
        """Return the entries of the file as it is now."""
        # Take the version before the file is read, so that the next call sees a later write.
        version = _version(self._path)
        if self._path is None or version == self._seen:
            return self._grants
        self._seen = version
        try:
            self._grants = read_grants(self._path)
        except SettingsError as error:
            if self._fault != str(error):
                _logger.warning("code=tokens_file | %s; the tokens that it had still count", error)
            self._fault = str(error)
        else:
            _logger.info("code=tokens_file | %d tokens were read again", len(self._grants))
            self._fault = None
        return self._grants

    @property
    def are_required(self) -> bool:
        """True if a request needs a token or a session."""
        return self.accept_tokens or self._oidc_issuer is not None

    @property
    def accept_tokens(self) -> bool:
        """True if this service has a tokens file or an issuer, so that callers can send tokens."""
        return self._path is not None or self._issuer is not None

    async def authenticate(self, request: Request) -> Credentials:
        """Return the credentials of a request. The result is cached on the request.

        Raises `unauthenticated`, `invalid_body` for an unusable header, and Unavailable if the issuer's
        keys cannot be fetched.
        """
        cached: Credentials | None = getattr(request.state, "credentials", None)
        if cached is None:
            cached = request.state.credentials = await self._authenticate(request)
        return cached

    async def _authenticate(self, request: Request) -> Credentials:
        if not self.are_required:
            return Credentials(principal=_claimed_principal(request))
        for header in (SUBJECT_HEADER, CAPABILITIES_HEADER, GROUPS_HEADER):
            if header in request.headers:
                raise _unauthenticated(
                    f"The header {header} is not accepted here: the token names the caller."
                )
        values = request.headers.getlist("Authorization")
        if not values and self._sessions is not None:
            session = self._sessions.current(request)
            if session is None:
                raise _no_token()
            return self.of_session(session)
        # With two headers, a proxy might have checked the other one.
        scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _no_token()
        return await self.verify(token)

    async def verify(self, token: str) -> Credentials:
        """Return the credentials of a token. Raises `unauthenticated`, and Unavailable if the issuer's
        keys cannot be fetched.
        """
        grant = self._grant(hash_of_token(token))
        if grant is not None:
            return _granted(grant)
        if self._issuer is None:
            raise _unauthenticated("The token is unknown or was revoked: use a valid one.")
        return issued_credentials(await self._issuer.claims(token), self._issuer)

    def session_of(self, credentials: Credentials, until: float) -> Session:
        """Return the session of somebody who signs in with these credentials."""
        session = Session(id=secrets.token_urlsafe(12), until=until)
        if (grant := credentials.grant) is not None:
            return session.model_copy(update={"sha256": grant.sha256})
        issued = {"principal": credentials.principal, "reads": credentials.reads}
        return session.model_copy(update={**issued, "issuer": credentials.issuer})

    def of_session(self, session: Session) -> Credentials:
        """Return the credentials of a session. Raises `unauthenticated` if its token was revoked."""
        about: dict[str, Any] = {"expires_at": session.until, "session": session.id}
        if session.sha256 is not None:
            if (grant := self._grant(session.sha256)) is None:
                raise _unauthenticated(
                    "The token that you signed in with was revoked: sign in again."
                )
            return replace(_granted(grant), **about)
        issuers = {self._oidc_issuer, None if self._issuer is None else self._issuer.name}
        if session.principal is None or session.issuer not in issuers - {None}:
            raise _unauthenticated("This service has another issuer now: sign in again.")
        reads = session.reads or ALL_RUNS
        return Credentials(principal=session.principal, reads=reads, issuer=session.issuer, **about)

    def _grant(self, digest: str) -> Grant | None:
        found: Grant | None = None
        for candidate in self._current():
            # Compare with all entries, so that the time does not depend on the position.
            if hmac.compare_digest(candidate.sha256.lower(), digest.lower()):
                found = candidate
        return found


def _granted(grant: Grant) -> Credentials:
    return Credentials(principal=grant.principal, reads=ReadRights.of(grant.reads), grant=grant)


def _no_token() -> Refusal:
    return _unauthenticated(
        "A token is required: send one header, Authorization: Bearer <token>, or sign in."
    )


def issued_credentials(claims: Mapping[str, Any], issuer: JwtVerifier) -> Credentials:
    """Return the credentials of a verified token. Raises `unauthenticated` for unusable claims."""
    subject = _claim_value(claims, issuer.subject)
    if not isinstance(subject, str):
        raise invalid_token(f"has no subject: it lacks the claim {issuer.subject}, a text")
    if (fault := subject_fault(subject)) is not None:
        raise invalid_token(f"has an unusable subject ({issuer.subject}): {fault}")
    capabilities = _names(claims, issuer.claim, "capabilities", _MAX_CAPABILITIES)
    if _claim_value(claims, issuer.claim) is None:
        _hint(issuer.claim)
    if EVERYTHING in capabilities:
        # An issuer may copy the scopes that a client asks for. Refuse rather than drop it, so that the
        # caller learns why a capability is missing.
        raise invalid_token(
            f"grants every capability ({issuer.claim}: {EVERYTHING!r}): the issuer must list each one"
        )
    groups = _names(claims, issuer.groups, "groups", MAX_GROUPS)
    reads = claims.get(_READS)
    try:
        rights = ALL_RUNS if reads is None else read_rights(reads)
    except ValidationError:
        raise invalid_token(
            f"has unusable read rights: {_READS} takes at most 20 labels, each with a value or a "
            "list of at most 20"
        ) from None
    return Credentials(
        principal=Principal(subject=subject, capabilities=capabilities, groups=groups),
        reads=rights,
        issuer=issuer.name,
        expires_at=float(claims["exp"]) + LEEWAY_SECONDS,
    )


def _names(claims: Mapping[str, Any], claim: str, label: str, most: int) -> tuple[str, ...]:
    """Return the names in a claim: a list, or a text separated by spaces; none if there is no claim."""
    value = _claim_value(claims, claim)
    names = value.split() if isinstance(value, str) else [] if value is None else value
    if (
        not isinstance(names, list)
        or len(names) > most
        or not all(isinstance(name, str) and is_name(name) for name in names)
    ):
        raise invalid_token(
            f"has unusable {label}: {claim} takes at most {most} names of 1 to {MAX_CHARS} characters, "
            "as a list or separated by spaces"
        )
    return tuple(names)


def _claim_value(claims: Mapping[str, Any], claim: str) -> Any:
    """Return the value at a dotted path. A name can have dots too: the longest match counts."""
    names = claim.split(".")
    for length in range(len(names), 0, -1):
        value, rest = claims.get(".".join(names[:length])), ".".join(names[length:])
        if rest:
            value = _claim_value(value, rest) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


@cache
def _hint(claim: str) -> None:
    """Log once that tokens lack the claim with the capabilities."""
    _logger.warning(
        "a token has no claim %s, so its owner has no capabilities: see ABEYANCE_JWT_CAPABILITIES",
        claim,
    )


def _claimed_principal(request: Request) -> Principal:
    subject = _header(request, SUBJECT_HEADER)
    if subject is not None and (fault := subject_fault(subject)) is not None:
        raise _invalid_header(SUBJECT_HEADER, fault)
    capabilities = _listed(request, CAPABILITIES_HEADER, "capabilities", _MAX_CAPABILITIES)
    groups = _listed(request, GROUPS_HEADER, "groups", MAX_GROUPS) or ()
    if wrong := [name for name in groups if not is_name(name)]:
        message = (
            f"{truncate(wrong[0], 100)!r} is not a group: use 1 to {MAX_CHARS} printable characters"
        )
        raise _invalid_header(GROUPS_HEADER, message)
    return Principal(
        subject=LOCAL if subject is None else subject,
        capabilities=(EVERYTHING,) if capabilities is None else capabilities,
        groups=groups,
    )


def _listed(request: Request, header: str, label: str, most: int) -> tuple[str, ...] | None:
    """Return the names in a header, which are separated by commas; None if it is absent."""
    value = _header(request, header)
    if value is None:
        return None
    names = tuple(name for part in value.split(",") if (name := part.strip()))
    if len(names) > most:
        raise _invalid_header(header, f"has {len(names)} {label}; the limit is {most}")
    return names


def _header(request: Request, header: str) -> str | None:
    value = request.headers.get(header)
    try:
        # The server decodes headers as Latin-1; names are sent in UTF-8.
        return value and value.encode("latin-1").decode().strip()
    except UnicodeDecodeError:
        raise _invalid_header(header, f"{value!r} is not UTF-8") from None


def _version(path: Path | None) -> tuple[int, ...] | None:
    """Return a mark that differs between two versions of a file; None if there is no file."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    # Include `st_ctime_ns`: a copy can keep the other three, and so does a change of permissions.
    return found and (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def _invalid_header(header: str, message: str) -> Refusal:
    return invalid([{"pointer": f"/{header.lower()}", "message": message, "in": "header"}])


def _unauthenticated(message: str) -> Refusal:
    return Refusal(Code.UNAUTHENTICATED, message)


async def _credentials(request: Request) -> Credentials:
    tokens: Tokens = request.app.state.backend.tokens
    return await tokens.authenticate(request)


CredentialsDep = Annotated[Credentials, Depends(_credentials)]


async def _caller(credentials: CredentialsDep, request: Request) -> Principal:
    # The details of a refusal depend on the caller's capabilities.
    request.state.caller = credentials.principal
    return credentials.principal


Caller = Annotated[Principal, Depends(_caller)]


def require(caller: Principal, *capabilities: str, unless: str | None = None) -> None:
    """Raise `capability_required`, naming all missing capabilities, unless the caller has them, or has
    the capability `unless`.
    """
    missing = caller.lacks(capabilities)
    if missing and not (unless is not None and caller.may(unless)):
        raise Refusal(
            Code.CAPABILITY_REQUIRED,
            f"You lack the {'capability' if len(missing) == 1 else 'capabilities'} "
            f"{' and '.join(map(repr, missing))}, which this request requires.",
            capability=missing[0],
            capabilities=list(missing),
        )


def _requires(capability: str) -> Dependency:
    async def check(caller: Caller) -> None:
        require(caller, capability)

    return Dependency(check)


RESPONDS: Final = policy.RESPOND
"""The capability to answer."""
STARTS: Final = "runs:start"
"""The capability to start."""
STARTS_FOR: Final = "runs:start-for"
"""The capability to start on behalf of somebody else."""
START: Final = _requires(STARTS)
READ: Final = _requires(policy.READ)
CONTROL: Final = _requires(policy.CONTROL)
RESPOND: Final = _requires(RESPONDS)
STEER: Final = _requires(policy.STEER)
ADMIN: Final = _requires("admin")
"""Route dependencies that require a capability."""
