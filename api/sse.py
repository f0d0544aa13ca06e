"""A feed as a response: server-sent events."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Final

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from abeyance import wire
from abeyance.errors import Refusal, Unavailable

MEDIA_TYPE: Final = "text/event-stream"

_HEARTBEAT_SECONDS: Final = 15.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # Proxies would keep events back until they have a bufferful.
    "X-Accel-Buffering": "no",
}


class EventStream(StreamingResponse):
    """The events as they come; a comment every `heartbeat` seconds in which there was none.

    The end of the events is the end of the stream. If they cannot go on, the stream ends with a comment
    that says why, and the reader may connect again with the last id. So it does when `leaving` is set,
    and at the time `until`, in seconds, at which the token of the reader expires.
    """

    def __init__(
        self,
        events: AsyncGenerator[wire.Event, None],
        *,
        heartbeat: float = _HEARTBEAT_SECONDS,
        leaving: asyncio.Event | None = None,
        until: float | None = None,
    ) -> None:
        self._events = events
        self._text = _text(events, heartbeat, leaving or asyncio.Event(), until)
        super().__init__(self._text, media_type=MEDIA_TYPE, headers=_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; whoever leaves early gives up their place in the feed at once."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.leave()

    async def leave(self) -> None:
        """Send no more, and give up the place in the feed."""
        async with aclosing(self._events), aclosing(self._text):
            pass


async def _text(
    events: AsyncIterator[wire.Event],
    heartbeat: float,
    leaving: asyncio.Event,
    until: float | None,
) -> AsyncGenerator[str, None]:
    coming: asyncio.Task[wire.Event | None] | None = None
    told = asyncio.create_task(leaving.wait())
    try:
        while True:
            coming = coming or asyncio.create_task(_next(events))
            left = math.inf if until is None else max(0.0, until - time.time())
            await asyncio.wait(
                {coming, told}, timeout=min(heartbeat, left), return_when=asyncio.FIRST_COMPLETED
            )
            if told.done():
                yield ": the service is stopping: reconnect with the last id\n\n"
                return
            if until is not None and time.time() >= until:
                yield ": the token has expired: reconnect with a new token and the last id\n\n"
                return
            if not coming.done():
                yield ":\n\n"
                continue
            try:
                event = coming.result()
            except (Refusal, Unavailable) as error:
                yield f": {_flat(str(error))}\n\n"
                return
            if event is None:
                return
            coming = None
            yield f"id: {event.id}\nevent: {_flat(event.type)}\ndata: {event.model_dump_json()}\n\n"
    finally:
        told.cancel()
        if coming is not None:
            coming.cancel()
            while not coming.done():
                # Told again and again that its reader has gone; the feed must be left first.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({coming})


async def _next(events: AsyncIterator[wire.Event]) -> wire.Event | None:
    return await anext(events, None)


def _flat(text: str) -> str:
    return " ".join(text.split())
