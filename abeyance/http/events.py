"""The events of a run, read over HTTP: what has happened, and then what happens.

A stream that breaks is opened again after the last event, so that nothing is missed and nothing comes
twice. That is tried for about half a minute on end; whatever the stream says in between starts the
count anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, TypeAlias

from abeyance.errors import Unavailable
from abeyance.http.connection import Connection
from abeyance.wire import TERMINAL_EVENTS

EventJson: TypeAlias = Mapping[str, Any]

_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""In seconds, before each try to open the stream again."""
_PAGE: Final = "500"


async def past(api: Connection, path: str, after: str | None) -> AsyncGenerator[EventJson, None]:
    """What has happened by now, in order, in the run at `path`; `after` is the id of an event.

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
    api: Connection, path: str, after: str | None, *, on_gap: Callable[[], None]
) -> AsyncGenerator[EventJson, None]:
    """The same, and what happens from then on, until the run has ended.

    `on_gap` is called when the stream breaks off and is to be opened again. Raises as `Connection.get`:
    at the first try at once, later when there is no getting on.
    """
    last = after
    was_open = False
    tries = 0
    while True:
        try:
            async with api.stream(f"{path}/events", last) as events:
                was_open = True
                async for event in events:
                    tries = 0
                    if event is not None:
                        yield event
                        last = event["id"]
                        if event["type"] in TERMINAL_EVENTS:
                            return
            # Its end without that of the run may be the end of what was left to tell.
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
        if tries == len(_PAUSES):
            raise gap
        if tries == 0:
            on_gap()
        await asyncio.sleep(_PAUSES[tries])
        tries += 1


async def _page(
    api: Connection, path: str, after: str | None
) -> tuple[list[EventJson], str | None]:
    place = {"after": after} if after else {}
    page = await api.get(f"{path}/events", limit=_PAGE, **place)
    return page["items"], page["next_cursor"]
