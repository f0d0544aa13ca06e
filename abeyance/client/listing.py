"""Lists of runs, from Temporal's visibility: no run is asked, and no worker has to be up.

Visibility finds runs by search attributes, a moment late. Its stores differ: those over SQL list open
runs first and cannot sort otherwise, compare lists of words without regard to case, and some trip over
quotes and backslashes. So a query only narrows down: what it finds is held against the memo, and put in
order here, a span of time after the other, newest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.errors import Unavailable
from abeyance.handle import RunFilter
from abeyance.history import cursors
from abeyance.history.description import RunDescription, read
from abeyance.temporal.retry import retry_until

MAX_READ: Final = 1_000
"""How many runs are looked at for one page; then the page ends, however much is on it."""

_RPC: Final = timedelta(seconds=5)
_ROWS: Final = 100
_LARGEST_PAGE: Final = 1_000
_BESIDE: Final = 20
"""Rows that are read beyond those that are wanted: the last ones may not be in order."""
_FIRST_SPAN: Final = timedelta(minutes=1)
_LONGEST_SPAN: Final = timedelta(days=36_500)
_SHORTEST_SPAN: Final = timedelta(milliseconds=2)
_ROUNDED: Final = timedelta(milliseconds=1)
"""Stores keep times less exactly than they tell them."""
_ROUNDED_MICROSECONDS: Final = _ROUNDED // timedelta(microseconds=1)
_LATEST_START: Final = 2**52
"""In microseconds: in more than a hundred years."""
RUNS: Final = f"WorkflowType = '{wire.WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
_NOT_LISTED: Final = frozenset({wire.MEMO_CLOSING})
"""What may be large, and kept in storage, of which no list shows anything."""
OPEN_RUNS: Final = f"WorkflowType = '{wire.WORKFLOW}' AND CloseTime IS NULL"

# What an operator ended keeps the status that it had before.
_ENDED_OTHERWISE: Final = {
    "failed": "ExecutionStatus IN ('Failed', 'TimedOut')",
    "cancelled": "ExecutionStatus IN ('Canceled', 'Terminated')",
}


def _asked(wanted: RunFilter) -> dict[str, Any]:
    """The filter as JSON, by which a list is told from another."""
    return {**asdict(wanted), "statuses": sorted(wanted.statuses), "labels": sorted(wanted.labels)}


def query_of(wanted: RunFilter) -> str:
    """What narrows the runs down."""
    conditions = [RUNS]
    if wanted.statuses:
        either = sorted(map(_having_status, wanted.statuses))
        conditions.append(f"({' OR '.join(either)})")
    conditions += having(wire.GRAPH, wanted.graph)
    conditions += having(wire.CONVERSATION, wanted.conversation_id)
    for label in wanted.labels:
        conditions += having(wire.LABELS, label)
    return " AND ".join(conditions)


def _fits(wanted: RunFilter, view: wire.RunView) -> bool:
    """Whether the run is one of these."""
    return (
        (not wanted.statuses or view.status in wanted.statuses)
        and wanted.graph in (None, view.graph)
        and wanted.conversation_id in (None, view.conversation_id)
        and {f"{name}={value}" for name, value in view.labels.items()}.issuperset(wanted.labels)
    )


def having(attribute: str, value: str | None) -> list[str]:
    """The condition that a search attribute is, or holds, a value; none where no store could be asked."""
    if value is None or not _can_be_asked(value):
        return []
    quoted = value.replace("'", "''")
    return [f"{attribute} = '{quoted}'"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A place in a list: that of an execution, by its start in microseconds."""

    start: int
    execution: str

    @classmethod
    def of(cls, row: WorkflowExecutionInfo) -> Place:
        """The place of a row."""
        return cls(start=row.start_time.ToMicroseconds(), execution=row.execution.run_id)

    @classmethod
    def read(cls, told: Any) -> Place | None:
        """A place as it is written. Raises ValueError for what is none."""
        match told:
            case None:
                return None
            case [int(start), str(execution)] if 0 <= start < _LATEST_START:
                return cls(start=start, execution=execution)
            case _:
                raise ValueError("no place in a list")

    @property
    def written(self) -> list[Any]:
        """The place as JSON."""
        return [self.start, self.execution]

    @property
    def just_before(self) -> Place:
        """A place from which the next one is this one."""
        # No character of an execution's id sorts after it.
        return Place(start=self.start, execution=f"{self.execution}~")


class Listing:
    """The lists of a deployment: of what is in the namespace, they have the runs of `task_queue` alone.

    `patience` is how many seconds a call is tried.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience

    async def runs(
        self, wanted: RunFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[wire.RunView], str | None]:
        """At most `limit` runs, newest first, as far as memo and status tell, and where to go on.

        A page may be short of `limit` and yet not be the last. Raises `invalid_body` for a cursor that
        is none of this list, and Unavailable.
        """
        before = None if cursor is None else _place(wanted, cursor)
        items: list[wire.RunView] = []
        read = 0
        while True:
            rows, is_end = await self.rows(query_of(wanted), before, limit - len(items))
            for number, row in enumerate(rows, 1):
                before = Place.of(row)
                read += 1
                view = listed_view(await self.described(row))
                if _fits(wanted, view):
                    items.append(view)
                if len(items) == limit or read == MAX_READ:
                    is_last = is_end and number == len(rows)
                    return items, None if is_last else _bookmark(wanted, before)
            if is_end:
                return items, None

    async def described(self, row: WorkflowExecutionInfo) -> RunDescription:
        """A row, to be read like any run that is known from outside."""
        raw = DescribeWorkflowExecutionResponse(workflow_execution_info=row)
        return await read(self._temporal, raw, beside=_NOT_LISTED)

    async def all(self, query: str) -> list[WorkflowExecutionInfo]:
        """All rows of a query, in no order."""
        rows: list[WorkflowExecutionInfo] = []
        token = b""
        while True:
            page, token = await self._page(query, _ROWS, token)
            rows += page
            if not token:
                return rows

    async def count(self, query: str) -> int:
        """How many rows a query has, as of a moment ago."""
        return await self._count(self._with_queue("=", query))

    async def count_of_others(self) -> int:
        """How many runs of other deployments could be seen in the namespace, as of a moment ago."""
        return await self._count(self._with_queue("!=", RUNS))

    async def _count(self, query: str) -> int:
        request = CountWorkflowExecutionsRequest(namespace=self._temporal.namespace, query=query)
        service = self._temporal.workflow_service
        ask = partial(service.count_workflow_executions, request, timeout=_RPC)
        return int((await self._patiently(ask)).count)

    async def open_rows(
        self, query: str, before: Place | None, wanted: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        """The same as `rows`, in one call: for a query that finds open runs only.

        Those all stores list by their start, newest first, if not to the moment.
        """
        upper = _upper(before)
        size = min(wanted + _BESIDE, _LARGEST_PAGE)
        rows: list[WorkflowExecutionInfo] = []
        token = b""
        while True:
            page, token = await self._page(_within(query, None, upper), size, token)
            rows += page
            if not _is_newest_first(rows):
                return await self.rows(query, before, wanted)
            # Of those that started beside the last one, others may be on the next page.
            known = _well_before(rows[-1], rows) if token and rows else rows
            found = _in_order(known, before)
            if found or not token:
                return found, not token

    async def rows(
        self, query: str, before: Place | None, wanted: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        """The next rows of a query, newest first, about as many as wanted; and whether they are all."""
        upper = _upper(before)
        while True:
            span = await self._span(query, upper, wanted)
            lower = None if span is None else upper - span
            found = _in_order(await self.all(_within(query, lower, upper)), before)
            if found or lower is None:
                return found, lower is None
            wanted *= 4

    async def _span(self, query: str, upper: datetime, wanted: int) -> timedelta | None:
        """How far to look back for more than `wanted` rows, but not too many; None is to the start."""
        most = 4 * wanted + _ROWS
        if await self.count(_within(query, None, upper)) <= most:
            return None
        # No run starts in the future: what lies between is there for clocks that differ.
        ahead = max(upper - datetime.now(UTC), timedelta(0))
        low, few = timedelta(0), 0
        reach = timedelta(0) if ahead else _FIRST_SPAN
        while (many := await self.count(_within(query, upper - ahead - reach, upper))) <= wanted:
            low, few, reach = ahead + reach, many, max(reach * 4, _FIRST_SPAN)
            if reach > _LONGEST_SPAN:
                return None
        high = ahead + reach
        is_even = True
        while many > most and high - low > _SHORTEST_SPAN:
            # Where as many would be as are looked for, if they came evenly; else in the middle.
            share = ((wanted + most) / 2 - few) / (many - few) if is_even else 0.5
            middle = low + (high - low) * share
            found = await self.count(_within(query, upper - middle, upper))
            if found > wanted:
                high, many = middle, found
            else:
                low, few = middle, found
            is_even = not is_even
        return high

    async def _page(
        self, query: str, size: int, token: bytes
    ) -> tuple[list[WorkflowExecutionInfo], bytes]:
        request = ListWorkflowExecutionsRequest(
            namespace=self._temporal.namespace,
            query=self._with_queue("=", query),
            page_size=size,
            next_page_token=token,
        )
        service = self._temporal.workflow_service
        page = await self._patiently(
            partial(service.list_workflow_executions, request, timeout=_RPC)
        )
        # Not left to the query, for stores differ in what they take to be equal.
        rows = [row for row in page.executions if row.task_queue == self._task_queue]
        return rows, page.next_page_token

    def _with_queue(self, how: str, query: str) -> str:
        quoted = self._task_queue.replace("'", "''")
        return f"TaskQueue {how} '{quoted}' AND {query}"

    async def _patiently(self, ask: Any) -> Any:
        try:
            return await retry_until("", ask, seconds=self._patience)
        except Unavailable as error:
            raise Unavailable(
                f"Temporal did not list any runs within {self._patience:g} s; try again",
                retry_after=error.retry_after,
            ) from error


def _upper(before: Place | None) -> datetime:
    return datetime.now(UTC) + timedelta(days=1) if before is None else _moment(before)


def _in_order(
    rows: Iterable[WorkflowExecutionInfo], before: Place | None
) -> list[WorkflowExecutionInfo]:
    found = {Place.of(row): row for row in rows}
    places = sorted((p for p in found if before is None or p < before), reverse=True)
    return [found[place] for place in places]


def _is_newest_first(rows: list[WorkflowExecutionInfo]) -> bool:
    starts = [Place.of(row).start for row in rows]
    return all(later <= sooner + _ROUNDED_MICROSECONDS for sooner, later in pairwise(starts))


def _well_before(
    last: WorkflowExecutionInfo, rows: Iterable[WorkflowExecutionInfo]
) -> list[WorkflowExecutionInfo]:
    edge = Place.of(last).start + _ROUNDED_MICROSECONDS
    return [row for row in rows if Place.of(row).start > edge]


def listed_view(described: RunDescription, *, unreadable: str | None = None) -> wire.RunView:
    """A run as a list shows it; `unreadable` is why no more is known of it."""
    view = described.degraded_view(unreadable=unreadable)
    if described.is_running:
        return view
    status = described.ended_as()
    return view.model_copy(update={"status": status, "outcome": status})


def _having_status(status: str) -> str:
    named = f"{wire.STATUS} = '{status}'"
    if status in _ENDED_OTHERWISE:
        return f"({named} OR {_ENDED_OTHERWISE[status]})"
    return named


def _can_be_asked(value: str) -> bool:
    return not {'"', "\\"} & {*value} and any(map(str.isalnum, value))


def _within(query: str, lower: datetime | None, upper: datetime) -> str:
    spanned = f"{query} AND StartTime <= '{written(upper + _ROUNDED)}'"
    return spanned if lower is None else f"{spanned} AND StartTime >= '{written(lower)}'"


def written(moment: datetime) -> str:
    """A time as a query has it."""
    # Not strftime, which writes the first thousand years with fewer digits.
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _moment(place: Place) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=place.start)


def _bookmark(wanted: RunFilter, place: Place) -> str:
    return cursors.write(_asked(wanted), {"place": place.written})


def _place(wanted: RunFilter, cursor: str) -> Place | None:
    try:
        return Place.read(cursors.read(_asked(wanted), cursor)["place"])
    except (LookupError, ValueError):
        raise cursors.unusable(cursor) from None
