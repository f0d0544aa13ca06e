"""Engines: connections to the records, in a file of SQLite or on a PostgreSQL server.

Every wait is limited: for a connection, a lock, a statement, and a server that no longer answers. So a
thread that uses an engine never hangs: it gets an error that says why.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Executable,
    Table,
    create_engine,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from abeyance.settings import database_file

_CONNECT_SECONDS: Final = 3
_STATEMENT_SECONDS: Final = 5
_UPGRADE_SECONDS: Final = 60
"""How long an upgrade of a file waits for another one."""
_PATIENCE: Final = _STATEMENT_SECONDS + 2.0
"""Seconds to wait for an answer of the server, which itself ends a statement before that."""
_IDLE_SECONDS: Final = 60
_RECYCLE_SECONDS: Final = 1_800
_CONNECTIONS: Final = 5
"""Connections that are kept open; as many again may be opened for a moment."""
_WRITES: Final = "abeyance_writes"
CHANNEL: Final = "abeyance"
"""The channel on which PostgreSQL tells that something was written."""
_POSITIONS: Final = 0x6162_6579
"""The lock under which events get their positions."""
_LOCK: Final = select(func.pg_advisory_xact_lock(_POSITIONS), func.pg_notify(CHANNEL, ""))
_HEARD_WITHIN: Final = 1.0
_LOOKED_EVERY: Final = 0.01


def place(url: str) -> str:
    """Return the place of a database, for people: a path, or host and name of the database."""
    if (file := database_file(url)) is not None:
        return str(file)
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"postgresql://{host}{parts.path}"


def engine_of(url: str, *, is_for_upgrades: bool = False) -> Engine:
    """Return an engine, which connects when it is used. Raises ValueError for an invalid URL.

    An engine that `is_for_upgrades` lets a statement take as long as it needs, and lets a table of SQLite
    be replaced while rows refer to it.
    """
    file = database_file(url)
    if file is None:
        return _postgres(url, is_patient=is_for_upgrades)
    return _sqlite(file, is_referential=not is_for_upgrades)


def writing(connection: Connection) -> Connection:
    """Let the transactions of a connection write."""
    return connection.execution_options(**{_WRITES: True})


def reading(connection: Connection) -> Connection:
    """Let each transaction of a connection see one state, and write nothing."""
    if connection.dialect.name == "sqlite":
        return connection
    return connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writes(connection: Connection) -> bool:
    """Return True if the transactions of a connection may write."""
    return bool(connection.get_execution_options().get(_WRITES))


def lock_positions(connection: Connection) -> None:
    """Let no other transaction write until the end of this one."""
    # Readers continue after the latest position that they saw, so they would miss a row that becomes
    # visible late. SQLite has one writer anyway. PostgreSQL notifies listeners when the transaction ends.
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)


def watch(connection: Connection) -> Callable[[], bool]:
    """Return a call that waits until others than this connection have written.

    On PostgreSQL the call waits a second at most, and then checks that the server is there; on SQLite it
    waits a hundredth of a second. It returns whether others have written.
    """
    raw: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return _Counter(raw).has_changed
    raw.autocommit = True
    raw.execute(f"LISTEN {CHANNEL}")

    def has_changed() -> bool:
        for _ in raw.notifies(timeout=_HEARD_WITHIN, stop_after=1):
            return True
        raw.execute("SELECT 1")
        return False

    return has_changed


def add_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows that are not there yet."""
    if rows:
        connection.execute(_missing(table, connection.dialect.name), [*rows])


@cache
def _missing(table: Table, dialect: str) -> Executable:
    return insert(table, dialect).on_conflict_do_nothing()


def insert(table: Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Return the `INSERT` of a dialect, which can say what happens to existing rows."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


class _Counter:
    """The counter by which a connection of SQLite sees that others have written."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._version = self._read()

    def has_changed(self) -> bool:
        time.sleep(_LOOKED_EVERY)
        before, self._version = self._version, self._read()
        return self._version != before

    def _read(self) -> int:
        (version,) = self._raw.execute("PRAGMA data_version").fetchone()
        return int(version)


def make_file(path: Path) -> None:
    """Create a file for SQLite which only its owner may read, if there is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists():
        return
    # Closing a file ends all locks that this process has on it, also those of SQLite, without which other
    # processes damage the file. So this never opens a file that may be open already, and closes a new
    # file before it gets its name. SQLite gives the files beside it the same permissions.
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    os.close(descriptor)
    try:
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        Path(fresh).unlink()


def check_can_be_made(path: Path) -> None:
    """Raise OSError if `make_file` would. Tries a temporary file in the nearest folder that exists."""
    there = next(each for each in path.parents if each.exists())
    tempfile.TemporaryFile(dir=there).close()


def _sqlite(path: Path, *, is_referential: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _STATEMENT_SECONDS if is_referential else _UPGRADE_SECONDS},
        hide_parameters=True,
        pool_size=_CONNECTIONS,
        max_overflow=_CONNECTIONS,
        pool_timeout=_STATEMENT_SECONDS,
    )

    @event.listens_for(engine, "connect")
    def connected(raw: Any, _record: object) -> None:
        # Keep the driver from beginning transactions: it would begin them late, and some not at all.
        raw.isolation_level = None
        _use_wal(raw)
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute(f"PRAGMA foreign_keys={'ON' if is_referential else 'OFF'}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        is_writer = writes(connection)
        if connection.info.get(_WRITES) is not is_writer:
            connection.exec_driver_sql(f"PRAGMA query_only={'OFF' if is_writer else 'ON'}")
            connection.info[_WRITES] = is_writer
        # Else a transaction that reads first could not write, if another has written meanwhile.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine


def _use_wal(raw: sqlite3.Connection) -> None:
    # The file keeps the mode. SQLite does not wait for another process that sets it in a new file.
    until = time.monotonic() + _STATEMENT_SECONDS
    while True:
        try:
            raw.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _postgres(url: str, *, is_patient: bool) -> Engine:
    options = (
        f"-c statement_timeout={0 if is_patient else _STATEMENT_SECONDS * 1000}"
        f" -c idle_in_transaction_session_timeout={0 if is_patient else _IDLE_SECONDS * 1000}"
    )
    defaults = {
        "connect_timeout": str(_CONNECT_SECONDS),
        "application_name": "abeyance",
        "client_encoding": "utf8",
        "tcp_user_timeout": str(_STATEMENT_SECONDS * 1000),
        "options": options,
    }
    target = make_url(url).set(drivername="postgresql+psycopg")
    given = {name: text for name, text in defaults.items() if name not in target.query}
    engine = create_engine(
        target.update_query_dict(given),
        # Errors are logged, and readers of logs need not see what people decide.
        hide_parameters=True,
        pool_pre_ping=True,
        pool_recycle=_RECYCLE_SECONDS,
        pool_size=_CONNECTIONS,
        max_overflow=_CONNECTIONS,
        pool_timeout=_STATEMENT_SECONDS,
    )
    if not is_patient:

        @event.listens_for(engine, "do_connect")
        def connect(_dialect: object, _record: object, args: Any, options: Any) -> Any:
            return _impatient().connect(*args, **options)

    return engine


@cache
def _impatient() -> Any:
    """Return the class of connections that give up on a server that has stopped answering."""
    from psycopg import Connection as Psycopg  # noqa: PLC0415  (SQLite needs none)
    from psycopg import OperationalError, errors  # noqa: PLC0415

    class Impatient(Psycopg[Any]):
        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            """Wait for the server; close the connection if it does not answer in time."""
            if timeout is not None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, _PATIENCE)
            except errors._WaitTimeout as error:  # noqa: SLF001  (it has no other name)
                # The statement may be under way, and its result would be taken for that of the next.
                self.close()
                raise OperationalError(
                    f"the server did not answer within {_PATIENCE:g} s"
                ) from error

    return Impatient
