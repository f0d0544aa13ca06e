"""The feeds of runs: their events as they are recorded, and the text of their models as it comes.

A reader is only a position in the records, so a slow reader costs nothing and none waits for another.
Readers that send the same query at the same time share its result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast

from abeyance import live_text, views
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.errors import Code, Refusal
from abeyance.history.live_texts import TURN_ENDS, LiveTexts
from abeyance.live_text import LiveText
from abeyance.records import events
from abeyance.records.events import Part, event_id
from abeyance.records.following import Changes
from abeyance.temporal.single_flight import SingleFlight
from abeyance.util import unknown_cursor

_AT_ONCE: Final = 500
"""How many events a follower reads at a time."""
_LOOKED_EVERY: Final = 5.0
"""In seconds: a reader also polls, because the end of a run that recorded nothing wakes nobody."""
_NOTHING: Final = Part(items=[], newest=0, position=0, is_last=True, has_ended=False)


class Feed:
    """The feeds of the runs of one deployment."""

    def __init__(self, records: Records, line: WorkflowRpc) -> None:
        self._records = records
        self._line = line
        self._flight: SingleFlight[Part | None] = SingleFlight()
        self._live: dict[str, LiveTexts] = {}

    async def page(
        self, run_id: str, after: str | None, limit: int, *, discarded: bool = False
    ) -> tuple[list[views.Event], str | None]:
        """Return at most `limit` events after the cursor `after`, and the cursor of the next page.

        None as `after` is before the oldest event. `discarded` includes events that a rewind has
        discarded. The next cursor is None once the run has ended and all its events were returned. Raises
        the refusals `unknown_run`, `erased`, `invalid_body` for a text that is not a cursor, and `gone`,
        with the `oldest` cursor, for a cursor that the records do not have; and Unavailable.
        """
        if limit < 1:
            raise ValueError(f"limit={limit}: a page holds at least one event")
        number = _number(run_id, after)
        part = await self._first(run_id, number, limit, discarded=discarded)
        if part.is_last and part.has_ended:
            return part.items, None
        return part.items, part.items[-1].id if part.items else event_id(number)

    async def opened(self, run_id: str, after: str | None) -> AsyncGenerator[views.Event, None]:
        """Yield the events after the cursor `after`, and new ones until the run has ended.

        Raises the refusals of `page` before the first event, and Unavailable, later also if the records
        stay away for a minute. Close the generator, or read it to its end. A caller that continues from
        the last id misses nothing.
        """
        found = await self.watched(run_id, after, hears_models=False)
        return cast("AsyncGenerator[views.Event, None]", found)

    async def watched(
        self, run_id: str, after: str | None, *, hears_models: bool = True
    ) -> AsyncGenerator[views.Event | views.ModelDelta, None]:
        """Follow as `opened`, and with `hears_models` also yield what models say while they speak."""
        number = _number(run_id, after)
        part = await self._first(run_id, number, _AT_ONCE)
        return self._events(run_id, number, part, hears_models=hears_models)

    async def _first(
        self, run_id: str, number: int, limit: int, *, discarded: bool = False
    ) -> Part:
        own = {"after": number, "limit": limit, "discarded": discarded}
        read = partial(self._records.read, events.part_of_run, run_id, **own)
        part = await self._read(f"{number} 0 {limit} {discarded} {run_id}", run_id, read)
        if number > part.newest:
            raise Refusal(
                Code.GONE,
                f"The records do not have the event of this cursor in the run {run_id!r}: continue from "
                "the oldest cursor, and read the run to see what was missed.",
                oldest=event_id(0),
                run_id=run_id,
            )
        return part

    async def _next(self, run_id: str, after: int, beyond: int) -> Part:
        own = {"after": after, "beyond": beyond, "limit": _AT_ONCE}
        read = partial(self._records.followed, events.part_of_run, run_id, **own)
        return await self._read(f"{after} {beyond} {run_id}", run_id, read)

    async def _read(
        self, key: str, run_id: str, read: Callable[[], Awaitable[Part | None]]
    ) -> Part:
        part = await self._flight.read(key, read)
        if part is None:
            # The database may be late. If Temporal does not know the run either, this raises a refusal.
            await self._line.described(run_id)
            return _NOTHING
        return part

    async def _events(
        self, run_id: str, after: int, part: Part, *, hears_models: bool
    ) -> AsyncGenerator[views.Event | views.ModelDelta, None]:
        with (
            self._records.following.changes(run_id) as changes,
            self._hearing(run_id, changes, hears_models=hears_models) as hearing,
        ):
            if hearing is not None:
                latest, running = await self._records.followed(events.running, run_id)
                hearing.begin(running, event_id(latest))
            beyond = 0
            while True:
                for event in part.items:
                    if hearing is not None:
                        hearing.heed(event)
                    yield event
                if part.is_last and part.has_ended:
                    return
                if part.items:
                    after = events.number_of(part.items[-1].id) or after
                if part.is_last:
                    if part.position:
                        # The number is not enough: an event that was taken back may have had it.
                        after, beyond = 0, part.position
                    while hearing is not None and (delta := hearing.delta()) is not None:
                        yield delta
                    await changes.next(_LOOKED_EVERY)
                part = await self._next(run_id, after, beyond)

    @contextmanager
    def _hearing(
        self, run_id: str, changes: Changes, *, hears_models: bool
    ) -> Iterator[_Hearing | None]:
        if not hears_models:
            yield None
            return
        live = self._live.setdefault(run_id, LiveTexts(self._line.temporal, run_id))
        try:
            with live.watched(changes.wake):
                yield _Hearing(run_id, live)
        finally:
            if not live.is_watched:
                self._live.pop(run_id, None)


class _Hearing:
    """The text of a run's models that one watcher has received."""

    def __init__(self, run_id: str, live: LiveTexts) -> None:
        self._run_id = run_id
        self._live = live
        self._heard: dict[str, LiveText] = {}

    def begin(self, running: Iterable[str], latest: str) -> None:
        """Take note of the visits that run as of the event with the id `latest`."""
        self._live.begin(running, latest)

    def heed(self, event: views.Event) -> None:
        """Forget the text of a turn that is over."""
        self._live.heed(event)
        if event.type in TURN_ENDS:
            self._heard.pop(event.address or "", None)

    def delta(self) -> views.ModelDelta | None:
        """Return the new part of one of the texts, None if no text has a new part."""
        for address in {**self._heard, **self._live.latest}:
            now = self._live.latest.get(address)
            new = live_text.news(self._heard.pop(address, None), now)
            if now is not None:
                self._heard[address] = now
            if new is not None and address in self._live.turns:
                return views.ModelDelta(
                    time=datetime.now(UTC),
                    run_id=self._run_id,
                    address=address,
                    data=views.NewText(turn=new.turn, offset=new.offset, text=new.text),
                )
        return None


def _number(run_id: str, after: str | None) -> int:
    """Return the number of a cursor. Raises the refusal `invalid_body`, naming the text."""
    number = 0 if after is None else events.number_of(after)
    if number is None:
        raise unknown_cursor(after or "", run_id)
    return number
