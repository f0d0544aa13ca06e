"""Verification of JSON Web Tokens, and the cache of the issuer's keys (JWKS).

The algorithms are a fixed list, all asymmetric: a token that is unsigned, or that could be signed with
public data, is refused before a key is looked up.

A token names its key, and callers could cause fetches at will with made-up names: between two attempts
there is a cooldown. If a fetch fails, the cached keys stay valid for an hour, so that an issuer can
restart.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx
import jwt
from jwt.exceptions import InvalidSubjectError

from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.settings import Settings
from abeyance.util import is_loopback

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)

LEEWAY_SECONDS: Final = 30
"""The tolerated difference between the clocks of the issuer and of this machine."""
FRESH_SECONDS: Final = 300.0
"""The age from which keys are fetched again."""
STALE_SECONDS: Final = 3600.0
"""The age up to which keys are valid if the fetch fails."""
COOLDOWN_SECONDS: Final = 5.0
"""The minimum time between two attempts."""
FETCH_TIMEOUT_SECONDS: Final = 5.0
MAX_JWKS_BYTES: Final = 262_144

_MAX_TOKEN_CHARS: Final = 16_384
_LATEST: Final = 253_402_300_000
"""A Unix time just before the end of the year 9999. An expiry in milliseconds is beyond it."""
_SHOWN_CHARS: Final = 100
_logger = logging.getLogger("abeyance.api")


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtVerifier:
    """The issuer, the audience and the keys that tokens are verified against.

    `claim` is the name of the claim with the capabilities, or a path to it with dots; `subject` and
    `groups` name the claims with the subject and the groups in the same way.
    """

    name: str
    audience: str
    claim: str
    keys: JwksCache
    subject: str = "sub"
    groups: str = "groups"

    @classmethod
    def read(cls, settings: Settings) -> Self | None:
        """Return the verifier of the settings, or None without an issuer.

        Raises SettingsError if a setting is missing or the keys cannot be used.
        """
        name, audience, source = settings.jwt_issuer, settings.jwt_audience, settings.jwt_jwks
        if name is None and audience is None and source is None:
            return None
        if name is not None and audience is not None and source is not None:
            return cls.of(settings, name, audience, source)
        values = {"ISSUER": name, "AUDIENCE": audience, "JWKS": source}
        missing = [f"ABEYANCE_JWT_{setting}" for setting, value in values.items() if value is None]
        raise SettingsError(
            f"{' and '.join(missing)} must be set too: tokens are checked against all three"
        )

    @classmethod
    def of(cls, settings: Settings, issuer: str, audience: str, source: str) -> Self:
        """Return the verifier of an issuer's tokens, whose keys are at `source`, with the claims of the
        settings.
        """
        return cls(
            name=issuer,
            audience=audience,
            claim=settings.jwt_capabilities,
            subject=settings.jwt_subject,
            groups=settings.jwt_groups,
            keys=JwksCache(source),
        )

    async def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a valid token. `sub` is a string.

        Raises `unauthenticated` for an invalid token, and Unavailable if its key cannot be fetched.
        """
        if len(token) > _MAX_TOKEN_CHARS:
            raise invalid_token(f"has {len(token)} characters; the limit is {_MAX_TOKEN_CHARS}")
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                name = str(algorithm)[:_SHOWN_CHARS]
                raise invalid_token(
                    f"is signed by {name!r} (alg): use one of {', '.join(ALGORITHMS)}"
                )
            key = await self.keys.key(header.get("kid"), algorithm)
            if key is None:
                raise invalid_token(
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
            raise invalid_token(_problem(error)) from None
        if int(claims["exp"]) > _LATEST:
            raise invalid_token(
                "has an unusable expiry: exp counts seconds, and ends after year 9999"
            )
        return claims


def invalid_token(problem: str) -> Refusal:
    """Return the refusal of a token, for a problem such as `has expired`."""
    return Refusal(Code.UNAUTHENTICATED, f"The token {problem}. Get a new one from its issuer.")


def _problem(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "has expired (exp)"
        case jwt.ImmatureSignatureError():
            return "is not valid yet (nbf, iat)"
        case jwt.InvalidIssuerError():
            return "has another issuer (iss) than ABEYANCE_JWT_ISSUER or ABEYANCE_OIDC_ISSUER"
        case jwt.InvalidAudienceError():
            return (
                "has another audience (aud) than ABEYANCE_JWT_AUDIENCE or ABEYANCE_OIDC_CLIENT_ID"
            )
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


def _usable(entry: Any, algorithm: str | None = None) -> jwt.PyJWK | None:
    """Return a public key for signatures by an algorithm, else by its own; None if it is unusable."""
    match {"use": "sig", "kid": "", **entry} if isinstance(entry, dict) else entry:
        case {"d": _}:
            # A private key is not accepted.
            return None
        case {"kty": "RSA" | "EC" | "OKP", "use": "sig", "kid": str()}:
            named = entry.get("alg", algorithm)
        case _:
            return None
    if algorithm not in (None, named) or named not in (None, *ALGORITHMS):
        return None
    try:
        key = jwt.PyJWK(entry, named)
        key.Algorithm.prepare_key(key.key)
    except jwt.PyJWTError:
        return None
    return key


class JwksCache:
    """The keys of an https address (http on loopback), or of a file. `clock` counts seconds.

    Not PyJWT's client: it blocks a thread, asks an issuer that is away for each token, drops stale keys
    at once, and reads a response of any size.

    Raises SettingsError if `source` is an unusable address, or a file without keys.
    """

    def __init__(self, source: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = _checked_source(source)
        self._clock = clock
        self._keys: tuple[Mapping[str, Any], ...] = ()
        self._fetched_at = self._tried_at = -math.inf
        self._error: str | None = None
        self._fetching = asyncio.Lock()
        if isinstance(self._source, Path):
            try:
                self._store(self._source.read_bytes())
            except (OSError, ValueError) as error:
                raise SettingsError(
                    f"ABEYANCE_JWT_JWKS={source} cannot be used: {error}"
                ) from error

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """Return the key with this `kid`, or the only key if `kid` is None; None if there is no such key.

        Raises Unavailable if the keys are too old and cannot be fetched.
        """
        key = self._cached(kid, algorithm)
        age = self._clock() - self._fetched_at
        # During a fetch, callers with a cached key need not wait.
        is_due = age > FRESH_SECONDS and not self._fetching.locked()
        if key is None or is_due or age > STALE_SECONDS:
            await self._fetch()
            key = self._cached(kid, algorithm)
        is_stale = self._clock() - self._fetched_at > STALE_SECONDS
        if self._error is not None and (key is None or is_stale):
            raise Unavailable(
                "The token cannot be verified now, because the issuer's keys cannot be fetched. Retry "
                "later; the log of the service has the reason.",
                retry_after=COOLDOWN_SECONDS,
            )
        return key

    def _cached(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        if kid is None and len(self._keys) > 1:
            return None
        matching = (_usable(key, algorithm) for key in self._keys if kid in (None, key.get("kid")))
        return next((key for key in matching if key is not None), None)

    async def _fetch(self) -> None:
        async with self._fetching:
            if self._clock() - self._tried_at < COOLDOWN_SECONDS:
                return
            try:
                async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                    if isinstance(self._source, Path):
                        self._store(await asyncio.to_thread(self._source.read_bytes))
                    else:
                        self._store(await _download(self._source))
            except (OSError, ValueError, httpx.HTTPError) as error:
                reason = str(error) or f"no complete response within {FETCH_TIMEOUT_SECONDS:g} s"
                text = f"{type(error).__name__}: {reason}"
                if self._error != text:
                    message = "code=%s | the keys of ABEYANCE_JWT_JWKS cannot be fetched: %s"
                    _logger.warning(message, Code.UNAVAILABLE, text)
                self._error = text
            self._tried_at = self._clock()

    def _store(self, content: bytes) -> None:
        try:
            entries = json.loads(content)["keys"]
            usable = tuple(entry for entry in entries if _usable(entry) is not None)
        except (ValueError, TypeError, KeyError, RecursionError):
            # Do not quote the content: a wrong path may lead to a secret file.
            message = 'it is not JSON of the form {"keys": [...]}'
            raise ValueError(message) from None
        if not usable:
            message = "it has no public key for signatures"
            raise ValueError(message)
        self._keys = usable
        self._fetched_at = self._clock()
        self._error = None


async def fetch(
    url: str,
    *,
    accept: str = "application/json",
    form: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None,
) -> tuple[int, bytes]:
    """Get an address, or post a form to it; return the status and the body of the answer.

    Redirects are not followed. Raises httpx.HTTPError, OSError, and ValueError for an answer that is too
    large.
    """
    # A proxy from the environment cannot reach the loopback of this machine.
    trust_env = not is_loopback(urlsplit(url).hostname or "")
    # Loading the certificates of all authorities blocks for a while.
    context = await asyncio.to_thread(httpx.create_ssl_context, trust_env=trust_env)
    async with (
        httpx.AsyncClient(trust_env=trust_env, verify=context, follow_redirects=False) as http,
        http.stream(
            "GET" if form is None else "POST",
            url,
            data=form,
            auth=auth,
            headers={"Accept": accept, "Accept-Encoding": "identity"},
        ) as response,
    ):
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > MAX_JWKS_BYTES:
                message = f"the answer is larger than {MAX_JWKS_BYTES} bytes"
                raise ValueError(message)
        return response.status_code, bytes(content)


async def _download(url: str) -> bytes:
    status, content = await fetch(url, accept="application/jwk-set+json, application/json")
    if status != httpx.codes.OK:
        message = f"the answer is {status}, not 200"
        raise ValueError(message)
    return content


def is_safe_url(url: str) -> bool:
    """Return whether an address is https, or http on loopback, and names no user."""
    try:
        parts = urlsplit(url)
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return False
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return bool(host) and is_safe and parts.username is None and not parts.fragment


def _checked_source(source: str) -> str | Path:
    if "://" not in source:
        return Path(source)
    if not is_safe_url(source):
        raise SettingsError(
            "ABEYANCE_JWT_JWKS is not a usable address: set it to an https:// url without a user, an "
            "http:// url on loopback, or the path of a file"
        )
    return source
