"""Sign-in at an OpenID provider: the authorization code flow with PKCE.

The provider is asked when somebody signs in, and at no other time. Its response is checked as OpenID
Connect says: the state and the nonce of this browser, and an ID token of this issuer, for this client,
signed by one of its published keys.

Not Authlib's client: it would make the address and the form below. We would still need the bounds, checks
and messages of this module (sizes, addresses, a provider that is away, issuer and `azp`) around it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import math
import secrets
import time
from dataclasses import dataclass, replace
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from abeyance.api.auth import Credentials, issued_credentials
from abeyance.api.jwt import (
    COOLDOWN_SECONDS,
    FETCH_TIMEOUT_SECONDS,
    JwtVerifier,
    fetch,
    is_safe_url,
)
from abeyance.api.sessions import SIGN_IN_SECONDS, Pending
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.settings import Settings

_CONFIGURATION: Final = "/.well-known/openid-configuration"
_FRESH_SECONDS: Final = 300.0
_OK: Final = 200
_SERVER_ERROR: Final = 500
_logger = logging.getLogger("abeyance.api")


class _Metadata(BaseModel):
    """The metadata that a provider publishes."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Answer(BaseModel):
    """The answer of a token endpoint."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id_token: str
    access_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Provider:
    """The metadata of a provider, and the verifier of its ID tokens."""

    metadata: _Metadata
    verifier: JwtVerifier
    fetched_at: float


class OidcClient:
    """This service as a client of the provider in the settings.

    `bearer` verifies tokens that callers send. If it accepts the access token, the capabilities are those
    of the access token, else those of the ID token.
    """

    def __init__(self, settings: Settings, issuer: str, bearer: JwtVerifier | None) -> None:
        self._settings = settings
        self._issuer = issuer
        self._client_id = settings.oidc_client_id or ""
        self._bearer = bearer
        self._provider: _Provider | None = None
        self._failure: Unavailable | None = None
        self._failed_at = -math.inf
        self._fetching = asyncio.Lock()

    @classmethod
    def read(cls, settings: Settings, bearer: JwtVerifier | None) -> Self | None:
        """Return the client of the settings, None without a provider.

        Raises SettingsError if a setting is missing or cannot be used.
        """
        issuer = settings.oidc_issuer
        if issuer is None:
            if settings.oidc_client_id is not None or settings.oidc_client_secret is not None:
                raise SettingsError(
                    "ABEYANCE_OIDC_ISSUER must be set too: people sign in at that provider"
                )
            return None
        if settings.oidc_client_id is None:
            raise SettingsError(
                "ABEYANCE_OIDC_CLIENT_ID must be set too: the provider knows this service by it"
            )
        if not is_safe_url(issuer):
            raise SettingsError(
                "ABEYANCE_OIDC_ISSUER is not a usable address: set it to an https:// url without a user, "
                "or an http:// url on loopback"
            )
        if "openid" not in settings.oidc_scopes.split():
            raise SettingsError(
                "ABEYANCE_OIDC_SCOPES must include openid: separate several by spaces"
            )
        return cls(settings, issuer, bearer)

    @property
    def host(self) -> str:
        """The name of the provider for people."""
        return urlsplit(self._issuer).netloc

    async def reach(self) -> None:
        """Read the provider's metadata. Raises Unavailable if the provider cannot be reached or used."""
        await self._published()

    async def begin(self, redirect_uri: str, next_path: str) -> tuple[str, Pending]:
        """Return the address at which somebody signs in, and the state that the browser keeps meanwhile.

        Raises Unavailable if the provider cannot be reached.
        """
        provider = await self._published()
        pending = Pending(
            until=time.time() + SIGN_IN_SECONDS,
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            next=next_path,
        )
        challenge = hashlib.sha256(pending.verifier.encode()).digest()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._client_id,
                "redirect_uri": redirect_uri,
                "scope": self._settings.oidc_scopes,
                "state": pending.state,
                "nonce": pending.nonce,
                "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            },
            quote_via=quote,
        )
        endpoint = provider.metadata.authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}", pending

    async def finish(
        self, pending: Pending, *, code: str, error: str, issuer: str | None, redirect_uri: str
    ) -> Credentials:
        """Return the credentials of somebody who comes back with a code, or with an error.

        Raises `unauthenticated` for an error, if the provider refuses the code, or if its response does
        not prove who this is; and Unavailable if the provider cannot be reached.
        """
        if error or not code:
            raise _refused(
                f"{self.host} has sent no code ({truncate(error, 100) or 'and no reason'})"
            )
        provider = await self._published()
        is_named = provider.metadata.authorization_response_iss_parameter_supported
        if issuer != self._issuer and (is_named or issuer is not None):
            raise _refused("the response names another provider (iss)")
        answer = await self._redeemed(provider, pending, code, redirect_uri)
        claims = await provider.verifier.claims(answer.id_token)
        if not _is_same(claims.get("nonce"), pending.nonce):
            raise _refused("the token is not of this sign-in (nonce)")
        if claims.get("azp", self._client_id) != self._client_id:
            raise _refused("the token is for another client (azp)")
        return await self._credentials(provider, claims, answer)

    async def _credentials(self, provider: _Provider, claims: Any, answer: _Answer) -> Credentials:
        verifier = provider.verifier
        if self._bearer is not None and answer.access_token is not None:
            try:
                accessing = await self._bearer.claims(answer.access_token)
            except Refusal:
                # The access token is for another service, or is not a JSON Web Token at all.
                accessing = {}
            if accessing.get("sub") == claims["sub"]:
                claims, verifier = accessing, self._bearer
        # The session outlives the token: a token of a few minutes has proved who the person is.
        return replace(issued_credentials(claims, verifier), issuer=self._issuer, expires_at=None)

    async def _redeemed(
        self, provider: _Provider, pending: Pending, code: str, redirect_uri: str
    ) -> _Answer:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": pending.verifier,
        }
        secret, auth = self._settings.oidc_client_secret, None
        methods = provider.metadata.token_endpoint_auth_methods_supported
        if secret is None:
            form["client_id"] = self._client_id
        elif "client_secret_basic" in methods or "client_secret_post" not in methods:
            auth = (quote(self._client_id, safe=""), quote(secret, safe=""))
        else:
            form |= {"client_id": self._client_id, "client_secret": secret}
        status, content = await self._ask(provider.metadata.token_endpoint, form=form, auth=auth)
        if status >= _SERVER_ERROR:
            raise self._away(f"the token endpoint answers {status}")
        if status != _OK:
            _logger.warning(
                "code=oidc | the provider refused a code (%d): %s", status, _shown(content)
            )
            raise _refused("the provider refused the code")
        try:
            return _Answer.model_validate_json(content)
        except ValidationError:
            raise _refused("the provider has sent no ID token") from None

    async def _published(self) -> _Provider:
        """Return the provider, with metadata of the last five minutes, or older while it is away."""
        async with self._fetching:
            known = self._provider
            if known is not None and time.monotonic() - known.fetched_at < _FRESH_SECONDS:
                return known
            # Anybody can cause this request, so a provider that is away is asked once in each cooldown.
            is_due = time.monotonic() - self._failed_at >= COOLDOWN_SECONDS
            try:
                if self._failure is not None and not is_due:
                    raise self._failure
                metadata = await self._discovered()
            except Unavailable as error:
                if is_due:
                    self._failure, self._failed_at = error, time.monotonic()
                if known is None:
                    raise
                return known
            if known is not None and known.metadata == metadata:
                self._provider = replace(known, fetched_at=time.monotonic())
                return self._provider
            about = (self._settings, self._issuer, self._client_id)
            verifier = JwtVerifier.of(*about, metadata.jwks_uri)
            self._provider = _Provider(
                metadata=metadata, verifier=verifier, fetched_at=time.monotonic()
            )
            return self._provider

    async def _discovered(self) -> _Metadata:
        status, content = await self._ask(f"{self._issuer.rstrip('/')}{_CONFIGURATION}")
        if status != _OK:
            raise self._away(f"its configuration answers {status}")
        try:
            metadata = _Metadata.model_validate_json(content)
        except ValidationError:
            raise self._away("its configuration is not that of an OpenID provider") from None
        if metadata.issuer != self._issuer:
            raise self._away(
                f"its configuration names another issuer, {truncate(metadata.issuer, 200)!r}"
            )
        addresses = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri)
        if wrong := [address for address in addresses if not is_safe_url(address)]:
            raise self._away(f"its address {truncate(wrong[0], 200)!r} is not https")
        return metadata

    async def _ask(
        self, url: str, *, form: dict[str, str] | None = None, auth: tuple[str, str] | None = None
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                return await fetch(url, form=form, auth=auth)
        except (OSError, ValueError, httpx.HTTPError) as error:
            raise self._away(f"{type(error).__name__}: {error}") from error

    def _away(self, reason: str) -> Unavailable:
        _logger.warning("code=%s | the provider %s: %s", Code.UNAVAILABLE, self._issuer, reason)
        return Unavailable(
            f"You cannot sign in at {self.host} now, because it cannot be reached or used. Retry later; "
            "the log of the service has the reason. People who are signed in stay signed in.",
            retry_after=COOLDOWN_SECONDS,
        )


def _refused(reason: str) -> Refusal:
    return Refusal(Code.UNAUTHENTICATED, f"You are not signed in: {reason}. Sign in again.")


def _is_same(found: object, wanted: str) -> bool:
    return isinstance(found, str) and hmac.compare_digest(found.encode(), wanted.encode())


def _shown(content: bytes) -> str:
    return truncate(" ".join(content.decode("utf-8", "replace").split()), 300)
