"""The public keys by which an issuer signs: fetched when they are needed, and kept for a while.

Whoever sends a token says by which key it was signed, so a made-up one must not make us fetch at will:
between two attempts there is a rest, whatever is asked for. Keys that could not be fetched again go on
counting for an hour, so that an issuer may be restarted; then nobody gets in by them any more.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import httpx
from jwt import PyJWK, PyJWTError
from pydantic import BaseModel, ConfigDict, ValidationError

from abeyance.errors import Code, SettingsError, Unavailable
from abeyance.util import is_loopback

_Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
ALGORITHMS: Final[tuple[str, ...]] = get_args(_Algorithm)
"""How tokens may be signed. Each takes a private key, so that none can be made with what is public."""

FRESH_SECONDS: Final = 300.0
"""How old keys get before they are fetched again."""
STALE_SECONDS: Final = 3600.0
"""How old they get where that fails."""
REST_SECONDS: Final = 5.0
"""The least time between two attempts."""
PATIENCE_SECONDS: Final = 5.0
MOST_BYTES: Final = 262_144

_logger = logging.getLogger("abeyance.api")


class _Key(BaseModel):
    """A key for signatures, as RFC 7517 writes it. One with a private part is not taken."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kty: Literal["RSA", "EC", "OKP"]
    kid: str | None = None
    alg: _Algorithm | None = None
    use: Literal["sig"] | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None
    d: None = None

    def public(self, algorithm: str | None) -> PyJWK | None:
        """The key for signatures by this algorithm, or its own; None if it is not meant for that."""
        if algorithm is not None and self.alg not in (None, algorithm):
            return None
        try:
            key = PyJWK(self.model_dump(exclude_none=True), algorithm)
            key.Algorithm.prepare_key(key.key)
        except PyJWTError:
            return None
        return key


class _Keys(BaseModel):
    keys: tuple[Any, ...]


class JwksCache:
    """The keys at an https address (http on loopback), or in a file. `clock` counts seconds.

    Raises SettingsError if `place` is neither, or a file that holds none.
    """

    def __init__(self, place: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = _checked(place)
        self._clock = clock
        self._keys: tuple[_Key, ...] = ()
        self._fetched_at = self._tried_at = -math.inf
        self._why_not: str | None = None
        self._fetching = asyncio.Lock()
        if isinstance(self._place, Path):
            try:
                self._take(self._place.read_bytes())
            except (OSError, ValueError) as error:
                raise SettingsError(f"ABEYANCE_JWT_JWKS={place} cannot be used: {error}") from error

    async def key(self, name: str | None, algorithm: str) -> PyJWK | None:
        """The key of that `kid`, for signatures by this algorithm; None if there is none.

        Without a name it is the only one that there is. Raises Unavailable while that cannot be told.
        """
        found = self._found(name, algorithm)
        age = self._clock() - self._fetched_at
        # While somebody fetches, those whose key is known need not wait.
        is_due = age > FRESH_SECONDS and not self._fetching.locked()
        if found is None or is_due or age > STALE_SECONDS:
            await self._fetch()
            found = self._found(name, algorithm)
        if self._why_not is not None and (
            found is None or self._clock() - self._fetched_at > STALE_SECONDS
        ):
            raise Unavailable(
                "The token cannot be verified now, because the issuer's keys cannot be fetched. Retry "
                "later; the log of the service has the reason.",
                retry_after=REST_SECONDS,
            )
        return found

    def _found(self, name: str | None, algorithm: str) -> PyJWK | None:
        if name is None and len(self._keys) > 1:
            return None
        fitting = (key.public(algorithm) for key in self._keys if name in (None, key.kid))
        return next((key for key in fitting if key is not None), None)

    async def _fetch(self) -> None:
        async with self._fetching:
            if self._clock() - self._tried_at < REST_SECONDS:
                return
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    if isinstance(self._place, Path):
                        self._take(await asyncio.to_thread(self._place.read_bytes))
                    else:
                        self._take(await _answered(self._place))
            except (OSError, ValueError, httpx.HTTPError) as error:
                why_not = f"{type(error).__name__}: {error}"
                if self._why_not != why_not:
                    message = "code=%s | the keys of ABEYANCE_JWT_JWKS cannot be fetched: %s"
                    _logger.warning(message, Code.UNAVAILABLE, why_not)
                self._why_not = why_not
            self._tried_at = self._clock()

    def _take(self, content: bytes) -> None:
        usable: list[_Key] = []
        try:
            entries = _Keys.model_validate_json(content).keys
        except ValidationError:
            # Without the content: it may be another file than was meant.
            message = 'it is not JSON of the form {"keys": [...]}'
            raise ValueError(message) from None
        for entry in entries:
            try:
                key = _Key.model_validate(entry)
            except ValidationError:
                # A set may hold keys for something else, or of a kind that we do not know.
                continue
            if key.public(key.alg) is not None:
                usable.append(key)
        if not usable:
            message = "it has no public key for signatures"
            raise ValueError(message)
        self._keys = tuple(usable)
        self._fetched_at = self._clock()
        self._why_not = None


async def _answered(url: str) -> bytes:
    headers = {
        "Accept": "application/jwk-set+json, application/json",
        "Accept-Encoding": "identity",
    }
    # A proxy of the environment knows nothing of this machine's loopback.
    trust_env = not is_loopback(urlsplit(url).hostname or "")
    # Reading the certificates of all authorities takes a while.
    context = await asyncio.to_thread(httpx.create_ssl_context, trust_env=trust_env)
    async with (
        httpx.AsyncClient(trust_env=trust_env, verify=context, follow_redirects=False) as http,
        http.stream("GET", url, headers=headers) as response,
    ):
        if response.status_code != httpx.codes.OK:
            message = f"the answer is {response.status_code}, not 200"
            raise ValueError(message)
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > MOST_BYTES:
                message = f"the answer is larger than {MOST_BYTES} bytes"
                raise ValueError(message)
        return bytes(content)


def _checked(place: str) -> str | Path:
    if "://" not in place:
        return Path(place)
    try:
        parts = urlsplit(place)
        httpx.URL(place)
    except (ValueError, httpx.InvalidURL):
        parts = urlsplit("")
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    if not host or not is_safe or parts.username is not None or parts.fragment:
        raise SettingsError(
            "ABEYANCE_JWT_JWKS is not a usable address: set it to an https:// url without a user, an "
            "http:// url on loopback, or the path of a file"
        )
    return place
