"""What is asked of every request before anybody looks at what it wants.

A service on loopback can be reached by every page that its user has open. Such a page cannot forge
three things: the host it calls, the origin that the browser names, and a content type that makes the
browser ask first. So they are held against what is ours, in every mode, and no answer allows another
origin to read it; but where pages of Temporal's UI are configured, these may call the codec. Then it is
asked who is calling: of somebody unknown no body is read. Bodies are read here, once: bounded in size,
number of values and depth, and JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abeyance.api.auth import Tokens
from abeyance.api.json_guard import check_body
from abeyance.api.problems import refused, unavailable
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.util import is_loopback

EMPTY_BODY_HEADER: Final = "X-Abeyance-Request"
"""By this header, which no foreign page can send, a call without a body shows where it comes from."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Orchestrators ask by whatever name they know, and learn nothing but that we are up.
_ANY_HOST: Final = frozenset({"/healthz", "/readyz"})
# A link in a letter or a chat leads to these from another site; nothing of a run is in them.
_PAGES: Final = frozenset({"/", "/inbox"})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_DRAINED: Final = 16
"""How many times the largest body is read and thrown away, so that its sender sees our answer."""
_DRAIN_SECONDS: Final = 5.0
_CODEC: Final = frozenset({"/codec/decode", "/codec/encode"})
_LARGEST_CODEC_BODY: Final = 8_000_000
"""In bytes. The UI sends several payloads at once, and Temporal takes 2 MB for each."""
_PREFLIGHT: Final = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "authorization, content-type, x-namespace",
    "Access-Control-Max-Age": "600",
}


class OriginGuard:
    """ASGI middleware. `hosts` are names, or `name:port`, that are ours beside the server's own.

    `max_body_size` is in bytes; calls of the codec may be larger where it `has_codec`. `ui_origins` are
    those whose pages may call it.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str],
        tokens: Tokens,
        max_body_size: int,
        has_codec: bool = False,
        ui_origins: Collection[str] = (),
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._has_codec = has_codec
        self._ui_origins = frozenset(ui_origins)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._max_body_size = max_body_size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        ui = self._ui_of(scope, headers)
        sending = _closed_to_others(send, ui)
        try:
            self.check_origin(scope, headers, ui)
            if ui is not None and scope["method"] == "OPTIONS":
                # A browser asks first, and says nothing of who it asks for.
                await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, sending)
                return
            if scope["method"] not in _SAFE:
                _check_kind(headers)
                admitted = await self._tokens.admitted(Request(scope))
                body = await _body(headers, receive, self._limit(scope, admitted.principal))
                if body is None:
                    return
                receive = _replayed(body, receive)
        except Refusal as refusal:
            # Of a body that is too large there may be more to come, and who waits for our leave to send
            # one may send it or not: the connection cannot go on.
            is_cut = refusal.code is Code.PAYLOAD_TOO_LARGE or "expect" in headers
            response = refused(refusal, headers={"Connection": "close"} if is_cut else None)
            await response(scope, receive, sending)
            return
        except Unavailable as error:
            response = unavailable(str(error), retry_after=error.retry_after)
            await response(scope, receive, sending)
            return
        await self._app(scope, receive, sending)

    def _limit(self, scope: Scope, who: Principal) -> int:
        """How many bytes the body of a call may have."""
        if self._has_codec and scope["path"] in _CODEC and who.may("admin"):
            return max(self._max_body_size, _LARGEST_CODEC_BODY)
        return self._max_body_size

    def _ui_of(self, scope: Scope, headers: Headers) -> str | None:
        """The origin of Temporal's UI, if it is a page of that which calls, and it calls the codec."""
        origins = headers.getlist("origin")
        is_ui = scope["path"] in _CODEC and len(origins) == 1 and origins[0] in self._ui_origins
        return origins[0] if is_ui else None

    def check_origin(self, scope: Scope, headers: Headers, ui: str | None = None) -> None:
        """Refuse a call under a host name, or from a page, that is not ours; `ui` is one that may."""
        hosts = headers.getlist("host")
        if scope["path"] not in _ANY_HOST and not (
            len(hosts) == 1 and self._is_ours(f"{scope['scheme']}://{hosts[0]}", scope)
        ):
            raise _foreign(
                f"The host {', '.join(hosts)[:200]!r} is not allowed: use the name and port of the "
                "service, or add the host to ABEYANCE_ALLOWED_HOSTS."
            )
        if ui is not None:
            return
        origins = headers.getlist("origin")
        for origin in origins:
            if not self._is_ours(origin, scope):
                raise _foreign(
                    f"The origin {origin[:200]!r} is not allowed: only pages of this service may call it."
                )
        site = headers.get("sec-fetch-site", "none").lower()
        if site == "same-site" and origins:
            return
        is_followed = headers.get("sec-fetch-mode", "").lower() == "navigate"
        if is_followed and scope["method"] == "GET" and scope["path"] in _PAGES:
            return
        if site not in ("none", "same-origin"):
            raise _foreign(
                f"The request comes from another site (Sec-Fetch-Site: {site[:50]}): only pages of this "
                "service may call it."
            )

    def _is_ours(self, origin: str, scope: Scope) -> bool:
        try:
            parts = urlsplit(origin)
            name, port = parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]
        except (KeyError, ValueError):
            return False
        if (
            name is None
            or parts.username is not None
            or parts.path
            or parts.query
            or parts.fragment
        ):
            return False
        if self._hosts & {name, _joined(name, port)}:
            return True
        server = scope.get("server")
        if server is None or port != server[1]:
            return False
        return name == server[0] or is_loopback(name)


def _check_kind(headers: Headers, body: bytes = b"") -> None:
    """Raise `foreign_origin` unless the call shows that no foreign page has sent it."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (body or EMPTY_BODY_HEADER not in headers):
        raise _foreign(
            f"The content type {kind[:100]!r} is not accepted: send Content-Type: application/json or, "
            f"without a body, the header {EMPTY_BODY_HEADER}. This protects against pages of other sites."
        )


async def _body(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """The checked body; None if the caller has gone."""
    body = await _read(headers, receive, limit)
    if body:
        _check_kind(headers, body)
        await check_body(body)
    return body


async def _read(headers: Headers, receive: Receive, limit: int) -> bytes | None:
    """The whole body; None if the caller has gone."""
    declared = headers.get("content-length", "")
    if re.fullmatch("[0-9]{1,20}", declared) and int(declared) > limit:
        # Who asks first gets the answer first; others would not read it before they have sent all.
        if "expect" not in headers:
            await _drain(receive, limit * _DRAINED)
        raise _too_large(int(declared), limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            chunks.clear()
            if message.get("more_body"):
                await _drain(receive, limit * _DRAINED)
            raise _too_large(None, limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def _too_large(actual: int | None, limit: int) -> Refusal:
    size = "is larger" if actual is None else f"has {actual} bytes"
    members = {} if actual is None else {"actual": actual}
    return Refusal(
        Code.PAYLOAD_TOO_LARGE,
        f"The body {size}; the limit is {limit} bytes. Send a reference to large data.",
        limit=limit,
        **members,
    )


async def _drain(receive: Receive, most: int) -> None:
    left = most
    # Who sends no more waits for us.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_pending = True

    async def replay() -> Message:
        nonlocal is_pending
        if is_pending:
            is_pending = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def _closed_to_others(send: Send, ui: str | None) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
            if ui is not None:
                headers["Access-Control-Allow-Origin"] = ui
                headers["Access-Control-Allow-Credentials"] = "true"
                headers.add_vary_header("Origin")
        await send(message)

    return with_headers


def _joined(name: str, port: int) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _foreign(message: str) -> Refusal:
    return Refusal(Code.FOREIGN_ORIGIN, message)
