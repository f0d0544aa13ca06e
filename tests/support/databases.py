"""Databases of the records, as SQLAlchemy and as Abeyance see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import Connection, create_engine, func, select, text

from abeyance.records.database import Database, Scope
from abeyance.records.tables import deployments

SCOPE = Scope("n", "q")


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Open a plain SQLAlchemy connection that commits at its end."""
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
    """Return the number of our deployment, and create the deployment if it is missing."""
    with database.writing() as connection:
        return database.deployment(connection, SCOPE)
