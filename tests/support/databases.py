"""Databases of the records, seen from outside and by ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import Connection, create_engine, func, select, text

from abeyance.records.database import Database, Scope
from abeyance.records.tables import deployments

SCOPE = Scope("n", "q")


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection that knows nothing of ours, and commits at its end."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def execute(url: str, *statements: str) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.execute(text(statement))


def count(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(deployments)) or 0


def check(url: str) -> None:
    with closing(Database(url)) as database:
        database.check()


def counted(database: Database) -> int:
    with database.reading() as connection:
        return count(connection)


def numbered(database: Database) -> int:
    """The number of our deployment, which is made if it is not there."""
    with database.writing() as connection:
        return database.deployment(connection, SCOPE)
