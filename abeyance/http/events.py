"""Read the events of one run or of all runs over HTTP: past events, and new ones as they happen.

An interrupted stream is reopened after the last event, so that no event is lost or repeated. After about
half a minute of failed attempts the error is raised; any line of the stream resets the count.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from abeyance.errors import Unavailable
from abeyance.http.connection import Connection
from abeyance.util import unknown_cursor
from abeyance.views import TERMINAL_EVENTS

EventJson: TypeAlias = Mapping[str, Any]
Query: TypeAlias = Mapping[str, str | Sequence[str]]

_ALL: Final[Query] = {}
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""Seconds before each attempt to reopen the stream."""
_PAGE: Final = "500"
_CURSOR: Final = re.compile("[!-~]+")
_DELTA: Final = "model.delta"


async def past(
    api: Connection, path: str, after: str | None, query: Query = _ALL
) -> AsyncGenerator[EventJson, None]:
    """Yield the past events of the run at `path`, in order, after the event with the id `after`.

    An empty path means the events of all runs that the `query` selects. Raises as `Connection.get`.
    """
    _check_cursor(path, after)
    while True:
        items, following = await _page(api, path, after, **query)
        for event in items:
            yield event
        # A page may be empty because the filter left out all events that the API read for it.
        if following in (None, after):
            return
        after = following


async def follow(
    api: Connection,
    path: str,
    after: str | None,
    query: Query = _ALL,
    *,
    on_gap: Callable[[], None],
    on_delta: Callable[[EventJson], None] | None = None,
) -> AsyncGenerator[EventJson, None]:
    """Yield past events as `past` does, then new ones: until the run ends, or without end for all runs.

    `on_gap` is called before an interrupted stream is reopened, and `on_delta` with each `model.delta` of
    a run: the text of a model while it speaks. Raises as `Connection.get`: at once on the first attempt,
    later after the last one.
    """
    _check_cursor(path, after)
    live = {"live": "false"} if path and on_delta is None else {}
    was_open = False
    tries = 0
    while True:
        try:
            async with api.stream(f"{path}/events", after, **live, **query) as events:
                was_open = True
                async for event in events:
                    tries = 0
                    if event is not None and event["type"] == _DELTA:
                        if on_delta is not None:
                            on_delta(event)
                    elif event is not None:
                        yield event
                        after = event["id"]
                        # A run that was retried goes on after such an event.
                        is_end = path and event["type"] in TERMINAL_EVENTS
                        if is_end and await _is_last(api, path, after):
                            return
            gap = Unavailable(f"the stream of events from {api.url} ended")
            if path:
                # The stream of an ended run may close without its last event.
                items, following = await _page(api, path, after)
                for event in items:
                    yield event
                    after = event["id"]
                if following is None:
                    return
                gap = Unavailable(f"the stream of events from {api.url} ended before its run did")
        except Unavailable as error:
            if not was_open:
                raise
            gap = error
        if tries == len(_PAUSES):
            raise gap
        if tries == 0:
            on_gap()
        await asyncio.sleep(_PAUSES[tries])
        tries += 1


def _check_cursor(path: str, cursor: str | None) -> None:
    # Neither a header nor a query can hold such a cursor, or it means none there.
    if cursor is not None and _CURSOR.fullmatch(cursor) is None:
        run_id = path.rpartition("/")[2]
        raise unknown_cursor(cursor, run_id or None)


async def _is_last(api: Connection, path: str, last: str | None) -> bool:
    items, following = await _page(api, path, last)
    return not items and following is None


async def _page(
    api: Connection, path: str, after: str | None, **query: str | Sequence[str]
) -> tuple[list[EventJson], str | None]:
    place = {"after": after} if after else {}
    page = await api.get(f"{path}/events", limit=_PAGE, **query, **place)
    return page["items"], page["next_cursor"]
