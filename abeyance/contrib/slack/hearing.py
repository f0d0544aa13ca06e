"""How Slack tells what was pressed: over a socket that this process opens, or by signed requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
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

_SECONDS: Final = 5.0
_LARGEST: Final = 1_000_000


@asynccontextmanager
async def over_a_socket(slack: Slack, app_token: str, hear: Hear) -> AsyncIterator[None]:
    """Hear by Socket Mode; lost connections are made anew. Raises Away and SlackFault."""
    loop = asyncio.get_running_loop()
    client = SocketModeClient(app_token, web_client=slack.client)

    async def heard(request: SocketModeRequest) -> Mapping[str, Any] | None:
        return await hear(request.payload) if request.type == "interactive" else None

    def listen(connection: BaseSocketModeClient, request: SocketModeRequest) -> None:
        # In a thread of the client. Without an answer Slack sends it again.
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
    """Hear by requests that Slack signs, and yield where. Raises SettingsError if nobody can listen."""
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
        # The process stops as a whole.
        yield


class _Requests:
    """An ASGI application that takes what Slack has signed, and refuses everything else."""

    def __init__(self, secret: str, hear: Hear) -> None:
        self._verifier = SignatureVerifier(secret)
        self._hear = hear

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        body, is_whole = b"", False
        while not is_whole and len(body) <= _LARGEST:
            part = await receive()
            body += part.get("body", b"")
            is_whole = not part.get("more_body", False)
        payload = self._payload(scope, body) if len(body) <= _LARGEST else None
        reply = None if payload is None else await self._hear(payload)
        content = b"" if reply is None else json.dumps(reply).encode()
        headers = [(b"content-type", b"application/json")] if content else []
        status = 401 if payload is None else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _payload(self, scope: Mapping[str, Any], body: bytes) -> Mapping[str, Any] | None:
        """Return what a request tells, None if Slack has not signed it."""
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        try:
            if not self._verifier.is_valid_request(body, headers):
                return None
            found = json.loads(parse_qs(body.decode())["payload"][0])
        except (ValueError, KeyError):
            return None
        return found if isinstance(found, dict) else None
