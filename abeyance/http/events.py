"""Read the events of a run, or of all, over HTTP: past ones, and new ones as they happen.

An interrupted stream is reopened after the last event, so that no event is lost or repeated. After about
half a minute of failed attempts the error is raised; any line of the stream resets the count.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from abeyance.errors import Unavailable
from abeyance.http.connection import Connection
from abeyance.views import TERMINAL_EVENTS

EventJson: TypeAlias = Mapping[str, Any]
Query: TypeAlias = Mapping[str, str | Sequence[str]]

_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""Seconds before each attempt to reopen the stream."""
_PAGE: Final = "500"
_DELTA: Final = "model.delta"


async def past(api: Connection, path: str, after: str | None) -> AsyncGenerator[EventJson, None]:
    """Yield the past events of the run at `path`, in order, after the event with the id `after`.

    Raises as `Connection.get`.
    """
    while True:
        items, following = await _page(api, path, after)
        for event in items:
            yield event
        if not items or following is None:
            return
        after = following


async def follow(
    api: Connection,
    path: str,
    after: str | None,
    *,
    on_gap: Callable[[], None],
    on_delta: Callable[[EventJson], None] | None = None,
) -> AsyncGenerator[EventJson, None]:
    """Yield past events and then new ones, until the run ends.

    `on_gap` is called before an interrupted stream is reopened, and `on_delta` with each `model.delta`:
    what a model says while it speaks. Raises as `Connection.get`: at once on the first attempt, later
    after the last one.
    """
    live = {"live": "false"} if on_delta is None else {}
    last = after
    was_open = False
    tries = 0
    while True:
        try:
            async with api.stream(f"{path}/events", last, **live) as events:
                was_open = True
                async for event in events:
                    tries = 0
                    if event is not None and event["type"] == _DELTA:
                        if on_delta is not None:
                            on_delta(event)
                    elif event is not None:
                        yield event
                        last = event["id"]
                        # The run goes on after its end if it was retried.
                        if event["type"] in TERMINAL_EVENTS and await _is_last(api, path, last):
                            return
            # The stream of an ended run may close without its last event: read the remaining events.
            items, following = await _page(api, path, last)
            for event in items:
                yield event
                last = event["id"]
            if following is None:
                return
            gap = Unavailable(f"the stream of events from {api.url} ended before its run did")
        except Unavailable as error:
            if not was_open:
                raise
            gap = error
        await _pause(tries, gap, on_gap)
        tries += 1


async def past_of_all(
    api: Connection, query: Query, after: str | None
) -> AsyncGenerator[EventJson, None]:
    """Yield the past events of all runs that the `query` selects, after the event with the id `after`.

    Raises as `Connection.get`.
    """
    while True:
        items, following = await _page(api, "", after, **query)
        for event in items:
            yield event
        # A page may be empty because the events that were read for it were others.
        if following in (None, after):
            return
        after = following


async def follow_all(
    api: Connection, query: Query, after: str | None, *, on_gap: Callable[[], None]
) -> AsyncGenerator[EventJson, None]:
    """Yield past events of all runs that the `query` selects, and then new ones, without end.

    `on_gap` is called before an interrupted stream is reopened. Raises as `follow`.
    """
    was_open = False
    tries = 0
    while True:
        gap = Unavailable(f"the stream of events from {api.url} ended")
        try:
            async with api.stream("/events", after, **query) as events:
                was_open = True
                async for event in events:
                    tries = 0
                    if event is not None:
                        yield event
                        after = event["id"]
        except Unavailable as error:
            if not was_open:
                raise
            gap = error
        await _pause(tries, gap, on_gap)
        tries += 1


async def _pause(tries: int, gap: Unavailable, on_gap: Callable[[], None]) -> None:
    """Wait before an interrupted stream is opened again; raise `gap` if that was tried often enough."""
    if tries == len(_PAUSES):
        raise gap
    if tries == 0:
        on_gap()
    await asyncio.sleep(_PAUSES[tries])


async def _is_last(api: Connection, path: str, last: str | None) -> bool:
    items, following = await _page(api, path, last)
    return not items and following is None


async def _page(
    api: Connection, path: str, after: str | None, **query: str | Sequence[str]
) -> tuple[list[EventJson], str | None]:
    place = {"after": after} if after else {}
    page = await api.get(f"{path}/events", limit=_PAGE, **query, **place)
    return page["items"], page["next_cursor"]
