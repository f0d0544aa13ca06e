"""Connection limits: deadlines for slow callers, and a maximum number of connections.

A caller that sends nothing, or sends a request byte by byte, occupies a connection. So the head and the
body of a request have a deadline each, which further bytes do not extend, and so has a caller that does
not read a response. While the service processes a request there is no deadline: long polls and event
streams can go on.

If all connections are in use, the one that has been without a request for the longest time is closed. The
server's own limit on concurrency would instead refuse every new caller while idle ones hold connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Literal, TypeAlias

import h11
import uvicorn
from fastapi import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from abeyance.api.problems import Problem, unavailable
from abeyance.errors import Code
from abeyance.settings import Settings

_Phase: TypeAlias = Literal["idle", "head", "body", "rest"]
"""The data that a connection waits for. `rest` is the rest of a body that needs no processing."""

_REST_SECONDS: Final = 5.0
_MAX_HEAD_BYTES: Final = 32_768
_LOG_INTERVAL_SECONDS: Final = 60.0
_logger = logging.getLogger("abeyance.api")


class _Connections(ServerState):
    """The connections of a server: `waiting` for a request, and `sending` a body, both oldest first."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.limit = settings.max_connections
        self.stall_timeout = settings.body_timeout
        self.timeouts: dict[_Phase, float] = {
            "idle": settings.keep_alive,
            "head": settings.head_timeout,
            "body": settings.body_timeout,
            "rest": min(_REST_SECONDS, settings.body_timeout),
        }
        self.waiting: dict[Connection, None] = {}
        self.sending: dict[Connection, None] = {}
        self._logged_at = -math.inf

    def make_room(self, newcomer: Connection) -> None:
        """Close a connection if there are too many: the newest if all others are in use."""
        if len(self.connections) <= self.limit:
            return
        idle = chain(self.waiting, self.sending)
        next((other for other in idle if other is not newcomer), newcomer).turn_away()
        now = time.monotonic()
        if now - self._logged_at > _LOG_INTERVAL_SECONDS:
            self._logged_at = now
            _logger.warning(
                "code=%s | all %d connections of ABEYANCE_MAX_CONNECTIONS are in use: closing those "
                "without a request",
                Code.UNAVAILABLE,
                self.limit,
            )


class Connection(H11Protocol):
    """A connection with deadlines for its caller."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: _Connections,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shared = server_state
        self._phase: tuple[_Phase, RequestResponseCycle | None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline of the first request."""
        super().connection_made(transport)
        self._enter("head")
        self._shared.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadlines."""
        self._enter(None)
        self._cancel_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, and update the deadline."""
        super().data_received(data)
        self._update_phase()

    def on_response_complete(self) -> None:
        """Continue with the next request, which may have arrived already."""
        super().on_response_complete()
        self._update_phase()

    def pause_writing(self) -> None:
        """Start the deadline for the caller to read the response."""
        super().pause_writing()
        self._start_stall()

    def resume_writing(self) -> None:
        """Cancel the deadline: the caller reads the response."""
        if not self.transport.is_closing():
            self._cancel_stall()
        super().resume_writing()

    def turn_away(self) -> None:
        """Close the connection, because there are too many."""
        message = "The service has too many open connections. Retry in a moment."
        is_new = self.cycle is None
        self._close(unavailable(message, retry_after=1) if is_new or self._is_begun else None)

    @property
    def _is_begun(self) -> bool:
        """True if a part of a request has arrived and no response has begun."""
        return self.conn.our_state is h11.SEND_RESPONSE or bool(self.conn.trailing_data[0])

    def _update_phase(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing():
            self._enter(None)
            self._start_stall()
        elif self.conn.their_state is h11.SEND_BODY:
            self._enter("body" if is_answering else "rest")
        elif is_answering or self.conn.their_state is not h11.IDLE:
            self._enter(None)
        else:
            self._enter("head" if self._is_begun else "idle")

    def _enter(self, phase: _Phase | None) -> None:
        state = None if phase is None else (phase, self.cycle)
        # More bytes of the same request do not extend the deadline.
        if state == self._phase:
            return
        self._phase = state
        self._shared.waiting.pop(self, None)
        self._shared.sending.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase is not None:
            seconds = self._shared.timeouts[phase]
            self._deadline = self.loop.call_later(seconds, self._on_deadline, phase, seconds)
            group = self._shared.sending if phase == "body" else self._shared.waiting
            group[self] = None

    def _on_deadline(self, phase: _Phase, seconds: float) -> None:
        message = f"The {phase} of the request was incomplete after {seconds:g} s: send it faster."
        late = Problem(408, "request_timeout", "Request timeout", message)
        self._close(late if self._is_begun else None)

    def _close(self, response: Response | None) -> None:
        """Close the connection, with this response if none has begun."""
        if response is not None and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response.headers["Connection"] = "close"
            events = (
                h11.Response(status_code=response.status_code, headers=response.raw_headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            )
            # The response to HEAD has no body.
            with contextlib.suppress(h11.LocalProtocolError):
                for event in events:
                    self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.connections.discard(self)
        self._enter(None)
        self.transport.close()
        self._start_stall()

    def _start_stall(self) -> None:
        self._cancel_stall()
        left = self.transport.get_write_buffer_size()
        if left:
            seconds = self._shared.stall_timeout
            self._stall_timer = self.loop.call_later(seconds, self._on_stall, left)

    def _on_stall(self, before: int) -> None:
        # A caller that reads slowly may continue.
        if self.transport.get_write_buffer_size() < before:
            self._start_stall()
        else:
            self.transport.abort()

    def _cancel_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


class Server(uvicorn.Server):
    """A server with these connections. Running requests get `grace` seconds when it stops."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        grace: int,
        lifespan: Literal["on", "off"] = "on",
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
                timeout_keep_alive=math.ceil(settings.keep_alive),
                lifespan=lifespan,
                ws="none",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=grace,
            )
        )
        self.server_state = _Connections(settings)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals.

        The default implementation raises them again after the shutdown, which ends the process before
        the caller can clean up.
        """
        yield
