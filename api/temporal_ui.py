"""A proxy for Temporal's UI that checks host and origin as the API does.

The UI's server accepts requests of any page under any host name, so browsers must not reach it directly.
Its pages do not send JSON, so bodies are passed on unchecked; instead, a request that changes something
must have an allowed origin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Final

import httpx
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from abeyance.api.app import listen
from abeyance.api.auth import Tokens
from abeyance.api.connections import Server
from abeyance.api.origin_guard import OriginGuard
from abeyance.api.problems import refused
from abeyance.errors import Code, Refusal
from abeyance.settings import Settings

_TIMEOUT: Final = {"connect": 5.0, "pool": 5.0, "write": 30.0, "read": 90.0}
"""In seconds. Pages of the UI long-poll a workflow for about a minute."""
_SAFE: Final = frozenset({"GET", "HEAD"})
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that apply to one connection and are not forwarded."""


class _Proxy:
    """ASGI application. `upstream` is the UI's server; `hosts` are those of `OriginGuard`."""

    def __init__(
        self, upstream: str, transport: httpx.AsyncBaseTransport, hosts: Collection[str]
    ) -> None:
        self._upstream = httpx.URL(upstream)
        self._transport = transport
        self._guard = OriginGuard(self, hosts=hosts, tokens=Tokens(), max_body_size=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or refuse it."""
        try:
            self._check(scope)
            response = await self._transport.handle_async_request(
                self._upstream_request(scope, receive)
            )
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        except httpx.TransportError as error:
            message = (
                f"Temporal's UI does not respond ({error or type(error).__name__}): retry later."
            )
            await refused(Refusal(Code.UNAVAILABLE, message))(scope, receive, send)
            return
        try:
            headers = _without(_HOP_BY_HOP, response.headers.raw)
            await send(
                {"type": "http.response.start", "status": response.status_code, "headers": headers}
            )
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        self._guard.check_origin(scope, headers)
        if scope["method"] not in _SAFE and "origin" not in headers:
            message = (
                "The request has no origin: only pages of this UI may change something through it."
            )
            raise Refusal(Code.FOREIGN_ORIGIN, message)

    def _upstream_request(self, scope: Scope, receive: Receive) -> httpx.Request:
        query: bytes = scope["query_string"]
        # A caller can send an absolute url as the path.
        path: bytes = b"/" + scope["raw_path"].lstrip(b"/")
        target = path + (b"?" + query if query else b"")
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        has_body = not {b"content-length", b"transfer-encoding"}.isdisjoint(dict(headers))
        return httpx.Request(
            scope["method"],
            self._upstream.copy_with(raw_path=target),
            headers=_without({*_HOP_BY_HOP, b"host"}, headers),
            content=Request(scope, receive).stream() if has_body else None,
            extensions={"timeout": _TIMEOUT},
        )


@contextlib.asynccontextmanager
async def serve_ui(
    upstream: str, *, host: str, port: int, hosts: Collection[str]
) -> AsyncIterator[None]:
    """Serve the UI of `upstream` until the context ends.

    `hosts` are allowed hosts beside loopback, as `name` or `name:port`. Raises SettingsError if the port
    cannot be used.
    """
    async with httpx.AsyncHTTPTransport() as transport:
        with contextlib.closing(listen(host, port)) as listener:
            server = Server(_Proxy(upstream, transport, hosts), Settings(), grace=1, lifespan="off")
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield
            finally:
                server.should_exit = True
                await asyncio.wait({serving})


def _without(
    names: Collection[bytes], headers: Iterable[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in headers if name.lower() not in names]
