"""What is read and written beside five million rows, on both databases.

A thousand runs are written as workers write them. All others are copies of these, which the database
makes, with other ids and later: in the year up to now. Then each query runs some times, and the least
time counts, since the machine may be busy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from capacity.queries import PREFIX, Query, queries
from sqlalchemy import Connection, Table, Text, func, select, text
from stage import Processes, postgres

from abeyance import views
from abeyance.core.approvals import Grant, as_json
from abeyance.core.state import Status
from abeyance.records import tables
from abeyance.records.batch import Batch, Fact
from abeyance.records.database import Database, Scope
from abeyance.records.engines import engine_of, writing
from abeyance.records.writing import write

Took: TypeAlias = Mapping[str, float]

RUNS: Final = 500_000
ROWS_QUICK: Final = 2_000
_DIFFERENT: Final = 1_000
"""How many runs are written: one in five waits, and half of the others have asked twice."""
_SCOPE: Final = Scope("benchmark", "abeyance")
_YEAR: Final = timedelta(days=365)
_TIMES: Final = 5
_WRITING: Final = "a batch of a run, written"
_MOMENTS: Final = (
    *("created_at", "updated_at", "active_at", "ended_at", "settled_at"),
    *("deadline", "due", "at"),
)
_KEYS: Final[Mapping[Table, Mapping[str, Table]]] = {
    tables.runs: {"id": tables.runs},
    tables.labels: {"run": tables.runs},
    tables.questions: {"id": tables.questions, "run": tables.runs},
    tables.people: {"question": tables.questions},
    tables.events: {"position": tables.events, "run": tables.runs},
    tables.grants: {"number": tables.grants, "run": tables.runs},
    tables.grant_uses: {},
}
"""The tables that are copied, and of which table the rows are that a column numbers."""
_NAMING: Final = (
    *("run_id", "origin", "conversation_id", "search", "view", "interrupt_id"),
    *("shown", "data", "id", "grant_id", "made_by", "document"),
)
"""The columns that have the ids of runs and grants."""
_BLOCKED, _GRANTED = 500, 7
_LETTER: Final = "The parcel arrived a week late, and the box was open when it came. " * 3


async def beside(folder: Path, runs: int) -> Mapping[str, Took]:
    """Return the milliseconds that each query takes on both databases beside so many runs, a multiple of
    a thousand, and the number of rows by table.
    """
    found: dict[str, Took] = {}
    for name in ("SQLite", "PostgreSQL"):
        async with AsyncExitStack() as open_:
            url, others = f"sqlite:///{folder.absolute()}/records.db", {}
            if name == "PostgreSQL":
                url, others["database"] = await open_.enter_async_context(postgres(folder))
            database = Database(url)
            open_.callback(database.close)
            fill(database, url, runs)
            found[name], found[f"{name}, processor"] = took(database, Processes(**others))
            found["rows"] = {str(table): float(_count(database, table)) for table in _KEYS}
    return found


def table(found: Mapping[str, Took]) -> str:
    """Return the table of what was measured."""
    rows = found["rows"]
    columns = [name for name in found if name != "rows"]
    counts = ", ".join(f"{count:,.0f} {name}" for name, count in rows.items())
    lines = [f"{sum(rows.values()):,.0f} rows: {counts}. In milliseconds:", ""]
    lines += [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for query in found[columns[0]]:
        lines.append(f"| {query} | {' | '.join(f'{found[name][query]:.1f}' for name in columns)} |")
    return "\n".join(lines)


def fill(database: Database, url: str, runs: int) -> None:
    """Record so many runs, a multiple of a thousand."""
    copies = runs // _DIFFERENT
    apart = _YEAR / copies
    since = datetime.now(UTC) - _YEAR - timedelta(hours=3)
    with database.writing() as connection:
        tx = database.transaction(connection, _SCOPE)
        moments = (since + n * apart / _DIFFERENT for n in range(_DIFFERENT))
        write(tx, [_batch(n, at, f"{PREFIX}000-{n:03}") for n, at in enumerate(moments)])
    engine = engine_of(url, is_for_upgrades=True)
    with writing(engine.connect()) as connection, connection.begin():
        if database.is_postgres:
            # What rows refer to is there.
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        else:
            connection.execute(text("PRAGMA cache_size = -2000000"))
        indices = [each for table in _KEYS for each in table.indexes]
        for index in indices:
            index.drop(connection, checkfirst=True)
        numbers = {
            table: connection.scalar(select(func.max(table.c[next(iter(keys))])))
            for table, keys in _KEYS.items()
            if keys
        }
        for table in _KEYS:
            copied = f"CREATE TEMPORARY TABLE first_{table} AS SELECT * FROM {table}"  # noqa: S608
            connection.execute(text(copied))
        for n in range(1, copies):
            for table in _KEYS:
                connection.execute(text(_copy(table, n, numbers, n * apart)))
        for index in indices:
            index.create(connection, checkfirst=True)
        if database.is_postgres:
            for table in (tables.runs, tables.questions, tables.events, tables.grants):
                (key,) = table.primary_key
                connection.execute(
                    text(
                        f"SELECT setval(pg_get_serial_sequence('{table}', '{key.name}'), "  # noqa: S608
                        f"(SELECT max({key.name}) FROM {table}))"
                    )
                )
    if database.is_postgres:
        # As it does by itself within minutes.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()


def _copy(table: Table, n: int, numbers: Mapping[Table, int], later: timedelta) -> str:
    """Return the statement that copies what was written of a table, the `n`th time."""
    names, terms, keys = [], [], _KEYS[table]
    for column in table.columns:
        name = term = f'"{column.name}"'
        if column.name in keys:
            term = f"{name} + {n * numbers[keys[column.name]]}"
        elif column.name in _MOMENTS:
            moment = f"{name} + {later // timedelta(microseconds=1)}"
            term = f"CASE WHEN {name} < {tables.FAR} THEN {moment} ELSE {name} END"
        elif column.name in _NAMING and isinstance(column.type, Text):
            term = f"replace({name}, '{PREFIX}000-', '{PREFIX}{n:03}-')"
        names.append(name)
        terms.append(term)
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(terms)} FROM first_{table}"  # noqa: S608


def _batch(number: int, at: datetime, run_id: str) -> Batch:
    about: dict[str, Any] = {"run_id": run_id, "graph": f"refund-{number % 10}"}
    waits = number % 5 == 0
    end = None if waits else at + timedelta(hours=2)
    view = views.RunView(
        graph_version="1",
        status=Status.AWAITING_INPUT if waits else "completed",
        labels={"team": f"team-{number % 10}"},
        started_by=f"starter-{number % 50}",
        conversation_id=f"{run_id}-talk",
        created_at=at,
        updated_at=end or at,
        ended_at=end,
        values={"letter": _LETTER, "amount": number},
        blocked=[views.BlockedView(code="key_missing")] if number == _BLOCKED else [],
        **about,
    )
    count = 1 if waits else 1 + number % 2
    asked = [
        _question(f"{run_id}.pay-{n}", number, at, waits=waits, about=about) for n in range(count)
    ]
    told: list[dict[str, Any]] = [{"type": "run.started"}, *_step("look")]
    for each in asked:
        shown = each.model_dump(mode="json", include={"prompt", "reason", "payload"})
        of = {"address": each.address, "data": {"id": each.id}}
        told.append({"type": "interrupt.opened", "audit": {"shown": shown}, **of})
        if not waits:
            answer = {"answer": each.answer}
            told += [{"type": "interrupt.answered", "audit": answer, **of}, *_step("pay")]
    if number % 10 == _GRANTED:
        grant = {"grant": f"{PREFIX}000-grant", "by": "person-7"}
        told.append({"type": tables.GRANTED, "address": "tool", "actor": "person-7", "data": grant})
    if number == _GRANTED:
        told.append({"type": "approval.remembered", "audit": {"grant": as_json(_grant(at))}})
    if not waits:
        told += [*_step("post"), {"type": "run.completed"}]
    return Batch(
        number=2,
        after=1,
        origin=f"{run_id}-first",
        view=view,
        active_at=end or at,
        questions=asked,
        facts_before=0,
        facts=[
            Fact(number=n, time=at + n * timedelta(minutes=8), **each)
            for n, each in enumerate(told, 1)
        ],
    )


def _step(node: str) -> list[dict[str, Any]]:
    return [{"type": f"node.{what}", "address": node} for what in ("started", "finished")]


def _question(
    id_: str, number: int, at: datetime, *, waits: bool, about: Mapping[str, Any]
) -> views.InterruptView:
    settled: dict[str, Any] = {}
    if not waits:
        settled = {"answer": {"approved": number % 7 > 0}, "answered_by": f"person-{number % 100}"}
        settled["settled_at"] = at + timedelta(hours=1)
    return views.InterruptView(
        id=id_,
        name="pay",
        kind="approval",
        address="pay",
        prompt=f"Refund {number} for the order of supplier-{number}x?",
        reason={"letter": _LETTER, "amount": number},
        requested_capability=f"refunds:approve-{number % 100}",
        assignees=[f"person-{number % 100}", f"group:finance-{number % 10}"],
        priority=("high", "normal", "low")[number % 3],
        risk=number % 100,
        created_at=at,
        deadline=None if number % 4 == 0 else at + timedelta(days=2),
        status="open" if waits else "answered",
        **settled,
        **about,
    )


def _grant(at: datetime) -> Grant:
    return Grant(
        id=f"{PREFIX}000-grant",
        tool="refund",
        declaration="1",
        graph="refund-7",
        same={"order": f"{PREFIX}000-order"},
        by=f"{PREFIX}000-boss",
        made_at=at,
        until=datetime.now(UTC) + timedelta(days=7),
    )


def took(database: Database, processes: Processes) -> tuple[Took, Took]:
    """Return the least time of each query, and the processor time of all that work for it."""
    waited, spent = {}, {}
    for name, query in queries(datetime.now(UTC)).items():
        began = sum(processes.cpu_seconds().values())
        waited[name] = min(_timed(database.reading(), database, query) for _ in range(_TIMES))
        spent[name] = 1000 * (sum(processes.cpu_seconds().values()) - began) / _TIMES
    began = sum(processes.cpu_seconds().values())
    batches = [_batch(n, datetime.now(UTC), f"new-{n}") for n in range(_TIMES)]
    waited[_WRITING] = min(
        _timed(database.writing(), database, partial(write, batches=[each])) for each in batches
    )
    spent[_WRITING] = 1000 * (sum(processes.cpu_seconds().values()) - began) / _TIMES
    return waited, spent


def _timed(open_: AbstractContextManager[Connection], database: Database, query: Query) -> float:
    began = time.perf_counter()
    with open_ as connection:
        query(database.transaction(connection, _SCOPE))
    return 1000 * (time.perf_counter() - began)


def _count(database: Database, table: Table) -> int:
    with database.reading() as connection:
        return connection.scalars(select(func.count()).select_from(table)).one()
