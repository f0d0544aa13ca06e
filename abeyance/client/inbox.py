"""The inbox: the open interrupts of all running runs, from the memos that Temporal lists.

Temporal's visibility cannot sort by deadline, so the runs are read by windows of their nearest deadline:
overdue, within an hour, within six, and so on, and none. Each page is sorted.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, TypeAlias

from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from abeyance import commands, names, views
from abeyance.client.listing import MAX_READ, OPEN_RUNS, Listing, Place, having, readable, written
from abeyance.core.policy import Principal
from abeyance.core.terms import Priority
from abeyance.filters import InboxFilter, Sort
from abeyance.history.description import RunDescription
from abeyance.orders import check_page
from abeyance.records import cursors

Entries: TypeAlias = list[views.InterruptView]
Ask: TypeAlias = Callable[[str], Awaitable[list[views.InterruptView]]]
"""Queries a run for its open interrupts."""

_MAX_QUERIED: Final = 5
"""How many runs are queried for one page; then the page ends."""
_BATCH: Final = 5_000
"""How many interrupts are sorted together by something else than their deadline."""
_SORTED_PAGE: Final = 1_000
_FAR: Final = datetime.max.replace(tzinfo=UTC)
_EDGES: Final = tuple(timedelta(hours=hours) for hours in (0, 1, 6, 24, 72, 168))
_MANY: Final = 10
"""A window with one in so many of the newest runs is read as they come."""
_STAR: Final = f"{names.CAPABILITY} = '{names.ANY_CAPABILITY}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The position of a cursor: its window, as of when, and after which of a run's interrupts."""

    now: datetime
    window: int = 0
    place: Place | None = None
    after: tuple[datetime, str] | None = None

    @classmethod
    def read(cls, criteria: Mapping[str, Any], cursor: str) -> _Mark:
        place = cursors.read(criteria, cursor)
        try:
            after = place["after"]
            latest = datetime.fromisoformat(place["now"]).astimezone(UTC) + _EDGES[-1]
            return cls(
                now=latest - _EDGES[-1],
                window=max(0, int(place["window"])),
                place=Place.read(place["place"]),
                after=after and (datetime.fromisoformat(after[0]).astimezone(UTC), str(after[1])),
            )
        except (ArithmeticError, LookupError, TypeError, ValueError):
            raise cursors.unusable(cursor) from None

    def write(self, criteria: Mapping[str, Any]) -> str:
        place = {
            "now": self.now.isoformat(),
            "window": self.window,
            "place": self.place and self.place.written,
            "after": self.after and [self.after[0].isoformat(), self.after[1]],
        }
        return cursors.write(criteria, place)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The runs whose nearest deadline is after `after`, and not after `until`.

    If both are None, they are those without one.
    """

    number: int
    after: datetime | None
    until: datetime | None

    @property
    def is_of_none(self) -> bool:
        """Whether these are the runs without a deadline."""
        return self.after is None and self.until is None

    @property
    def condition(self) -> str:
        """What a query says to find them."""
        if self.is_of_none:
            return f"{names.DEADLINE} IS NULL"
        bounds = (("> ", self.after), ("<= ", self.until))
        said = [f"{names.DEADLINE} {how}'{written(edge)}'" for how, edge in bounds if edge]
        return " AND ".join(said)

    def has(self, row: WorkflowExecutionInfo) -> bool:
        """Return whether a run is one of them."""
        found = row.search_attributes.indexed_fields.get(names.DEADLINE)
        if found is None or self.is_of_none:
            return found is None and self.is_of_none
        deadline = datetime.fromisoformat(json.loads(found.data))
        is_after = self.after is None or deadline > self.after
        return is_after and (self.until is None or deadline <= self.until)


def _windows(now: datetime) -> list[_Window]:
    edges = [None, *(now + edge for edge in _EDGES), None, None]
    return [
        _Window(number=number, after=after, until=until)
        for number, (after, until) in enumerate(pairwise(edges))
    ]


class _Rows:
    """The runs that a query finds, by windows.

    A store looks at all runs of a window to find the newest of them. So the newest of all are read first:
    if they are all, or many of them are of the window, the rest need not be looked at.
    """

    def __init__(self, listing: Listing, query: str, limit: int) -> None:
        self._listing = listing
        self._query = query
        self._limit = limit
        self._newest: tuple[list[WorkflowExecutionInfo], bool] | None = None

    async def of(
        self, window: _Window, before: Place | None, limit: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        """Return the next runs of a window, newest first, about `limit`, and whether they are all."""
        rows, is_end = await self._after(before, limit)
        within = [row for row in rows if window.has(row)]
        if is_end or len(within) * _MANY >= len(rows):
            return within, is_end
        return await self._listing.open_rows(f"{self._query} AND {window.condition}", before, limit)

    async def _after(
        self, before: Place | None, limit: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        if before is not None:
            return await self._listing.open_rows(self._query, before, limit)
        # Every window begins with the same.
        if self._newest is None:
            self._newest = await self._listing.open_rows(self._query, None, self._limit)
        return self._newest


class Inbox:
    """The inbox of a namespace. `ask` queries a run that has more open interrupts than its memo holds.

    `batch` is how many interrupts are sorted together by something else than their deadline.
    """

    def __init__(self, listing: Listing, ask: Ask, *, batch: int = _BATCH) -> None:
        self._listing = listing
        self._ask = ask
        self._batch = batch

    async def _window(
        self, filters: InboxFilter, window: _Window, found: _Rows, mark: _Mark, page: _Page
    ) -> _Mark | None:
        """Fill the page from a window; return the mark to continue from, None at its end."""
        while True:
            before = mark.place
            if before is not None and mark.after is not None:
                # The page before has only a part of that run.
                before = before.just_before
            left = page.limit - len(page.items)
            rows, is_end = await found.of(window, before, left)
            for row in rows:
                if page.is_full:
                    return mark
                place = Place.of(row)
                entries = await self._entries(filters, await self._listing.described(row), page)
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
        self, filters: InboxFilter, described: RunDescription, page: _Page
    ) -> list[views.InterruptView]:
        view = described.degraded_view()
        if not _fits_run(filters, view):
            return []
        entries = view.interrupts
        is_asked = bool(described.summary.get("more"))
        if is_asked:
            page.queried += 1
            entries = await self._ask(view.run_id)
        fitting = (entry for entry in entries if _fits(filters, entry))
        return sorted((_short(entry, is_asked=is_asked) for entry in fitting), key=_key)

    async def list(
        self, filters: InboxFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[views.InterruptView], str | None]:
        """Return at most `limit` open interrupts, sorted by deadline, and the cursor of the next page.

        A page may be shorter than `limit` and not be the last. Raises `invalid_body` for a cursor of
        another list, and Unavailable.
        """
        filters = filters or InboxFilter()
        check_page(commands.InboxPage, filters, cursor=cursor, limit=limit)
        if filters.sort != "deadline":
            return await self._sorted(filters, cursor=cursor, limit=limit)
        criteria = _criteria(filters)
        mark = _Mark(now=datetime.now(UTC)) if cursor is None else _Mark.read(criteria, cursor)
        page = _Page(limit=limit)
        found = _Rows(self._listing, _query(filters), limit)
        for window in _windows(mark.now)[mark.window :]:
            if window.number > mark.window:
                mark = _Mark(now=mark.now, window=window.number)
            next_mark = await self._window(filters, window, found, mark, page)
            if next_mark is not None:
                return page.sorted, next_mark.write(criteria)
        return page.sorted, None

    async def _sorted(
        self, filters: InboxFilter, *, cursor: str | None, limit: int
    ) -> tuple[Entries, str | None]:
        """Sort what Temporal lists by deadline only: all of it, or one batch after another."""
        criteria = _criteria(filters)
        start, first = (None, 0) if cursor is None else _in_batch(criteria, cursor)
        by_deadline = replace(filters, sort="deadline")
        found: Entries = []
        following = start
        while (room := self._batch - len(found)) > 0:
            size = min(room, _SORTED_PAGE)
            page, following = await self.list(by_deadline, cursor=following, limit=size)
            found += page
            if following is None:
                break
        found.sort(key=_ORDERS[filters.sort])
        end = first + limit
        place = (start, end) if end < len(found) else (following, 0)
        next_cursor = None if place == (None, 0) else cursors.write(criteria, {"in_batch": place})
        return found[first:end], next_cursor


def _in_batch(criteria: Mapping[str, Any], cursor: str) -> tuple[str | None, int]:
    """Return the cursor at which a batch begins, and how many of its interrupts were returned."""
    try:
        start, first = cursors.read(criteria, cursor)["in_batch"]
        return (None if start is None else str(start)), max(0, int(first))
    except (LookupError, TypeError, ValueError):
        raise cursors.unusable(cursor) from None


@dataclass(slots=True, kw_only=True)
class _Page:
    limit: int
    items: Entries = field(default_factory=list)
    read: int = 0
    queried: int = 0

    @property
    def is_full(self) -> bool:
        return (
            len(self.items) >= self.limit or self.read >= MAX_READ or self.queried >= _MAX_QUERIED
        )

    @property
    def sorted(self) -> list[views.InterruptView]:
        return sorted(self.items, key=_key)


def _short(entry: views.InterruptView, *, is_asked: bool) -> views.InterruptView:
    # The same fields, whether they come from the memo or from a query.
    left_out = ("reason", "payload", "response_schema", "on_timeout", "answered_at")
    also = ("hold", "decisions", "calendar")
    empty: dict[str, Any] = {"votes": [], "reminders": [], "warnings": [], "abridged": True}
    # A memo that has all open interrupts lacks nothing of what the inbox shows.
    is_degraded = entry.degraded and (is_asked or entry.kind == views.UNREADABLE)
    left = {**dict.fromkeys((*left_out, *also)), **empty, "degraded": is_degraded}
    return entry.model_copy(update=left)


def _key(entry: views.InterruptView) -> tuple[datetime, str]:
    return entry.deadline or _FAR, entry.id


_PRIORITIES: Final[Mapping[Priority, int]] = {"high": 0, "normal": 1, "low": 2}
_ORDERS: Final[Mapping[Sort, Callable[[views.InterruptView], Any]]] = {
    "priority": lambda entry: (_PRIORITIES[entry.priority], *_key(entry)),
    "risk": lambda entry: (-(entry.risk or 0), *_key(entry)),
    "age": lambda entry: (entry.created_at, entry.id),
}


def _criteria(filters: InboxFilter) -> dict[str, Any]:
    """The filter as JSON: a cursor is valid only with the same."""
    mine = filters.mine
    of_people = {
        "assignee": filters.assignee,
        "mine": mine and [mine.subject, *sorted(mine.groups)],
        "priority": filters.priority,
        "min_risk": filters.min_risk,
        "sort": None if filters.sort == "deadline" else filters.sort,
    }
    return {
        **{name: value for name, value in of_people.items() if value is not None},
        "status": filters.status,
        "capabilities": sorted(filters.capabilities),
        "graph": filters.graph,
        "conversation_id": filters.conversation_id,
        "before": filters.before and filters.before.isoformat(),
        "reads": filters.reads.labels,
    }


def _fits(filters: InboxFilter, entry: views.InterruptView) -> bool:
    """Return whether an interrupt passes the filters, in a run that does."""
    if entry.status != filters.status:
        return False
    # The capability of an unreadable interrupt is unknown if its run asks for several.
    accepted = filters.capabilities
    if entry.kind == views.UNREADABLE:
        accepted |= {names.ANY_CAPABILITY}
    if filters.capabilities and entry.requested_capability not in accepted:
        return False
    if not _is_for(filters, entry):
        return False
    return filters.before is None or (
        entry.deadline is not None and entry.deadline < filters.before
    )


def _is_for(filters: InboxFilter, entry: views.InterruptView) -> bool:
    """Return whether an interrupt is for the people of the filters, and as urgent as these say."""
    if filters.mine is not None and not _is_mine(filters.mine, entry):
        return False
    return (
        filters.assignee in (None, *entry.assignees)
        and filters.priority in (None, entry.priority)
        and (filters.min_risk is None or (entry.risk or 0) >= filters.min_risk)
    )


def _is_mine(principal: Principal, entry: views.InterruptView) -> bool:
    now = datetime.now(UTC)
    claim = entry.claim
    escalated = (name for each in entry.escalations if each.at <= now for name in each.to)
    of = () if entry.quorum is None else entry.quorum.of
    return (
        claim is not None and now < claim.until and principal.subject in claim.people
    ) or principal.is_among((*entry.assignees, *escalated, *of))


def _fits_run(filters: InboxFilter, view: views.RunView) -> bool:
    """Return whether a run passes the filters."""
    return (
        view.ended_at is None
        and filters.graph in (None, view.graph)
        and filters.conversation_id in (None, view.conversation_id)
        and filters.reads.may_read(view.labels)
    )


def _query(filters: InboxFilter) -> str:
    """Return the query that finds the runs that may have such interrupts."""
    conditions = [
        OPEN_RUNS,
        *having(names.GRAPH, filters.graph),
        *having(names.CONVERSATION, filters.conversation_id),
        *readable(filters.reads),
    ]
    choices = [having(names.CAPABILITY, name) for name in sorted(filters.capabilities)]
    if choices and all(choices):
        # A run with more capabilities than fit into the search attribute has a star there.
        alternatives = [condition for one in choices for condition in one]
        conditions.append(f"({' OR '.join([*alternatives, _STAR])})")
    if filters.before is not None:
        conditions.append(f"{names.DEADLINE} < '{written(filters.before)}'")
    return " AND ".join(conditions)
