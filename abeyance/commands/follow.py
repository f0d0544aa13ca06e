"""The events of a run, read over HTTP: what has happened, and then what happens.

A stream that breaks is opened again after the last event, so that nothing is missed and nothing comes
twice. That is tried for about half a minute on end; whatever the stream says in between starts the
count anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeAlias

import httpx

from abeyance.commands.remote import Remote
from abeyance.errors import Unavailable
from abeyance.wire import TERMINAL_EVENTS

Event: TypeAlias = Mapping[str, Any]

_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""In seconds, before each try to open the stream again."""
_PAGE: Final = "500"


async def past(remote: Remote, path: str, after: str | None) -> AsyncGenerator[Event, None]:
    """What has happened by now, in order, in the run at `path`; `after` is the id of an event.

    Raises what `Remote.get` raises.
    """
    while True:
        items, following = await _page(remote, path, after)
        for event in items:
            yield event
        if not items or following is None:
            return
        after = following


async def follow(
    remote: Remote, path: str, after: str | None, *, on_gap: Callable[[], None]
) -> AsyncGenerator[Event, None]:
    """The same, and what happens from then on, until the run has ended.

    `on_gap` is called when the stream breaks off and is to be opened again. Raises what `Remote.get`
    raises: at the first try at once, later when there is no getting on.
    """
    last = after
    was_open = False
    tries = 0
    while True:
        try:
            async with remote.stream(f"{path}/events", last) as response:
                was_open = True
                async for event in _events(response):
                    tries = 0
                    if event is not None:
                        yield event
                        last = event["id"]
                        if event["type"] in TERMINAL_EVENTS:
                            return
            # Its end without that of the run may be the end of what was left to tell.
            items, following = await _page(remote, path, last)
            for event in items:
                yield event
                last = event["id"]
            if following is None:
                return
            gap = Unavailable(f"the stream of events from {remote.url} ended before its run did")
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
    remote: Remote, path: str, after: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    place = {"after": after} if after else {}
    page = (await remote.get(f"{path}/events", limit=_PAGE, **place)).json()
    return page["items"], page["next_cursor"]


async def _events(response: httpx.Response) -> AsyncIterator[Event | None]:
    """The events of a stream; None for a sign of life without one."""
    data: list[str] = []
    async for line in _lines(response):
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").strip())
        elif line == ":":
            yield None
        elif not line and data:
            yield json.loads("\n".join(data))
            data = []


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    # Not `aiter_lines`: to it a line also ends where only a text would, and data may hold such letters.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()
