"""Lists, the inbox and the report of approvals over five million events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from recorded import Recorded, at, batch, fact, question, run_view
from sqlalchemy import Table, cast, func, insert, literal, select, text
from sqlalchemy.sql.elements import ColumnElement

from abeyance.filters import ApprovalsFilter, InboxFilter, RunFilter
from abeyance.records import approvals, questions, runs, tables
from abeyance.records.batch import Batch
from abeyance.records.database import Database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUNS = 100
"""How many runs are written; all others are copies of them."""
COPIES = 5_000
EVENTS = 10
ASKING = 50
"""One run in so many still waits, and has two events less."""
WAITING = RUNS * COPIES // ASKING * 2
NUMBERED = {"runs": "id", "labels": "run", "questions": "id", "events": "position"}
NAMES = ("run_id", "origin", "interrupt_id")
MOMENTS = ("at", "created_at", "settled_at")


def story(number: int) -> list[Batch]:
    """A run of ten events: a question that was settled, and for one in ten a call under a grant."""
    view = run_view(f"run-{number:03}", graph=f"refund-{number % 5}", labels={"team": "billing"})
    asked = question(view.run_id, "pay", graph=view.graph, reason={"amount": number})
    told = {"grant": "g", "by": "ada", "tool": "refund", "call": "node:clerk"}
    granted = fact(
        *(EVENTS, "approval.granted"), time=at(number), address="node:clerk", actor="ada", data=told
    )
    settled = {
        "status": "answered",
        "answered_by": f"person-{number % 7}",
        "settled_at": at(number),
        "answer": {"approved": number % 3 != 0},
        "reason": None,
    }
    last = fact(EVENTS, "run.completed") if number % 10 else granted
    first = batch(view, asked, facts=[fact(n) for n in range(1, EVENTS - 1)])
    if number % ASKING == 1:
        return [first]
    return [
        first,
        batch(
            view.model_copy(update={"status": "completed"}),
            asked.model_copy(update=settled),
            number=2,
            facts=[fact(EVENTS - 1, "interrupt.answered", data={"id": asked.id}), last],
        ),
    ]


def multiply(recorded: Recorded) -> None:
    """Copy all rows so often that there are five million events, a minute apart from each other's."""
    with recorded.database.writing() as connection:
        if recorded.database.is_postgres:
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        shifts = select(literal(1).label("shift")).cte("shifts", recursive=True)
        shifts = shifts.union_all(select(shifts.c.shift + 1).where(shifts.c.shift < COPIES - 1))
        for table in (tables.runs, tables.labels, tables.questions, tables.events):
            shift = shifts.c.shift
            copied = [_copy(table, column.name, shift) for column in table.columns]
            rows = select(*copied).select_from(table.join(shifts, literal(value=True)))
            connection.execute(insert(table).from_select([*table.columns.keys()], rows))
        if recorded.database.is_postgres:
            connection.execute(text("ANALYZE"))


def _copy(table: Table, name: str, shift: ColumnElement[int]) -> ColumnElement[Any]:
    column = table.c[name]
    if name == NUMBERED[table.name] or name == "run":
        return column + shift * (RUNS * EVENTS if name == "position" else RUNS)
    if name in NAMES:
        return column + "-" + cast(shift, tables.runs.c.run_id.type)
    if name in MOMENTS:
        return column + cast(shift, column.type) * 60_000_000
    return column


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"person": "person-1"},
        {"graph": "refund-1", "outcomes": {"rejected"}},
        {"outcomes": {"granted"}},
    ],
)
def test_the_report_is_there_within_seconds(filled: Recorded, about: dict[str, Any]) -> None:
    filters = ApprovalsFilter(since=at(-1), until=at(100_000), **about)

    def read() -> None:
        page = filled.read(approvals.page, filters, fields=["reason.amount"])
        assert page.total > 1_000
        assert len(page.items) == 50

    assert fastest(read) < 4


def test_a_page_of_the_inbox_is_there_at_once(filled: Recorded) -> None:
    def read() -> None:
        first = filled.read(questions.inbox, InboxFilter())
        after = filled.read(questions.inbox, InboxFilter(), cursor=first.next_cursor)
        assert first.total == after.total == RUNS * COPIES // ASKING
        assert len(first.items) == len(after.items) == 50

    assert fastest(read) < 0.5


@pytest.mark.parametrize("about", [{}, {"statuses": {"completed"}}, {"graph": "refund-1"}])
def test_a_page_of_runs_is_there_within_a_second(filled: Recorded, about: dict[str, Any]) -> None:
    filters = RunFilter(**about)

    def read() -> None:
        first = filled.read(runs.page, filters)
        after = filled.read(runs.page, filters, cursor=first.next_cursor)
        assert first.total == after.total >= RUNS * COPIES // 5
        assert len(first.items) == len(after.items) == 50

    assert fastest(read) < 1


def fastest(read: Callable[[], None]) -> float:
    """The seconds that a call takes: the least of three, since the machine does more than this."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        read()
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    database = Database(f"sqlite:///{tmp_path_factory.mktemp('records')}/records.db")
    recorded = Recorded(database)
    recorded.write(*(each for number in range(RUNS) for each in story(number)))
    multiply(recorded)
    with database.reading() as connection:
        assert (
            connection.scalar(select(func.count()).select_from(tables.events))
            == RUNS * COPIES * EVENTS - WAITING
        )
    yield recorded
    database.close()
