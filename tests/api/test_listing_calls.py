"""What a list asks of Temporal's visibility, and that no store's habits lose a run of it.

Visibility is played here: stores differ in how exactly they keep a time and in what they sort, and a
development server has only one of these habits.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    CountWorkflowExecutionsResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)

from abeyance.client.listing import OPEN_RUNS, Listing, Place

QUEUE = "its-own"
_MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Visibility:
    """A store of open runs by their starts. `is_exact` False keeps milliseconds only, and so sorts
    those of one millisecond by chance; `is_sorted` False sorts by something else altogether.
    """

    starts: list[datetime]
    is_exact: bool = True
    is_sorted: bool = True
    calls: int = 0
    rows: list[WorkflowExecutionInfo] = field(init=False)
    namespace: str = "default"

    def __post_init__(self) -> None:
        chance = random.Random(17)
        self.rows = []
        for number, start in enumerate(self.starts):
            row = WorkflowExecutionInfo(
                execution=WorkflowExecution(workflow_id=f"run-{number}", run_id=f"{number:08}"),
                task_queue=QUEUE,
            )
            row.start_time.FromDatetime(start)
            self.rows.append(row)
        chance.shuffle(self.rows)
        if self.is_sorted:
            self.rows.sort(key=lambda row: self._kept(_start(row)), reverse=True)

    @property
    def workflow_service(self) -> Visibility:
        return self

    def _kept(self, moment: datetime) -> datetime:
        if self.is_exact:
            return moment
        return moment - timedelta(microseconds=moment.microsecond % 1_000)

    def _found(self, query: str) -> list[WorkflowExecutionInfo]:
        self.calls += 1
        bounds = dict(re.findall(r"StartTime (<=|>=) '([^']+)'", query))
        upper = datetime.fromisoformat(bounds["<="])
        lower = datetime.fromisoformat(bounds.get(">=", "0001-01-01T00:00:00Z"))
        return [row for row in self.rows if lower <= self._kept(_start(row)) <= upper]

    async def list_workflow_executions(
        self, request: ListWorkflowExecutionsRequest, **_: Any
    ) -> ListWorkflowExecutionsResponse:
        found = self._found(request.query)
        first = int(request.next_page_token or b"0")
        until = first + request.page_size
        token = b"%d" % until if until < len(found) else b""
        return ListWorkflowExecutionsResponse(executions=found[first:until], next_page_token=token)

    async def count_workflow_executions(
        self, request: CountWorkflowExecutionsRequest, **_: Any
    ) -> CountWorkflowExecutionsResponse:
        return CountWorkflowExecutionsResponse(count=len(self._found(request.query)))


def _start(row: WorkflowExecutionInfo) -> datetime:
    return row.start_time.ToDatetime(tzinfo=UTC)


def spread(count: int, apart: timedelta) -> list[datetime]:
    """So many starts, by chance within what they would take one after the other."""
    chance = random.Random(count)
    now = datetime.now(UTC)
    return [now - apart * chance.uniform(0, count) for _ in range(count)]


async def read(store: Visibility, *, wanted: int, is_open: bool) -> list[str]:
    """All runs, as they come page by page."""
    listing = Listing(store, QUEUE, patience=1)  # type: ignore[arg-type] # what it needs of a client
    ask = listing.open_rows if is_open else listing.rows
    found: list[str] = []
    before: Place | None = None
    is_end = False
    while not is_end:
        rows, is_end = await ask(OPEN_RUNS, before, wanted)
        # A page is as long as its reader likes.
        is_end = is_end and len(rows) <= wanted
        for row in rows[:wanted]:
            found.append(row.execution.workflow_id)
            before = Place.of(row)
    return found


def newest_first(store: Visibility) -> list[str]:
    rows = sorted(store.rows, key=Place.of, reverse=True)
    return [row.execution.workflow_id for row in rows]


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("apart", [timedelta(0), timedelta(microseconds=90), timedelta(minutes=9)])
async def test_every_run_is_listed_once_and_newest_first_whatever_the_store_sorts(
    apart: timedelta, *, is_exact: bool, is_sorted: bool, is_open: bool
) -> None:
    store = Visibility(spread(400, apart), is_exact=is_exact, is_sorted=is_sorted)

    found = await read(store, wanted=30, is_open=is_open)

    assert found == newest_first(store)


async def test_a_page_of_the_open_runs_takes_one_call_however_many_there_are() -> None:
    store = Visibility(spread(3_000, timedelta(milliseconds=10)))
    listing = Listing(store, QUEUE, patience=1)  # type: ignore[arg-type] # what it needs of a client

    rows, is_end = await listing.open_rows(OPEN_RUNS, None, 50)
    after_one = store.calls
    more, _ = await listing.open_rows(OPEN_RUNS, Place.of(rows[49]), 50)

    assert (len(rows) >= 50, is_end) == (True, False)
    assert (after_one, store.calls) == (1, 2)
    names = [row.execution.workflow_id for row in (*rows[:50], *more[:50])]
    assert names == newest_first(store)[:100]


@pytest.mark.parametrize(
    "apart", [timedelta(milliseconds=1), timedelta(seconds=10), timedelta(hours=1)]
)
async def test_a_page_of_all_runs_takes_few_calls_however_they_are_spread(apart: timedelta) -> None:
    store = Visibility(spread(3_000, apart))
    listing = Listing(store, QUEUE, patience=1)  # type: ignore[arg-type] # what it needs of a client

    rows, _ = await listing.rows(OPEN_RUNS, None, 50)

    assert [row.execution.workflow_id for row in rows[:50]] == newest_first(store)[:50]
    assert store.calls < 16
