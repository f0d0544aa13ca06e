"""The inbox: what all running runs ask, from the rows that they leave in Temporal's visibility.

Its stores cannot sort by deadline, so the runs are read by windows of their nearest deadline: overdue,
within a day, within a week, later, and none. What comes on one page is sorted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from abeyance import wire
from abeyance.client.listing import MAX_READ, OPEN_RUNS, Listing, Place, having, written
from abeyance.handle import InboxFilter
from abeyance.history import cursors
from abeyance.history.description import RunDescription

Ask: TypeAlias = Callable[[str], Awaitable[list[wire.InterruptView]]]
"""Asks a run for its open interrupts."""

_MOST_ASKED: Final = 5
"""How many runs are asked themselves for one page; then the page ends."""
_FAR: Final = datetime.max.replace(tzinfo=UTC)
_EDGES: Final = (timedelta(0), timedelta(days=1), timedelta(days=7))
_WINDOWS: Final = len(_EDGES) + 2
_STAR: Final = f"{wire.CAPABILITY} = '{wire.ANY_CAPABILITY}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """Where a reader stands: in which window, as of when, after which of a run's interrupts."""

    now: datetime
    window: int = 0
    place: Place | None = None
    after: tuple[datetime, str] | None = None

    @classmethod
    def read(cls, asked: Mapping[str, Any], cursor: str) -> _Mark:
        place = cursors.read(asked, cursor)
        try:
            after = place["after"]
            latest = datetime.fromisoformat(place["now"]).astimezone(UTC) + _EDGES[-1]
            return cls(
                now=latest - _EDGES[-1],
                window=int(place["window"]),
                place=Place.read(place["place"]),
                after=after and (datetime.fromisoformat(after[0]).astimezone(UTC), str(after[1])),
            )
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise cursors.unusable(cursor) from None

    def write(self, asked: Mapping[str, Any]) -> str:
        place = {
            "now": self.now.isoformat(),
            "window": self.window,
            "place": self.place and self.place.written,
            "after": self.after and [self.after[0].isoformat(), self.after[1]],
        }
        return cursors.write(asked, place)


class Inbox:
    """The inbox of a namespace. `ask` is for runs that ask more than their rows hold."""

    def __init__(self, listing: Listing, ask: Ask) -> None:
        self._listing = listing
        self._ask = ask

    async def _window(
        self, wanted: InboxFilter, query: str, mark: _Mark, page: _Page
    ) -> _Mark | None:
        """Fill the page from a window; a mark to go on from if the page is full before its end."""
        while True:
            before = mark.place
            if before is not None and mark.after is not None:
                # Only a part of that run was told.
                before = before.just_before
            left = page.limit - len(page.items)
            rows, is_end = await self._listing.open_rows(query, before, left)
            for row in rows:
                if page.is_full:
                    return mark
                place = Place.of(row)
                entries = await self._entries(wanted, await self._listing.described(row), page)
                page.read += 1
                after = mark.after if mark.place == place else None
                entries = [entry for entry in entries if after is None or _key(entry) > after]
                room = page.limit - len(page.items)
                page.items += entries[:room]
                rest = _key(entries[room - 1]) if len(entries) > room else None
                mark = _Mark(now=mark.now, window=mark.window, place=place, after=rest)
                if rest is not None:
                    return mark
            if is_end:
                return None
            if page.is_full:
                return mark

    async def _entries(
        self, wanted: InboxFilter, described: RunDescription, page: _Page
    ) -> list[wire.InterruptView]:
        view = described.degraded_view()
        if not _fits_run(wanted, view):
            return []
        entries = view.interrupts
        if (described.memo.get(wire.MEMO_SUMMARY) or {}).get("more"):
            page.asked += 1
            entries = await self._ask(view.run_id)
        return sorted((_short(entry) for entry in entries if _fits(wanted, entry)), key=_key)

    async def list(
        self, wanted: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[wire.InterruptView], str | None]:
        """At most `limit` open interrupts, sorted by deadline, and where to go on.

        A page may be short of `limit` and yet not be the last. Raises `invalid_body` for a cursor that
        is none of this list, and Unavailable.
        """
        wanted = wanted or InboxFilter()
        asked = _asked(wanted)
        mark = _Mark(now=datetime.now(UTC)) if cursor is None else _Mark.read(asked, cursor)
        page = _Page(limit=limit)
        for window, query in _queries(wanted, mark.now):
            if window < mark.window:
                continue
            if window > mark.window:
                mark = _Mark(now=mark.now, window=window)
            next_mark = await self._window(wanted, query, mark, page)
            if next_mark is not None:
                return page.sorted, next_mark.write(asked)
        return page.sorted, None


class _Page:
    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self.items: list[wire.InterruptView] = []
        self.read = 0
        self.asked = 0

    @property
    def is_full(self) -> bool:
        return len(self.items) >= self.limit or self.read >= MAX_READ or self.asked >= _MOST_ASKED

    @property
    def sorted(self) -> list[wire.InterruptView]:
        return sorted(self.items, key=_key)


def _short(entry: wire.InterruptView) -> wire.InterruptView:
    # As the rows have it, wherever it comes from.
    left_out = ("reason", "payload", "response_schema", "on_timeout")
    return entry.model_copy(update=dict.fromkeys(left_out))


def _key(entry: wire.InterruptView) -> tuple[datetime, str]:
    return entry.deadline or _FAR, entry.id


def _asked(wanted: InboxFilter) -> dict[str, Any]:
    """The filter as JSON, by which a list is told from another."""
    return {
        "capabilities": sorted(wanted.capabilities),
        "graph": wanted.graph,
        "conversation_id": wanted.conversation_id,
        "before": wanted.before and wanted.before.isoformat(),
    }


def _fits(wanted: InboxFilter, entry: wire.InterruptView) -> bool:
    """Whether the interrupt of a run that fits is one of these."""
    # What a question asks for that cannot be read here is not known, if its run asks for several.
    told = {*wanted.capabilities, wire.ANY_CAPABILITY} if entry.degraded else wanted.capabilities
    if wanted.capabilities and entry.requested_capability not in told:
        return False
    return wanted.before is None or (entry.deadline is not None and entry.deadline < wanted.before)


def _fits_run(wanted: InboxFilter, view: wire.RunView) -> bool:
    """Whether the run may ask for these."""
    return (
        view.ended_at is None
        and wanted.graph in (None, view.graph)
        and wanted.conversation_id in (None, view.conversation_id)
    )


def _queries(wanted: InboxFilter, now: datetime) -> Iterator[tuple[int, str]]:
    """The windows that may hold such interrupts, by their numbers, and what finds their runs."""
    conditions = [
        OPEN_RUNS,
        *having(wire.GRAPH, wanted.graph),
        *having(wire.CONVERSATION, wanted.conversation_id),
    ]
    either = [having(wire.CAPABILITY, name) for name in sorted(wanted.capabilities)]
    if either and all(either):
        # A run that asks for more than fits shows a star.
        told = [condition for one in either for condition in one]
        conditions.append(f"({' OR '.join([*told, _STAR])})")
    if wanted.before is not None:
        conditions.append(f"{wire.DEADLINE} < '{written(wanted.before)}'")
    edges = [written(now + edge) for edge in _EDGES]
    for number in range(_WINDOWS if wanted.before is None else _WINDOWS - 1):
        window = []
        if number == _WINDOWS - 1:
            window.append(f"{wire.DEADLINE} IS NULL")
        elif number > 0:
            window.append(f"{wire.DEADLINE} > '{edges[number - 1]}'")
        if number < len(edges):
            window.append(f"{wire.DEADLINE} <= '{edges[number]}'")
        yield number, " AND ".join([*conditions, *window])
