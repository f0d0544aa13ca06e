"""A small OpenID provider on loopback that signs everybody in, and follows the protocol."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from answering import Answering, answering
from issuing import GONE, new_key, published

CLIENT = "abeyance inbox"
SECRET = "s3cr&t of ours"


class Provider:
    """`claims` go into the ID token, except those with the value GONE; `access` into the access token.

    With an `error`, the browser comes back with it instead of a code. `public`: the client has no secret.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.key = new_key()
        self.claims: dict[str, Any] = {"capabilities": ["runs:read"], "groups": ["finance"]}
        self.access: dict[str, Any] | None = None
        self.error: str | None = None
        self.metadata: dict[str, Any] = {}
        self.public = False
        self.asked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    def published(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?tenant=t",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **self.metadata,
        }

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        about = {"iss": self.url, "sub": "ada", "iat": now, "exp": now + 60, **claims}
        body = {name: value for name, value in about.items() if value is not GONE}
        return jwt.encode(body, self.key, algorithm="RS256", headers={"kid": "k"})

    def back(self, query: dict[str, str]) -> str:
        """Return the URL to which the browser goes after the sign-in."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        assert query["tenant"] == "t"
        assert "openid" in query["scope"].split()
        code = secrets.token_hex(8)
        self._codes[code] = query
        answer = {"code": code} if self.error is None else {"error": self.error}
        return f"{query['redirect_uri']}?{urlencode({**answer, 'state': query['state']})}"

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        query = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        sent = base64.b64decode(authorization.removeprefix("Basic ")).decode().split(":")
        is_client = [*map(unquote, sent)] == [CLIENT, SECRET]
        if self.public:
            is_client = form["client_id"] == CLIENT and not authorization
        if (
            query is None
            or not is_client
            or query["redirect_uri"] != form["redirect_uri"]
            or query["code_challenge"] != challenge
        ):
            return 400, {"error": "invalid_grant"}
        claims = {"aud": CLIENT, "nonce": query["nonce"], **self.claims}
        answer = {"token_type": "Bearer", "id_token": self.token(**claims)}
        if self.access is not None:
            answer["access_token"] = self.token(**self.access)
        return 200, answer


@contextmanager
def providing() -> Iterator[Provider]:
    """Serve a provider until the end of the block; after that its address is closed."""

    class Handler(Answering):
        def get(self) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            match parts.path:
                case "/.well-known/openid-configuration":
                    self.answer(200, provider.published())
                case "/keys":
                    self.answer(200, {"keys": [published(provider.key, kid="k")]})
                case _:
                    query = {name: value for name, (value,) in parse_qs(parts.query).items()}
                    self.answer(302, Location=provider.back(query))

        def post(self) -> None:
            provider.asked.append(self.path)
            form = {name: value for name, (value,) in parse_qs(self.body().decode()).items()}
            self.answer(*provider.redeem(form, self.headers.get("Authorization", "")))

    with answering(Handler) as url:
        provider = Provider(url)
        yield provider
