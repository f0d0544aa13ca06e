"""Receives presses from Slack: over a socket that this process opens, or by signed requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import uvicorn
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from abeyance.contrib.slack.web import Away, Slack, failure
from abeyance.errors import SettingsError

Hear: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | None]]

PATH: Final = "/slack"
"""The path that receives Slack's signed requests."""
_SECONDS: Final = 5.0
_LARGEST: Final = 1_000_000
_AT_ONCE: Final = 100
"""How many requests are read at once: the sender has not proved yet that it is Slack."""


@asynccontextmanager
async def over_a_socket(slack: Slack, app_token: str, hear: Hear) -> AsyncIterator[None]:
    """Receive by Socket Mode, which renews lost connections. Raises Away and SlackFault."""
    loop = asyncio.get_running_loop()
    client = SocketModeClient(app_token, web_client=slack.client)

    async def heard(request: SocketModeRequest) -> Mapping[str, Any] | None:
        return await hear(request.payload) if request.type == "interactive" else None

    def listen(connection: BaseSocketModeClient, request: SocketModeRequest) -> None:
        # This runs in a thread of the client. Slack repeats a request without a response.
        reply = asyncio.run_coroutine_threadsafe(heard(request), loop).result(_SECONDS)
        payload = None if reply is None else dict(reply)
        connection.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))

    client.socket_mode_request_listeners.append(listen)
    try:
        try:
            await asyncio.to_thread(client.connect)
        except SlackApiError as error:
            raise failure("apps.connections.open", error.response) from error
        except (OSError, HTTPException) as error:
            reason = f"Slack was not reached ({type(error).__name__}: {error})"
            raise Away(reason, pause=0, is_undecided=False) from error
        yield
    finally:
        await asyncio.to_thread(client.close)


@asynccontextmanager
async def by_requests(
    secret: str, hear: Hear, host: str, port: int
) -> AsyncIterator[tuple[str, int]]:
    """Receive requests that Slack signs, and yield the address. Raises SettingsError if it is taken."""
    try:
        listener = socket.create_server((host, port), family=_family(host))
    except (OSError, OverflowError) as error:
        raise SettingsError(f"{host}:{port} cannot be listened on: {error}") from error
    server = _Server(
        uvicorn.Config(
            _Requests(secret, hear),
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=5,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[:2]
    finally:
        server.should_exit = True
        await serving
        listener.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # A signal stops the whole process, not only this server.
        yield


class _Requests:
    """An ASGI application that takes requests signed by Slack, and refuses all others."""

    def __init__(self, secret: str, hear: Hear) -> None:
        self._verifier = SignatureVerifier(secret)
        self._hear = hear

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        status, content, headers = await self._answered(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answered(
        self, scope: Mapping[str, Any], receive: Callable[[], Awaitable[Mapping[str, Any]]]
    ) -> tuple[HTTPStatus, bytes, list[tuple[bytes, bytes]]]:
        """Return the status, the body and the headers of the answer to a request."""
        if scope["path"].rstrip("/") != PATH:
            return HTTPStatus.NOT_FOUND, b"", []
        if scope["method"] != "POST":
            return HTTPStatus.METHOD_NOT_ALLOWED, b"", [(b"allow", b"POST")]
        try:
            async with asyncio.timeout(_SECONDS):
                body = await _body(receive)
        except TimeoutError:
            return HTTPStatus.REQUEST_TIMEOUT, b"", []
        if len(body) > _LARGEST:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"", []
        payload = self._payload(scope, body)
        if payload is None:
            return HTTPStatus.UNAUTHORIZED, b"", []
        reply = await self._hear(payload)
        if reply is None:
            return HTTPStatus.OK, b"", []
        return HTTPStatus.OK, json.dumps(reply).encode(), [(b"content-type", b"application/json")]

    def _payload(self, scope: Mapping[str, Any], body: bytes) -> Mapping[str, Any] | None:
        """Return the payload of a request, None if Slack has not signed it in the last five minutes."""
        try:
            headers = {
                name.decode("ascii"): text.decode("ascii") for name, text in scope["headers"]
            }
            if not self._verifier.is_valid_request(body, headers):
                return None
            found = json.loads(parse_qs(body.decode())["payload"][0])
        except (ValueError, KeyError):
            return None
        return found if isinstance(found, dict) else None


async def _body(receive: Callable[[], Awaitable[Mapping[str, Any]]]) -> bytes:
    """Return the body of a request, cut just beyond the largest accepted size."""
    body, is_whole = b"", False
    while not is_whole and len(body) <= _LARGEST:
        part = await receive()
        body += part.get("body", b"")
        is_whole = not part.get("more_body", False)
    return body
