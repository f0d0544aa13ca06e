"""The records of many runs, and the queries by which the client reads lists of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from inbox.workload import ORDERS
from sqlalchemy import RowMapping, insert, select, text
from stage import Processes, postgres

from abeyance import Principal, views
from abeyance.core.state import Status
from abeyance.filters import InboxFilter, RunFilter
from abeyance.records import questions, runs, tables
from abeyance.records.batch import Batch, Fact
from abeyance.records.database import Database, Scope
from abeyance.records.documents import Transaction
from abeyance.records.engines import engine_of
from abeyance.records.writing import write

Query: TypeAlias = Callable[[Transaction], Any]

_DIFFERENT: Final = 100
"""How many runs are written; all others are copies of them."""
_SCOPE: Final = Scope("benchmark", "abeyance")
_NOON: Final = datetime(2026, 3, 2, 12, tzinfo=UTC)
_KEYS: Final = {
    tables.runs: "id",
    tables.questions: "id",
    tables.people: "question",
    tables.labels: "run",
}
"""The tables that lists read, and where each has the number of a run: of its only question too."""
_LETTER: Final = (
    "The parcel arrived a week late, and the box was open when the neighbour took it. " * 3
)
_ADA: Final = Principal(subject="person-7", groups=("finance-7",))
_ONE: Final = "run-001742"
"""A run that every trial has."""


class OnRecords:
    """What the driver asks of the records."""

    def __init__(self, url: str, database: Database, processes: Processes) -> None:
        self.processes = processes
        self._url = url
        self._database = database
        self.pages: Mapping[str, Query] = {
            **{order: self._inbox(InboxFilter(), order=order) for order in ORDERS},
            "of a capability": self._inbox(
                InboxFilter(capabilities=frozenset({"refunds:approve-7"}))
            ),
            "mine": self._inbox(InboxFilter(mine=_ADA)),
            "one": self._inbox(InboxFilter(q=_ONE)),
            "hundredth": self._inbox(InboxFilter(q="supplier-42x")),
            "all": self._inbox(InboxFilter(q="neighbour")),
            "none": self._inbox(InboxFilter(q="zeppelin")),
            "two words": self._inbox(InboxFilter(q="neighbour supplier-42x")),
            "short": self._inbox(InboxFilter(q="2x")),
            "of runs": self._runs(RunFilter(q=_ONE)),
        }

    def _inbox(self, filters: InboxFilter, **options: Any) -> Query:
        return lambda tx: questions.inbox(tx, filters, **options)

    def _runs(self, filters: RunFilter) -> Query:
        return lambda tx: runs.page(tx, filters)

    async def read(self, page: str) -> int:
        query = self.pages[page]
        found = await self._database.read(
            lambda connection: query(self._database.transaction(connection, _SCOPE))
        )
        return int(found.total)

    async def fill(self, runs: int) -> None:
        with self._database.writing() as connection:
            tx = self._database.transaction(connection, _SCOPE)
            write(tx, [_batch(n) for n in range(_DIFFERENT)])
        with self._database.reading() as connection:
            first = {table: connection.execute(select(table)).mappings().all() for table in _KEYS}
        for shift in range(_DIFFERENT, runs, _DIFFERENT):
            with self._database.writing() as connection:
                for table, rows in first.items():
                    connection.execute(
                        insert(table), [_copy(_KEYS[table], row, shift) for row in rows]
                    )
        if self._database.is_postgres:
            # As it does by itself within minutes.
            engine = engine_of(self._url, is_for_upgrades=True)
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("VACUUM ANALYZE"))
            engine.dispose()


def _copy(key: str, row: RowMapping, shift: int) -> dict[str, Any]:
    """A row of a run whose number is greater by `shift`."""
    old, new = (_name(row[key] - 1 + each) for each in (0, shift))
    renamed: dict[str, Any] = {
        n: v.replace(old, new) if isinstance(v, str) else v for n, v in row.items()
    }
    return {n: v + shift if n in ("id", "run", "question") else v for n, v in renamed.items()}


def _batch(number: int) -> Batch:
    run_id, asked_at = _name(number), _NOON + timedelta(seconds=number)
    about: dict[str, Any] = {"run_id": run_id, "graph": f"refund-{number % 10}"}
    question = views.InterruptView(
        id=f"{run_id}.pay",
        name="pay",
        kind="approval",
        address="pay",
        prompt=f"Refund {number} for the order of supplier-{number}x?",
        reason={"letter": _LETTER, "arguments": {"amount": number, "order": f"A-{number}"}},
        requested_capability=f"refunds:approve-{number}",
        assignees=[f"person-{number}", f"group:finance-{number % 10}"],
        priority=("high", "normal", "low")[number % 3],
        risk=number,
        created_at=asked_at,
        deadline=None if number % 4 == 0 else asked_at + timedelta(days=2),
        status="open",
        **about,
    )
    view = views.RunView(
        graph_version="1",
        status=Status.AWAITING_INPUT,
        labels={"team": f"team-{number % 10}"},
        started_by=f"starter-{number % 7}",
        created_at=asked_at,
        updated_at=asked_at,
        values={"letter": _LETTER, "amount": number},
        **about,
    )
    fact = Fact(number=1, time=asked_at, type="interrupt.opened", address="pay")
    return Batch(
        number=2,
        after=1,
        origin=f"{run_id}-first",
        view=view,
        active_at=asked_at,
        questions=[question],
        facts_before=0,
        facts=[fact],
    )


def _name(number: int) -> str:
    return f"run-{number:06}"


@asynccontextmanager
async def opened(folder: Path, *, is_postgres: bool = False) -> AsyncIterator[OnRecords]:
    """New records, and the server of their database if it has one."""
    async with AsyncExitStack() as open_:
        url, others = f"sqlite:///{folder.absolute()}/records.db", {}
        if is_postgres:
            url, others["database"] = await open_.enter_async_context(postgres(folder))
        database = Database(url)
        open_.callback(database.close)
        yield OnRecords(url, database, Processes(**others))
