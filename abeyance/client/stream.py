"""The stream of the events of all runs of a deployment, as they are recorded.

A listener is only a place in the records: a slow one costs nothing, and one that comes again can continue
at any replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from abeyance import views
from abeyance.client.records import Records
from abeyance.filters import EventFilter
from abeyance.records import events
from abeyance.records.events import Place, Stretch
from abeyance.temporal.single_flight import SingleFlight
from abeyance.util import unknown_cursor

_AT_ONCE: Final = 500
"""How many events a listener reads at a time."""
_PAGE_SECONDS: Final = 3.0
"""The time after which a page ends, even a short one: a filter may pass few of very many events."""
_LOOKED_EVERY: Final = 15.0
_logger = logging.getLogger("abeyance.stream")


@dataclass(frozen=True, slots=True)
class Following:
    """An open stream. Close it, or use it with `aclosing(following.events)`.

    `cursor` returns the cursor after all that was read, also of events that the filter left out.
    """

    events: AsyncGenerator[views.StreamEvent, None]
    cursor: Callable[[], str]


class Stream:
    """The stream of the runs of a deployment."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._flight: SingleFlight[Stretch] = SingleFlight()
        self._unreadable: set[str] = set()

    async def page(
        self,
        after: str | None = None,
        *,
        limit: int = 100,
        filters: EventFilter | None = None,
        since: datetime | None = None,
    ) -> tuple[list[views.StreamEvent], str]:
        """Return at most `limit` events after the cursor `after`, oldest first, and the next cursor.

        None as `after` is before the first event after `since`, or the oldest that is recorded. A page
        shorter than `limit` need not be the last: there is nothing more yet only if a page is empty and
        its cursor is the same as before. Raises the refusals `invalid_body` for a text that is not a
        cursor, and `cursor_expired`, with the `oldest` cursor, for one from before the records were made
        anew; and Unavailable.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: a page holds at least one event")
        filters = filters or EventFilter()
        clock = asyncio.get_running_loop().time
        deadline = clock() + _PAGE_SECONDS
        place, found = await self._place(after, since), list[views.StreamEvent]()
        while True:
            stretch = await self._read(place, filters, limit - len(found))
            found += stretch.items
            place = stretch.place
            if len(found) >= limit or stretch.is_last or clock() > deadline:
                return found, str(place)

    async def opened(
        self,
        after: str | None = None,
        *,
        filters: EventFilter | None = None,
        since: datetime | None = None,
    ) -> Following:
        """Follow the stream from the cursor `after` on, without end; None begins with the first event
        after `since`, or with the oldest.

        Raises the refusals of `page`. The events raise Unavailable if the records stay away for a minute:
        a caller that continues from the last cursor misses nothing.
        """
        filters, reader = filters or EventFilter(), _Reader(await self._place(after, since))
        first = await self._read(reader.place, filters, _AT_ONCE)
        found = self._follow(reader, filters, first)
        return Following(found, lambda: str(reader.place))

    async def _place(self, after: str | None, since: datetime | None) -> Place:
        if after is None:
            return (
                Place() if since is None else await self._records.read(events.place_before, since)
            )
        if (place := Place.parse(after)) is None:
            raise unknown_cursor(after)
        return place

    async def _read(
        self, place: Place, filters: EventFilter, limit: int, *, again: bool = False
    ) -> Stretch:
        query = self._records.followed if again else self._records.read
        read = partial(query, events.of_all, filters, after=place.position, limit=limit)
        stretch = await self._flight.read(f"{place} {limit} {filters}", read)
        if place.position and place.made_at != stretch.place.made_at:
            raise place.expired(stretch.place.made_at)
        for run_id in stretch.unreadable - self._unreadable:
            self._unreadable.add(run_id)
            _logger.warning(
                "run_id=%s | the events of this run cannot be read, and are left out of the stream: this "
                "process lacks their key",
                run_id,
            )
        return stretch

    async def _follow(
        self, reader: _Reader, filters: EventFilter, stretch: Stretch
    ) -> AsyncGenerator[views.StreamEvent, None]:
        with self._records.following.changes() as changes:
            while True:
                for event in stretch.items:
                    reader.place = Place.parse(event.id) or reader.place
                    yield event
                reader.place = stretch.place
                if stretch.is_last:
                    await changes.next(_LOOKED_EVERY)
                stretch = await self._read(reader.place, filters, _AT_ONCE, again=True)


@dataclass(slots=True)
class _Reader:
    """The place up to which a listener has read."""

    place: Place
