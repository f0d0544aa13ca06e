"""The database of the records: SQLite in a file, or PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnection

from abeyance.core.text import truncate
from abeyance.errors import RecordsUnavailable, SettingsError
from abeyance.keyring import Keyring
from abeyance.records import engines, schema
from abeyance.records.documents import Documents, Transaction
from abeyance.records.schema import Prepared
from abeyance.records.tables import deployments
from abeyance.settings import database_file

T = TypeVar("T")

READ_SECONDS: Final = 5.0
"""Seconds after which `Database.read` raises that the records are not available."""
_CATCHES_UP: Final = 15.0
"""Seconds within which every run tries a failed write again."""
_THREADS: Final = 4
_MADE: Final = "abeyance_deployments"


@dataclass(frozen=True, slots=True)
class Scope:
    """A deployment: the id that Temporal gave its namespace, and its task queue."""

    namespace: str
    task_queue: str


class Database:
    """The records of all deployments that share a database. Any thread may use it.

    Opens nothing before its first use. A file of SQLite that is missing or empty gets its tables then; a
    database of PostgreSQL gets them from `create_or_upgrade`.
    """

    def __init__(self, url: str, *, keys: Keyring | None = None) -> None:
        try:
            file = database_file(url)
            # A relative path is meant from the folder in which the process is now.
            self._file = None if file is None else file.absolute()
            self._url = url if file is None else f"sqlite:///{self._file}"
            self.place = engines.place(self._url)
            self._engine = engines.engine_of(self._url)
        except ValueError as error:
            raise SettingsError(f"ABEYANCE_DATABASE_URL: {error}") from None
        self.documents = Documents(Keyring({}) if keys is None else keys)
        self.is_postgres = self._file is None
        self._is_open = False
        # When calls began to fail, and when one failed last.
        self._failing = (-_CATCHES_UP, -_CATCHES_UP)
        self._deployments: dict[Scope, int] = {}
        self._readers = ThreadPoolExecutor(_THREADS, thread_name_prefix="records")

    @property
    def exists(self) -> bool:
        """Return False for a file that the first use has yet to create."""
        with contextlib.suppress(PermissionError):
            return self._file is None or self._file.exists()
        return False

    @property
    def behind(self) -> float | None:
        """The seconds for which runs may not have been recorded; None if no call of this process has
        failed in the last 15 seconds.
        """
        began, failed = self._failing
        now = time.monotonic()
        return now - began if now - failed < _CATCHES_UP else None

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open one transaction, which is committed at the end, or rolled back if the caller raises.

        On SQLite it waits for the transactions of others that write. Raises RecordsUnavailable; then
        the transaction may have been committed only if the commit itself failed.
        """
        with self._errors():
            with engines.writing(self._opened().connect()) as connection:
                made = connection.info[_MADE] = dict[Scope, int]()
                with connection.begin():
                    yield connection
            self._deployments.update(made)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the records, and cannot write. Raises
        RecordsUnavailable.
        """
        with (
            self._errors(),
            engines.reading(self._opened().connect()) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], bool]]:
        """Open a connection, and yield a call that waits a moment and returns whether others wrote.

        One thread may use it. Raises RecordsUnavailable, and so does the call.
        """
        with self._errors(), self._opened().connect() as connection:
            try:
                yield engines.watch(connection)
            except connection.dialect.loaded_dbapi.Error as error:
                raise _unavailable(_first_line(error)) from error
            finally:
                # Nobody else can use the connection.
                connection.invalidate()

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread, and return its result. Raises RecordsUnavailable after 5 seconds."""

        def found() -> T:
            with self.reading() as connection:
                return query(connection)

        try:
            running = asyncio.get_running_loop().run_in_executor(self._readers, found)
        except RuntimeError as error:
            raise RecordsUnavailable("the records are closed: this process is stopping") from error
        try:
            async with asyncio.timeout(READ_SECONDS) as deadline:
                return await running
        except TimeoutError:
            if not deadline.expired():
                raise
            self._note_failure()
            raise RecordsUnavailable(
                f"the records did not answer within {READ_SECONDS:g} s"
            ) from None

    def deployment(self, connection: Connection, scope: Scope) -> int:
        """Return the id of a deployment, after inserting its row if that is missing.

        In a transaction that cannot write, a missing deployment has the id 0, which no row has.
        """
        if (known := self._deployments.get(scope)) is not None:
            return known
        row = {"namespace": scope.namespace, "task_queue": scope.task_queue}
        query = select(deployments.c.id).filter_by(**row)
        found = connection.scalar(query)
        if engines.writes(connection):
            if found is None:
                engines.add_missing(connection, deployments, [row])
                found = connection.scalars(query).one()
            # Other transactions may use the id only once it is committed.
            connection.info[_MADE][scope] = found
        elif found is not None:
            self._deployments[scope] = found
        return found or 0

    def transaction(self, connection: Connection, scope: Scope) -> Transaction:
        """Return the transaction that queries and changes of a deployment take, on a connection."""
        return Transaction(connection, self.documents, self.deployment(connection, scope))

    def create_or_upgrade(self) -> Prepared:
        """Create or upgrade the tables, and say which. Two processes may do so at once.

        Raises SettingsError for a database of a newer release or of something else, and
        RecordsUnavailable.
        """
        engine = engines.engine_of(self._url, is_for_upgrades=True)
        try:
            with self._errors():
                self._make_file()
                return schema.create_or_upgrade(engine, self.place)
        finally:
            engine.dispose()

    def check(self) -> None:
        """Raise SettingsError if this release cannot use the database as it is, or RecordsUnavailable."""
        with self._errors():
            self._check()

    def check_can_be_made(self) -> None:
        """Raise RecordsUnavailable if the missing file of the database cannot be made. Makes nothing."""
        if self._file is not None:
            with _unless_files_fail():
                engines.check_can_be_made(self._file)

    def explained(self, error: RecordsUnavailable) -> RecordsUnavailable:
        """Return an error for the operator of the database: with its place, and a remedy."""
        return RecordsUnavailable(
            f"{error}: see that {self.place} is there, and that this process may use it, or name another "
            "database in ABEYANCE_DATABASE_URL"
        )

    def close(self) -> None:
        """Close the connections. Queries under way run to their end."""
        self._readers.shutdown(wait=False)
        self._engine.dispose()

    def _opened(self) -> Engine:
        if not self._is_open:
            try:
                self._check()
            except SettingsError as error:
                # The next call checks again, because `abeyance setup` may be under way.
                self._note_failure()
                raise RecordsUnavailable(str(error)) from error
            self._is_open = True
        return self._engine

    def _check(self) -> None:
        self._make_file()
        with self._engine.connect() as connection:
            found = schema.standing(connection)
        if found is schema.Standing.EMPTY and not self.is_postgres:
            schema.create_or_upgrade(self._engine, self.place)
        else:
            schema.refuse(found, self.place)

    def _make_file(self) -> None:
        if self._file is not None:
            with _unless_files_fail():
                engines.make_file(self._file)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (IntegrityError, DataError):
            # The batch is wrong, not the database; or it refers to rows of another database.
            self._deployments.clear()
            raise
        except (DBAPIError, NoConnection) as error:
            self._note_failure()
            # Another database may be there by now, with other numbers or no tables.
            self._is_open = False
            self._deployments.clear()
            if isinstance(error, NoConnection):
                raise _unavailable("all connections are in use") from error
            raise _unavailable(_first_line(error.orig)) from error

    def _note_failure(self) -> None:
        now = time.monotonic()
        self._failing = (now if self.behind is None else self._failing[0], now)


@contextlib.contextmanager
def _unless_files_fail() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unavailable(error.strerror or type(error).__name__) from error


def _first_line(error: BaseException | None) -> str:
    # The first line has neither the statement nor its values.
    return str(error).strip().partition("\n")[0]


def _unavailable(reason: str) -> RecordsUnavailable:
    return RecordsUnavailable(f"the records are not available ({truncate(reason, 300)})")
