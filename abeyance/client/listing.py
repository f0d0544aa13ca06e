"""Lists of runs, from Temporal's visibility: no run is queried, and no worker has to be up.

Visibility finds runs by search attributes, a moment late. Its stores differ: those over SQL list open
runs first and cannot sort otherwise, compare keyword lists case-insensitively, and some fail on quotes
and backslashes. So a query only narrows the list down: its rows are filtered again by the memo and
sorted here, one span of time after the other, newest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
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
from temporalio.service import RPCError

from abeyance import names, views
from abeyance.core.policy import ReadRights
from abeyance.errors import AbeyanceError, Unreadable
from abeyance.filters import RunFilter
from abeyance.history.description import RPC, RunDescription, read
from abeyance.history.hindrance import hindered
from abeyance.records import cursors
from abeyance.temporal.retry import retry_until

MAX_READ: Final = 1_000
"""How many rows are read for one page; then the page ends, however short it is."""

_ROWS: Final = 100
_LARGEST_PAGE: Final = 1_000
_BESIDE: Final = 20
"""Rows that are read beyond the limit: the last ones may not be in order."""
_FIRST_SPAN: Final = timedelta(minutes=1)
_LONGEST_SPAN: Final = timedelta(days=36_500)
_SHORTEST_SPAN: Final = timedelta(milliseconds=2)
_ROUNDED: Final = timedelta(milliseconds=1)
"""Stores round times that they return exactly."""
_ROUNDED_MICROSECONDS: Final = _ROUNDED // timedelta(microseconds=1)
_LATEST_START: Final = 2**52
"""In microseconds: in more than a hundred years."""
RUNS: Final = f"WorkflowType = '{names.WORKFLOW}' AND ExecutionStatus != 'ContinuedAsNew'"
_NOT_LISTED: Final = frozenset({names.MEMO_CLOSING})
"""Memo keys that may be large and in external storage, and that no list shows."""
_RETRIED: Final = frozenset(f'"{status}"'.encode() for status in ("failed", "halted", "cancelled"))
"""The statuses that a retry goes on after, as search attributes have them."""
OPEN_RUNS: Final = f"WorkflowType = '{names.WORKFLOW}' AND CloseTime IS NULL"
FAILING: Final = f"CloseTime IS NULL AND {names.REPORTED_PROBLEMS} IS NOT NULL"
"""Workflows whose task fails, conversations and delegations too: these have no activities, but tasks."""

# A run that an operator ended keeps the status that it had before.
_ENDED_OTHERWISE: Final = {
    "failed": "ExecutionStatus IN ('Failed', 'TimedOut')",
    "cancelled": "ExecutionStatus IN ('Canceled', 'Terminated')",
}


def _criteria(filters: RunFilter) -> dict[str, Any]:
    """The filter as JSON: a cursor is valid only with the same."""
    return {
        **asdict(filters),
        "statuses": sorted(filters.statuses),
        "labels": sorted(filters.labels),
        "reads": filters.reads.labels,
    }


def query_of(filters: RunFilter, *, knows_problems: bool = True) -> str:
    """Return the visibility query that narrows the runs down.

    `knows_problems`: the server has the attribute by which runs are found whose workflow task fails.
    """
    conditions = [RUNS]
    if filters.statuses:
        either = sorted(map(_having_status, filters.statuses))
        conditions.append(f"({' OR '.join(either)})")
    conditions += having(names.GRAPH, filters.graph)
    conditions += having(names.CONVERSATION, filters.conversation_id)
    for label in filters.labels:
        conditions += having(names.LABELS, label)
    conditions += readable(filters.reads)
    if filters.blocked and knows_problems:
        # One that no worker can read or replay cannot say so itself.
        conditions.append(f"({names.BLOCKED} = true OR {names.REPORTED_PROBLEMS} IS NOT NULL)")
    elif filters.blocked:
        conditions.append(f"{names.BLOCKED} = true")
    return " AND ".join(conditions)


def _fits(filters: RunFilter, view: views.RunView) -> bool:
    """Return whether a run passes the filters."""
    return (
        (not filters.statuses or view.status in filters.statuses)
        and filters.graph in (None, view.graph)
        and filters.conversation_id in (None, view.conversation_id)
        and filters.blocked in (None, bool(view.blocked))
        and {f"{name}={value}" for name, value in view.labels.items()}.issuperset(filters.labels)
        and filters.reads.may_read(view.labels)
    )


def having(attribute: str, value: str | None) -> list[str]:
    """The condition that a search attribute is, or contains, a value; none if some store fails on it."""
    if value is None or {'"', "\\"} & {*value} or not any(map(str.isalnum, value)):
        return []
    quoted = value.replace("'", "''")
    return [f"{attribute} = '{quoted}'"]


def among(run_ids: Iterable[str], how: str = "IN") -> str:
    """The condition that a run has one of these ids."""
    # No character of a run's id has to be quoted.
    return f"WorkflowId {how} (" + ", ".join(f"'{run_id}'" for run_id in sorted(run_ids)) + ")"


def readable(reads: ReadRights) -> list[str]:
    """The conditions that narrow runs down to those that a caller may see.

    Stores differ in what they compare as equal, and some fail on some values. So each row still has to
    pass `reads.may_read`, with the labels of its memo.
    """
    conditions = []
    for name, values in reads.labels:
        choices = [having(names.LABELS, f"{name}={value}") for value in values]
        if all(choices):
            either = " OR ".join(condition for choice in choices for condition in choice)
            conditions.append(f"({either})")
    return conditions


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A position in a list: that of an execution, by its start in microseconds."""

    start: int
    execution: str

    @classmethod
    def of(cls, row: WorkflowExecutionInfo) -> Place:
        return cls(start=row.start_time.ToMicroseconds(), execution=row.execution.run_id)

    @classmethod
    def read(cls, value: Any) -> Place | None:
        """Parse a place from JSON. Raises ValueError if it is none."""
        match value:
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
        """The place directly before this one."""
        # No character of an execution's id sorts after it.
        return Place(start=self.start, execution=f"{self.execution}~")


class Listing:
    """Lists of the runs of `task_queue`, which are those of one deployment.

    `patience` is how many seconds a call is retried.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience

    async def runs(
        self, filters: RunFilter, *, cursor: str | None, limit: int
    ) -> tuple[list[views.RunView], str | None]:
        """Return at most `limit` runs, newest first, by memo and status, and the cursor of the next page.

        A page may be shorter than `limit` and not be the last. Raises `invalid_body` for a cursor of
        another list, and Unavailable.
        """
        before = None if cursor is None else _place(filters, cursor)
        items: list[views.RunView] = []
        read = 0
        query = query_of(
            filters, knows_problems=bool(filters.blocked) and await self._knows_problems()
        )
        while True:
            rows, is_end = await self.rows(query, before, limit - len(items))
            retried = await self._retried_of(rows)
            for number, row in enumerate(rows, 1):
                before = Place.of(row)
                read += 1
                described = await self.described(row)
                view = await hindered(self._temporal, described, listed_view(described))
                if _fits(filters, view) and row.execution.run_id not in retried:
                    items.append(view)
                if len(items) == limit or read == MAX_READ:
                    is_last = is_end and number == len(rows)
                    return items, None if is_last else _cursor(filters, before)
            if is_end:
                return items, None

    async def _knows_problems(self) -> bool:
        # Temporal before 1.30 has no such attribute.
        with suppress(AbeyanceError, RPCError):
            await self.count(FAILING)
            return True
        return False

    async def _retried_of(self, rows: Iterable[WorkflowExecutionInfo]) -> set[str]:
        """The executions after which a retry goes on: the run is listed once, as it is now."""
        ids = sorted({row.execution.workflow_id for row in rows if _may_be_retried(row)})
        retried: set[str] = set()
        for first in range(0, len(ids), _ROWS):
            found = await self.all(f"{RUNS} AND {among(ids[first : first + _ROWS])}")
            found.sort(key=lambda row: (row.execution.workflow_id, Place.of(row)))
            for row, later in pairwise(found):
                if row.execution.workflow_id != later.execution.workflow_id:
                    continue
                if (await self.described(later)).start.get("retry_keys"):
                    retried.add(row.execution.run_id)
        return retried

    async def described(self, row: WorkflowExecutionInfo) -> RunDescription:
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
        """How many runs of other deployments the namespace shows, as of a moment ago."""
        return await self._count(self._with_queue("!=", RUNS))

    async def _count(self, query: str) -> int:
        request = CountWorkflowExecutionsRequest(namespace=self._temporal.namespace, query=query)
        service = self._temporal.workflow_service
        ask = partial(service.count_workflow_executions, request, timeout=RPC)
        return int((await self._retried(ask)).count)

    async def open_rows(
        self, query: str, before: Place | None, limit: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        """Read as `rows`, in one call: for a query that finds open runs only.

        All stores list open runs newest first, to the second or so.
        """
        upper = _upper(before)
        size = min(limit + _BESIDE, _LARGEST_PAGE)
        rows: list[WorkflowExecutionInfo] = []
        token = b""
        while True:
            page, token = await self._page(_within(query, None, upper), size, token)
            rows += page
            if not _is_newest_first(rows):
                return await self.rows(query, before, limit)
            # Runs that started with the last one may be on the next page.
            complete = _well_before(rows[-1], rows) if token and rows else rows
            ordered = _in_order(complete, before)
            if ordered or not token:
                return ordered, not token

    async def rows(
        self, query: str, before: Place | None, limit: int
    ) -> tuple[list[WorkflowExecutionInfo], bool]:
        """Return the next rows of a query, newest first, about `limit`, and whether they are all."""
        upper = _upper(before)
        while True:
            span = await self._span(query, upper, limit)
            lower = None if span is None else upper - span
            ordered = _in_order(await self.all(_within(query, lower, upper)), before)
            if ordered or lower is None:
                return ordered, lower is None
            limit *= 4

    async def _span(self, query: str, upper: datetime, limit: int) -> timedelta | None:
        """How far to look back for more than `limit` rows, but not many more; None is to the start."""
        most = 4 * limit + _ROWS
        if await self.count(_within(query, None, upper)) <= most:
            return None
        # No run starts in the future; the time ahead is there for clocks that differ.
        ahead = max(upper - datetime.now(UTC), timedelta(0))
        low, few = timedelta(0), 0
        reach = timedelta(0) if ahead else _FIRST_SPAN
        while (many := await self.count(_within(query, upper - ahead - reach, upper))) <= limit:
            low, few, reach = ahead + reach, many, max(reach * 4, _FIRST_SPAN)
            if reach > _LONGEST_SPAN:
                return None
        high = ahead + reach
        is_even = True
        while many > most and high - low > _SHORTEST_SPAN:
            # Interpolate as if runs started evenly; every other time bisect.
            share = ((limit + most) / 2 - few) / (many - few) if is_even else 0.5
            middle = low + (high - low) * share
            count = await self.count(_within(query, upper - middle, upper))
            if count > limit:
                high, many = middle, count
            else:
                low, few = middle, count
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
        page = await self._retried(partial(service.list_workflow_executions, request, timeout=RPC))
        # The query is not enough: stores differ in what they compare as equal.
        rows = [row for row in page.executions if row.task_queue == self._task_queue]
        return rows, page.next_page_token

    def _with_queue(self, how: str, query: str) -> str:
        quoted = self._task_queue.replace("'", "''")
        return f"TaskQueue {how} '{quoted}' AND {query}"

    async def _retried(self, ask: Any) -> Any:
        return await retry_until("Temporal's list of runs", ask, seconds=self._patience)


def _upper(before: Place | None) -> datetime:
    if before is None:
        return datetime.now(UTC) + timedelta(days=1)
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=before.start)


def _in_order(
    rows: Iterable[WorkflowExecutionInfo], before: Place | None
) -> list[WorkflowExecutionInfo]:
    by_place = {Place.of(row): row for row in rows}
    places = sorted((p for p in by_place if before is None or p < before), reverse=True)
    return [by_place[place] for place in places]


def _is_newest_first(rows: list[WorkflowExecutionInfo]) -> bool:
    starts = [Place.of(row).start for row in rows]
    return all(later <= sooner + _ROUNDED_MICROSECONDS for sooner, later in pairwise(starts))


def _well_before(
    last: WorkflowExecutionInfo, rows: Iterable[WorkflowExecutionInfo]
) -> list[WorkflowExecutionInfo]:
    edge = Place.of(last).start + _ROUNDED_MICROSECONDS
    return [row for row in rows if Place.of(row).start > edge]


def listed_view(
    described: RunDescription, *, unreadable: Unreadable | None = None
) -> views.RunView:
    """The view of a run in a list; `unreadable` is why it shows no more."""
    view = described.degraded_view(unreadable=unreadable)
    if described.is_running:
        return view
    status = described.ended_as()
    return view.model_copy(update={"status": status, "outcome": status})


def _having_status(status: str) -> str:
    named = f"{names.STATUS} = '{status}'"
    if status in _ENDED_OTHERWISE:
        return f"({named} OR {_ENDED_OTHERWISE[status]})"
    return named


def _may_be_retried(row: WorkflowExecutionInfo) -> bool:
    status = row.search_attributes.indexed_fields.get(names.STATUS)
    return status is not None and status.data in _RETRIED


def _within(query: str, lower: datetime | None, upper: datetime) -> str:
    spanned = f"{query} AND StartTime <= '{written(upper + _ROUNDED)}'"
    return spanned if lower is None else f"{spanned} AND StartTime >= '{written(lower)}'"


def written(moment: datetime) -> str:
    """A time as a query literal."""
    # Not strftime, which writes the first thousand years with fewer digits.
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _cursor(filters: RunFilter, place: Place) -> str:
    return cursors.write(_criteria(filters), {"place": place.written})


def _place(filters: RunFilter, cursor: str) -> Place | None:
    try:
        return Place.read(cursors.read(_criteria(filters), cursor)["place"])
    except (LookupError, ValueError):
        raise cursors.unusable(cursor) from None
