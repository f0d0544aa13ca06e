"""Connections: how long a caller may take with a request, and how many callers there may be.

Whoever opens a connection and says nothing, or sends a request byte by byte, costs us a place. So the
head and the body of a request have a deadline each, which no further byte moves, and so has a caller who
takes nothing of an answer. While we are the ones who answer there is none: a long poll or a stream of
events may go on.

Places are bounded too. When all are taken, the connection is closed that has been without a request for
the longest time, so those who only hold places lose them to those who ask for something. A bound on
concurrency, as the server has it itself, would turn everybody away for as long as somebody holds them.
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

from abeyance.api.problems import problem, unavailable
from abeyance.errors import Code
from abeyance.settings import Settings

_Phase: TypeAlias = Literal["idle", "head", "body", "rest"]
"""What of a caller we wait for; `rest` is that of a body which was answered before it was read."""

_IDLE_SECONDS: Final = 5
"""How long a connection is kept on which no further request begins."""
_REST_SECONDS: Final = 5.0
_MOST_HEAD_BYTES: Final = 32_768
_TOLD_EVERY_SECONDS: Final = 60.0
_logger = logging.getLogger("abeyance.api")


class _Doorway(ServerState):
    """What the connections of a server share: those without a request, and those whose request is not
    complete, each from the longest time on.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.most = settings.max_connections
        self.stall = settings.body_timeout
        self.seconds: dict[_Phase, float] = {
            "idle": _IDLE_SECONDS,
            "head": settings.head_timeout,
            "body": settings.body_timeout,
            "rest": min(_REST_SECONDS, settings.body_timeout),
        }
        self.waiting: dict[Connection, None] = {}
        self.sending: dict[Connection, None] = {}
        self._told_at = -math.inf

    def make_room(self, newcomer: Connection) -> None:
        """Close a connection if there are too many: the newest if all others are being answered."""
        if len(self.connections) <= self.most:
            return
        others = (each for each in chain(self.waiting, self.sending) if each is not newcomer)
        next(others, newcomer).turn_away()
        now = time.monotonic()
        if now - self._told_at > _TOLD_EVERY_SECONDS:
            self._told_at = now
            _logger.warning(
                "code=%s | all %d connections of ABEYANCE_MAX_CONNECTIONS are in use: closing those "
                "without a request",
                Code.UNAVAILABLE,
                self.most,
            )


class Connection(H11Protocol):
    """A connection with deadlines for what its caller has to do."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: _Doorway,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._doorway = server_state
        self._phase: tuple[_Phase, RequestResponseCycle | None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of a request, if there is a place."""
        super().connection_made(transport)
        self._enter("head")
        self._doorway.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._enter(None)
        self._unstall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what was sent, and see what is missing."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Go on to the next request, which may be here already."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Wait for the caller to take what is answered."""
        super().pause_writing()
        self._stall()

    def resume_writing(self) -> None:
        """The caller takes it."""
        if not self.transport.is_closing():
            self._unstall()
        super().resume_writing()

    def turn_away(self) -> None:
        """Close the connection, as there are too many."""
        message = "The service has too many open connections. Retry in a moment."
        is_new = self.cycle is None
        self._end(unavailable(message, retry_after=1) if is_new or self._is_begun else None)

    @property
    def _is_begun(self) -> bool:
        """Whether there is something of a request that has no answer yet."""
        return self.conn.our_state is h11.SEND_RESPONSE or bool(self.conn.trailing_data[0])

    def _look(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.is_closing():
            self._enter(None)
            self._stall()
        elif self.conn.their_state is h11.SEND_BODY:
            self._enter("body" if is_answering else "rest")
        elif is_answering or self.conn.their_state is not h11.IDLE:
            self._enter(None)
        else:
            self._enter("head" if self._is_begun else "idle")

    def _enter(self, phase: _Phase | None) -> None:
        entered = None if phase is None else (phase, self.cycle)
        # A byte more of the same request moves no deadline.
        if entered == self._phase:
            return
        self._phase = entered
        self._doorway.waiting.pop(self, None)
        self._doorway.sending.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase is not None:
            seconds = self._doorway.seconds[phase]
            self._deadline = self.loop.call_later(seconds, self._too_late, phase, seconds)
            held = self._doorway.sending if phase == "body" else self._doorway.waiting
            held[self] = None

    def _too_late(self, phase: _Phase, seconds: float) -> None:
        message = f"The {phase} of the request was incomplete after {seconds:g} s: send it faster."
        late = problem(408, "request_timeout", "Request timeout", message)
        self._end(late if self._is_begun else None)

    def _end(self, response: Response | None) -> None:
        """Close the connection; with this response, if none has begun."""
        if response is not None and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response.headers["Connection"] = "close"
            events = (
                h11.Response(status_code=response.status_code, headers=response.raw_headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            )
            # The answer to HEAD has no body.
            with contextlib.suppress(h11.LocalProtocolError):
                for event in events:
                    self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.connections.discard(self)
        self._enter(None)
        self.transport.close()
        self._stall()

    def _stall(self) -> None:
        self._unstall()
        left = self.transport.get_write_buffer_size()
        if left:
            seconds = self._doorway.stall
            self._stalled = self.loop.call_later(seconds, self._still_stalled, left)

    def _still_stalled(self, before: int) -> None:
        # Slow is not gone: who takes anything at all may go on.
        if self.transport.get_write_buffer_size() < before:
            self._stall()
        else:
            self.transport.abort()

    def _unstall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


class Server(uvicorn.Server):
    """Serves an application on such connections, as its settings say.

    `grace`: how many seconds calls that are under way may go on when it is told to stop. `lifespan` says
    whether the application is told of its start and end.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        grace: int,
        lifespan: Literal["on", "off"] = "on",
        log_level: str | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
                timeout_keep_alive=_IDLE_SECONDS,
                lifespan=lifespan,
                ws="none",
                log_config=None,
                log_level=log_level,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=grace,
            )
        )
        self.server_state = _Doorway(settings)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone.

        The server's own way is to raise them again after the shutdown, which ends the process before
        whoever called us could clean up.
        """
        yield
