"""The events of a run, and those of all runs, as pages or as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager, suppress
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

from anyio import CancelScope
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.types import Receive, Scope, Send

from abeyance import views, wire
from abeyance.api import examples, openapi
from abeyance.api.auth import READ, Credentials, CredentialsDep
from abeyance.api.dependencies import Backend, BackendDep, ClientDep, RunId
from abeyance.api.schemas import Listed
from abeyance.commands import lists
from abeyance.errors import Refusal, Unavailable
from abeyance.filters import EventFilter

T = TypeVar("T")

router = APIRouter(tags=["events"], dependencies=[READ])

_JSON: Final = "application/json"
_EVENT_STREAM: Final = "text/event-stream"
_PAGE_OR_STREAM: Final = "A page of events, or a stream as text/event-stream."
_HEARTBEAT_SECONDS: Final = 15.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    # Proxies would otherwise buffer the events.
    "X-Accel-Buffering": "no",
}


class EventsQuery(wire.Request):
    """The query of a page of events."""

    after: str | None = Field(
        default=None,
        description="Return events after the one with this id. Absent starts at the oldest.",
    )
    limit: int = Field(
        default=100, ge=1, le=1000, description="The maximum number of events in a page."
    )


class RunEventsQuery(EventsQuery):
    """The query of a page of the events of a run."""

    live: bool = Field(
        default=True,
        description="Whether a stream also has what models say while they speak, as `model.delta`.",
    )
    discarded: bool = Field(
        default=False,
        description="Whether a page also has the events that a rewind has discarded.",
    )


class StreamQuery(EventsQuery, lists.StreamPage):
    """The query of a page of the events of all runs."""

    since: wire.Moment | None = Field(
        default=None,
        description="Without a cursor, begin with the events after this time.",
        examples=["2026-03-05T00:00Z"],
    )


LastEventId: TypeAlias = Annotated[
    str | None, Header(description="The id of the last event received. Overrides `after`.")
]


@router.get(
    "/events",
    response_model=Listed[views.StreamEvent],
    response_description=_PAGE_OR_STREAM,
    responses=openapi.shown(examples.STREAM_OF_ALL, _EVENT_STREAM),
)
async def read_stream(
    *,
    query: Annotated[StreamQuery, Query()],
    client: ClientDep,
    backend: BackendDep,
    credentials: CredentialsDep,
    request: Request,
    last_event_id: LastEventId = None,
) -> Listed[views.StreamEvent] | Response:
    """List the events of all runs, oldest first. With `Accept: text/event-stream`, stream them as they
    happen.

    The events of each run are in order. Continue after the last id, at any replica, to get every event
    exactly once; the id is valid with any filter. Without an id, the oldest recorded event comes first,
    or the first after `since`. If a page is empty and its `next_cursor` is the `after` of the request,
    nothing is new yet; any other page may be shorter than `limit`. A stream has no end; it ends early if
    its token expires or is revoked.
    """
    after = last_event_id or query.after
    filters = lists.narrowed(EventFilter(reads=credentials.reads), query)
    if _wants_stream(request):
        with place_of(credentials, backend) as place:
            following = await client.stream.opened(after, filters=filters, since=query.since)
            return stream_to(credentials, backend, following.events, place, cursor=following.cursor)
    items, next_cursor = await client.stream.page(
        after, limit=query.limit, filters=filters, since=query.since
    )
    return Listed(items=items, next_cursor=next_cursor)


@router.get(
    "/runs/{run_id}/events",
    response_model=Listed[views.Event],
    response_description=_PAGE_OR_STREAM,
    responses=openapi.shown(examples.EVENT_STREAM, _EVENT_STREAM),
)
async def read_events(
    *,
    run_id: RunId,
    query: Annotated[RunEventsQuery, Query()],
    client: ClientDep,
    backend: BackendDep,
    credentials: CredentialsDep,
    request: Request,
    last_event_id: LastEventId = None,
) -> Listed[views.Event] | Response:
    """List the events of a run, oldest first. With `Accept: text/event-stream`, stream them as they
    happen.

    Continue after the last id to get every event exactly once. After the run's last event, the stream
    ends and `next_cursor` is null. A stream ends early if its token expires or is revoked. It also has
    the text of models while they speak, as `model.delta`, which has no id.
    """
    after = last_event_id or query.after
    if _wants_stream(request):
        with place_of(credentials, backend) as place:
            events = await client.feed.watched(run_id, after, hears_models=query.live)
            return stream_to(credentials, backend, events, place)
    limit, discarded = query.limit, query.discarded
    items, next_cursor = await client.feed.page(run_id, after, limit, discarded=discarded)
    return Listed(items=items, next_cursor=next_cursor)


def _wants_stream(request: Request) -> bool:
    # The first supported type wins.
    accepted = request.headers.get("accept", "").split(",")
    types = [part.partition(";")[0].strip().lower() for part in accepted]
    return next((type_ for type_ in types if type_ in (_EVENT_STREAM, _JSON)), _JSON) != _JSON


def _as_comment(reason: str) -> str:
    return f": {reason}\n\n"


def _as_event(event: views.Event | views.ModelDelta) -> str:
    if isinstance(event, views.ModelDelta):
        # Without an id: a reader who reconnects gets the text so far.
        return f"event: {event.type}\ndata: {event.model_dump_json()}\n\n"
    return f"id: {event.id}\nevent: {_one_line(event.type)}\ndata: {event.model_dump_json()}\n\n"


class ServerSentEvents(StreamingResponse):
    """Any stream of server-sent events, for the OpenAPI document."""

    media_type = _EVENT_STREAM


class EventStream(ServerSentEvents, Generic[T]):
    """A stream of server-sent events, with a comment after `heartbeat` seconds without an event.

    With `cursor` the comment has an id after which the reader can continue: the id may be later than the
    last event, because a filter has left out events.

    The stream ends after the last event. It ends early, with a comment that has the reason, on an error,
    when `stopping` is set, at `until`, the Unix time at which the reader's token expires, and within a
    heartbeat after `is_revoked` tells that the token was revoked. The reader can then reconnect with the
    last id.

    `text` writes each event; `last_words` writes the reason if the stream ends early.
    `place` is closed once the stream has ended.

    Not sse-starlette's response: its pings cannot have a cursor, and it has no last words.
    """

    def __init__(
        self,
        events: AsyncGenerator[T, None],
        *,
        text: Callable[[Any], str] = _as_event,
        last_words: Callable[[str], str] = _as_comment,
        headers: Mapping[str, str] | None = None,
        heartbeat: float = _HEARTBEAT_SECONDS,
        stopping: asyncio.Event | None = None,
        until: float | None = None,
        is_revoked: Callable[[], bool] = lambda: False,
        cursor: Callable[[], str] | None = None,
        place: ExitStack | None = None,
    ) -> None:
        self._events = events
        self._write = text
        self._last_words = last_words
        self._heartbeat = heartbeat
        self._stopping = stopping or asyncio.Event()
        self._until = until
        self._is_revoked = is_revoked
        self._cursor = cursor
        self._place = place or ExitStack()
        self._text = self._written()
        super().__init__(self._text, headers={**_HEADERS, **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, and unsubscribe from the feed at once when the reader disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End the stream, and unsubscribe from the feed."""
        with self._place:
            async with aclosing(self._events), aclosing(self._text):
                pass

    async def _written(self) -> AsyncGenerator[str, None]:
        pending: asyncio.Task[T | None] | None = None
        stop = asyncio.create_task(self._stopping.wait())
        try:
            while True:
                pending = pending or asyncio.create_task(_next(self._events))
                left = math.inf if self._until is None else max(0.0, self._until - time.time())
                await asyncio.wait(
                    {pending, stop},
                    timeout=min(self._heartbeat, left),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if stop.done():
                    yield self._last_words("the service is stopping: reconnect with the last id")
                    return
                if self._until is not None and time.time() >= self._until:
                    yield self._last_words(
                        "the token has expired: reconnect with a new token and the last id"
                    )
                    return
                if self._is_revoked():
                    yield self._last_words(
                        "the token was revoked: reconnect with a new token and the last id"
                    )
                    return
                if not pending.done():
                    yield ":\n\n" if self._cursor is None else f":\nid: {self._cursor()}\n\n"
                    continue
                try:
                    event = pending.result()
                except (Refusal, Unavailable) as error:
                    yield self._last_words(_one_line(str(error)))
                    return
                if event is None:
                    return
                pending = None
                yield self._write(event)
        finally:
            stop.cancel()
            if pending is not None:
                pending.cancel()
                # The feed must be closed first; the server would cancel this wait again and again.
                with CancelScope(shield=True):
                    while not pending.done():
                        with suppress(asyncio.CancelledError):
                            await asyncio.wait({pending})


@contextmanager
def place_of(credentials: Credentials, backend: Backend) -> Iterator[ExitStack]:
    """Hold a place for a stream to a caller, which `stream_to` takes over. Raises `too_many_runs`."""
    with ExitStack() as place:
        place.enter_context(backend.streams.one_of(credentials.principal.subject))
        yield place


def stream_to(
    credentials: Credentials,
    backend: Backend,
    events: AsyncGenerator[T, None],
    place: ExitStack,
    **options: Any,
) -> EventStream[T]:
    """Return a stream to a caller, for as long as the service runs and the caller's token counts.

    `place` comes from `place_of`; `options` are those of `EventStream`.
    """
    return EventStream(
        events,
        place=place.pop_all(),
        stopping=backend.stopping,
        until=credentials.expires_at,
        is_revoked=lambda: backend.tokens.is_revoked(credentials),
        **options,
    )


async def _next(events: AsyncGenerator[T, None]) -> T | None:
    return await anext(events, None)


def _one_line(text: str) -> str:
    return " ".join(text.split())
