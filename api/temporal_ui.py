"""Temporal's own UI, behind the rule of the API about who may call.

The UI's server takes the calls of every page that reaches it under a name of its own choice, so no
browser gets to it: it is asked by us, and we ask of each call what the API asks (`guard`). A body is
passed on as it is, since pages of the UI do not send theirs as JSON; so a call that changes something
has to say that it comes from a page of ours.
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

from abeyance.api.app import bound
from abeyance.api.auth import Tokens
from abeyance.api.connections import Server
from abeyance.api.origin_guard import OriginGuard
from abeyance.api.problems import refused
from abeyance.errors import Code, Refusal
from abeyance.settings import Settings

_SECONDS: Final = {"connect": 5.0, "pool": 5.0, "write": 30.0, "read": 90.0}
"""Pages of the UI wait for news of a workflow, for about a minute at once."""
_READING: Final = frozenset({"GET", "HEAD"})
_OF_A_CONNECTION: Final = frozenset(
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
"""Headers that say something of one connection, and are not passed on."""


class _Proxy:
    """ASGI application. `upstream` is the UI's server; `hosts` are names of ours, as in `Guard`."""

    def __init__(
        self, upstream: str, transport: httpx.AsyncBaseTransport, hosts: Collection[str]
    ) -> None:
        self._upstream = httpx.URL(upstream)
        self._transport = transport
        self._guard = OriginGuard(self, hosts=hosts, tokens=Tokens(None), max_body_size=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a call on, or refuse it."""
        try:
            self._check(scope)
            response = await self._transport.handle_async_request(self._passed_on(scope, receive))
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        except httpx.TransportError as error:
            why = f"Temporal's UI does not respond ({error or type(error).__name__}): retry in a moment."
            await refused(Refusal(Code.UNAVAILABLE, why))(scope, receive, send)
            return
        try:
            headers = _without(_OF_A_CONNECTION, response.headers.raw)
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
        if scope["method"] not in _READING and "origin" not in headers:
            why = (
                "The request has no origin: only pages of this UI may change something through it."
            )
            raise Refusal(Code.FOREIGN_ORIGIN, why)

    def _passed_on(self, scope: Scope, receive: Receive) -> httpx.Request:
        query: bytes = scope["query_string"]
        # A caller may put a whole address where the path belongs.
        path: bytes = b"/" + scope["raw_path"].lstrip(b"/")
        target = path + (b"?" + query if query else b"")
        given: list[tuple[bytes, bytes]] = scope["headers"]
        has_body = not {b"content-length", b"transfer-encoding"}.isdisjoint(dict(given))
        return httpx.Request(
            scope["method"],
            self._upstream.copy_with(raw_path=target),
            headers=_without({*_OF_A_CONNECTION, b"host"}, given),
            content=Request(scope, receive).stream() if has_body else None,
            extensions={"timeout": _SECONDS},
        )


@contextlib.asynccontextmanager
async def serve_ui(
    upstream: str, *, host: str, port: int, hosts: Collection[str]
) -> AsyncIterator[None]:
    """Serve the UI that listens at `upstream`, until the context ends.

    `hosts` are names, or `name:port`, by which it may be called beside those of loopback. Raises
    SettingsError if the port cannot be used.
    """
    async with httpx.AsyncHTTPTransport() as transport:
        with contextlib.closing(bound(host, port)) as listener:
            server = Server(
                _Proxy(upstream, transport, hosts),
                Settings(),
                grace=1,
                lifespan="off",
                # A page that is loaded while Temporal is started again is no news.
                log_level="critical",
            )
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
