"""The schema of a database: whether this release can use it, its creation and its upgrades."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TypeAlias

from sqlalchemy import Connection, Engine, and_, func, inspect, select, text
from sqlalchemy.exc import NotSupportedError, ProgrammingError

from abeyance.errors import SettingsError
from abeyance.records import engines
from abeyance.records.tables import metadata

REVISIONS: Final = ("0001",)
"""The revisions of the schema, the newest last: those of the folder `migrations`."""
HEAD: Final = REVISIONS[-1]
MIGRATIONS: Final = Path(__file__).with_name("migrations")

Prepared: TypeAlias = Literal["created", "upgraded", "up to date"]
"""The outcome of creating or upgrading a database."""

_VERSIONS: Final = "alembic_version"
_LOCK: Final = 0x0ABE_7A9C_E000_0001
"""An advisory lock of PostgreSQL, held while a schema is created or upgraded."""
_SEARCHES: Final = {"runs": "is_newest", "questions": "listed IS NOT NULL"}
"""The tables that are searched, each with the condition of the rows that lists have."""


class Standing(StrEnum):
    """How a database relates to this release."""

    EMPTY = "empty"
    OLDER = "older"
    CURRENT = "current"
    NEWER = "newer"
    FOREIGN = "foreign"
    ENCODED = "encoded"


def standing(connection: Connection) -> Standing:
    """Return how a database relates to this release."""
    is_postgres = connection.dialect.name == "postgresql"
    if is_postgres and connection.scalar(text("SHOW server_encoding")) != "UTF8":
        return Standing.ENCODED
    tables = {*inspect(connection).get_table_names()}
    if not tables:
        return Standing.EMPTY
    if not tables >= {_VERSIONS, "deployments"}:
        return Standing.FOREIGN
    version = connection.execute(text(f"SELECT version_num FROM {_VERSIONS}")).scalar()  # noqa: S608
    if version == HEAD:
        return Standing.CURRENT
    return Standing.OLDER if version in REVISIONS else Standing.NEWER


def refuse(found: Standing, place: str) -> None:
    """Raise SettingsError if this release cannot use a database as it is."""
    match found:
        case Standing.CURRENT:
            return
        case Standing.EMPTY:
            problem = "is empty: run `abeyance setup`, which creates its tables"
        case Standing.OLDER:
            problem = "was made by an older release: run `abeyance setup`, which upgrades it"
        case Standing.NEWER:
            problem = "was made by a newer release: install that release, or a later one"
        case Standing.FOREIGN:
            problem = "has tables of something else: name a database that only Abeyance uses"
        case Standing.ENCODED:
            problem = (
                "cannot hold every text: create one with "
                "`createdb --encoding UTF8 --template template0 NAME`"
            )
    raise SettingsError(f"ABEYANCE_DATABASE_URL: the database {place} {problem}")


def create_or_upgrade(engine: Engine, place: str) -> Prepared:
    """Create or upgrade the tables, in one transaction. Raises SettingsError if they are not ours."""
    with engines.writing(engine.connect()) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = standing(connection)
        if found is Standing.EMPTY:
            _create(connection)
        elif found is Standing.OLDER:
            _migrate(connection)
        else:
            refuse(found, place)
        if connection.dialect.name == "postgresql":
            _index_texts(connection)
    if found is Standing.CURRENT:
        return "up to date"
    return "created" if found is Standing.EMPTY else "upgraded"


def _index_texts(connection: Connection) -> None:
    """Index the texts that searches look in, if this user may. No revision of the schema requires it."""
    if _has_indices(connection):
        return
    try:
        with connection.begin_nested():
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
            for table, condition in _SEARCHES.items():
                connection.execute(
                    text(
                        f"CREATE INDEX IF NOT EXISTS ix_{table}_search ON {table} "
                        f"USING gin (search gin_trgm_ops) WHERE {condition}"
                    )
                )
    except (NotSupportedError, ProgrammingError):
        # Without the indices searches read more rows.
        return


def _has_indices(connection: Connection) -> bool:
    named = (func.to_regclass(f"ix_{table}_search").is_not(None) for table in _SEARCHES)
    return bool(connection.scalar(select(and_(*named))))


def _create(connection: Connection) -> None:
    """Create all tables as they are today: a database that has none needs no migration."""
    metadata.create_all(connection)
    connection.execute(
        text(
            f"CREATE TABLE {_VERSIONS} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {_VERSIONS}_pkc PRIMARY KEY (version_num))"
        )
    )
    insert = text(f"INSERT INTO {_VERSIONS} (version_num) VALUES (:head)")  # noqa: S608
    connection.execute(insert, {"head": HEAD})


def _migrate(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415  (only an upgrade needs it, and it takes long to import)
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
