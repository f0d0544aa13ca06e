"""The database of the records, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from postgres import Cluster
from sqlalchemy import Connection, create_engine, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from abeyance.errors import RecordsUnavailable, SettingsError
from abeyance.records import database as database_module
from abeyance.records import engines, schema
from abeyance.records.database import Database, Scope
from abeyance.records.schema import Prepared
from abeyance.records.tables import deployments, labels, metadata, runs

SCOPE = Scope("n", "q")
ANY_ROW = {"namespace": "n", "task_queue": "any"}
PROGRAM = """
import pathlib, sys
from abeyance.records import schema
from abeyance.records.database import Database
schema.MIGRATIONS = pathlib.Path(sys.argv[2])
schema.REVISIONS, schema.HEAD = (*schema.REVISIONS, "9999"), "9999"
print(Database(sys.argv[1]).create_or_upgrade())
"""
NEXT = f"""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "9999", "{schema.HEAD}"
def upgrade() -> None:
    always = "always" if op.get_bind().dialect.name == "sqlite" else "never"
    with op.batch_alter_table("deployments", recreate=always) as table:
        table.add_column(sa.Column("added", sa.Text()))
    with op.batch_alter_table("runs", recreate=always) as table:
        table.add_column(sa.Column("added", sa.Text()))
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.database(is_empty=True) as url:
            yield url


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


def said(url: str) -> str:
    """Why a database is refused, which is one line; a process that uses it anyway hears the same."""
    database = Database(url)
    with pytest.raises(SettingsError) as refused:
        database.check()
    with pytest.raises(RecordsUnavailable, match=re.escape(str(refused.value))), database.reading():
        pass
    database.close()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def set_up(url: str) -> Prepared:
    with closing(Database(url)) as database:
        return database.create_or_upgrade()


def check(url: str) -> None:
    with closing(Database(url)) as database:
        database.check()


def tables(connection: Connection) -> list[Any]:
    """All of a schema that its database tells of it."""
    if connection.dialect.name == "sqlite":
        query = (
            "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' ORDER BY 1, 2"
        )
        found = [tuple(row) for row in connection.execute(text(query))]
        return [
            # Its parts in any order.
            (kind, name, sorted(re.sub(r"[\s\"()]+", "", sql or "").split(",")))
            for kind, name, sql in found
        ]
    queries = (
        """SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
        """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    )
    return [
        tuple(row)
        for query in queries
        for row in connection.execute(text(query))
        if not str(row[0]).startswith("alembic")
    ]


# ------------------------------------------------------------------------------------------ the schema


def test_the_migrations_make_the_tables_that_the_code_knows(empty: str) -> None:
    with connected(empty) as connection:
        schema._migrate(connection)
        migrated = tables(connection)
        dialect = connection.dialect.name

        def is_for_it(item: Any, _name: str | None, kind: str, *_compared: object) -> bool:
            return kind != "index" or item._ddl_if is None or item._ddl_if.dialect == dialect

        opts = {"compare_type": True, "include_object": is_for_it}
        difference = compare_metadata(MigrationContext.configure(connection, opts=opts), metadata)
        metadata.drop_all(connection)
    with connected(empty) as connection:
        metadata.create_all(connection)
        ours = tables(connection)

    assert difference == []
    assert migrated == ours


def test_the_code_knows_the_revisions_of_the_migrations() -> None:
    script = ScriptDirectory(str(schema.MIGRATIONS))

    assert tuple(each.revision for each in reversed([*script.walk_revisions()])) == schema.REVISIONS


def test_setup_creates_the_tables_once(empty: str) -> None:
    database = Database(empty)

    assert [database.create_or_upgrade(), database.create_or_upgrade()] == ["created", "up to date"]
    database.check()
    with database.writing() as connection:
        assert database.deployment(connection, SCOPE) == 1
    database.close()


def test_an_empty_database_of_postgresql_is_refused_until_it_is_set_up(cluster: Cluster) -> None:
    with cluster.database(is_empty=True) as url:
        assert said(url).endswith("is empty: run `abeyance setup`, which creates its tables")
        waiting = Database(url)
        with pytest.raises(RecordsUnavailable), waiting.writing():
            pass
        assert set_up(url) == "created"
        with waiting.writing() as connection:
            assert waiting.deployment(connection, SCOPE) == 1
        waiting.close()


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_a_new_file_of_sqlite_needs_no_setup(tmp_path: Path, *, is_there: bool) -> None:
    file = tmp_path / "new" / "records.db"
    if is_there:
        file.parent.mkdir()
        file.touch()
    database = Database(f"sqlite:///{file}")

    with database.writing() as connection:
        assert database.deployment(connection, SCOPE) == 1
    assert database.create_or_upgrade() == "up to date"
    if not is_there:
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    database.close()


def test_an_older_schema_names_the_command_that_upgrades_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(database_url)
    monkeypatch.setattr(schema, "REVISIONS", (schema.HEAD, "9999"))
    monkeypatch.setattr(schema, "HEAD", "9999")

    assert said(database_url).endswith(
        "was made by an older release: run `abeyance setup`, which upgrades it"
    )


def test_a_newer_schema_names_the_release_and_stays_as_it_is(database_url: str) -> None:
    check(database_url)
    execute(database_url, "UPDATE alembic_version SET version_num = '9999'")

    refused = said(database_url)
    assert refused.endswith("was made by a newer release: install that release, or a later one")
    with pytest.raises(SettingsError, match="made by a newer release"):
        set_up(database_url)


@pytest.mark.parametrize(
    "made",
    [
        ["CREATE TABLE accounts (id INTEGER)"],
        ["CREATE TABLE runs (id INTEGER)"],
        [
            "CREATE TABLE accounts (id INTEGER)",
            "CREATE TABLE alembic_version (version_num TEXT)",
            "INSERT INTO alembic_version VALUES ('0001')",
        ],
    ],
    ids=["a table", "a table of our name", "another user of Alembic"],
)
def test_a_database_of_something_else_is_left_alone(empty: str, made: list[str]) -> None:
    execute(empty, *made)
    with connected(empty) as connection:
        before = tables(connection)

    assert said(empty).endswith(
        "has tables of something else: name a database that only Abeyance uses"
    )
    with pytest.raises(SettingsError, match="has tables of something else"):
        set_up(empty)
    with connected(empty) as connection:
        assert tables(connection) == before


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The migrations of a release that replaces a table to which others refer."""
    folder = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, folder)
    (folder / "versions" / "r9999_next.py").write_text(NEXT)
    return folder


def test_an_older_schema_is_upgraded_once_by_two_processes_at_once_and_keeps_its_rows(
    database_url: str, next_release: Path
) -> None:
    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, database_url, next_release],
            stdout=subprocess.PIPE,
            text=True,
        )

    with closing(Database(database_url)) as database, database.writing() as connection:
        database.deployment(connection, SCOPE)
        anything = {column.name: 1 for column in runs.columns}
        connection.execute(insert(runs).values(anything | {"is_newest": True, "is_blocked": False}))
        connection.execute(insert(labels).values(run=1, label="a=b"))
    with begun() as one, begun() as other:
        told = sorted((process.communicate(timeout=90)[0]).strip() for process in (one, other))

    assert told == ["up to date", "upgraded"]
    with connected(database_url) as connection:
        added = connection.execute(text("SELECT namespace, added FROM deployments")).all()
        assert [tuple(row) for row in added] == [("n", None)]
        assert connection.scalar(select(func.count()).select_from(labels)) == 1
    assert "made by a newer release" in said(database_url)


def test_many_threads_that_find_no_file_share_the_one_that_is_made(tmp_path: Path) -> None:
    databases = [Database(f"sqlite:///{tmp_path}/records.db") for _ in range(8)]
    found: list[int] = []

    def use(database: Database) -> None:
        with database.writing() as connection:
            found.append(database.deployment(connection, SCOPE))

    threads = [threading.Thread(target=use, args=[database]) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in databases:
        database.close()

    assert found == [1] * 8


# ------------------------------------------------------------------------------------- transactions


def test_a_deployment_keeps_its_number_and_one_that_was_rolled_back_has_none(
    database: Database,
) -> None:
    with pytest.raises(ZeroDivisionError), database.writing() as connection:
        _ = 1 // (database.deployment(connection, SCOPE) - 1)
    with database.reading() as connection:
        assert database.deployment(connection, SCOPE) == 0
    with database.writing() as connection:
        first = database.deployment(connection, SCOPE)
        assert database.deployment(connection, SCOPE) == first
        second = database.deployment(connection, Scope("n", "two"))
    with database.reading() as connection:
        assert database.deployment(connection, SCOPE) == first != second


def test_who_reads_sees_one_state_and_writes_nothing(database: Database) -> None:
    with database.reading() as reader:
        assert count(reader) == 0
        with database.writing() as writer:
            writer.execute(insert(deployments).values(ANY_ROW))
        assert count(reader) == 0
    with database.reading() as reader:
        assert count(reader) == 1
    with pytest.raises(RecordsUnavailable, match=r"read-?only"), database.reading() as reader:
        reader.execute(insert(deployments).values(ANY_ROW | {"namespace": "other"}))


def test_a_defect_of_what_is_written_is_no_outage_and_hides_its_parameters(
    database: Database,
) -> None:
    row = {"namespace": "n", "task_queue": "what nobody should read"}

    with database.writing() as connection:
        connection.execute(insert(deployments).values(row))
    with pytest.raises(IntegrityError) as defect, database.writing() as connection:
        connection.execute(insert(deployments).values(row))
    assert "nobody should" not in str(defect.value).partition("DETAIL")[0]
    with database.reading() as connection:
        assert count(connection) == 1


async def test_a_read_runs_beside_the_loop(database: Database) -> None:
    loop = threading.get_ident()

    assert await database.read(count) == 0
    assert await database.read(lambda _: threading.get_ident()) != loop
    with pytest.raises(ZeroDivisionError):
        await database.read(lambda _: 1 // 0)


def test_another_database_at_the_same_place_is_noticed(cluster: Cluster) -> None:
    with cluster.database() as url:
        database = Database(url)
        with database.writing() as connection:
            database.deployment(connection, Scope("n", "one"))
            database.deployment(connection, SCOPE)
        execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        with pytest.raises(RecordsUnavailable), database.reading() as connection:
            count(connection)
        with pytest.raises(SettingsError, match="is empty"):
            database.check()
        database.create_or_upgrade()
        with database.writing() as connection:
            assert database.deployment(connection, SCOPE) == 1
        database.close()


def test_a_number_of_another_database_is_not_kept(cluster: Cluster) -> None:
    with cluster.database() as url, closing(Database(url)) as database:
        with database.writing() as connection:
            database.deployment(connection, SCOPE)
        with database.reading() as connection:
            assert database.deployment(connection, SCOPE) == 1
        # As if it had been made anew, and others had come first.
        execute(url, "UPDATE deployments SET id = 7")
        row = {column.name: 1 for column in runs.columns} | {"is_newest": True, "is_blocked": False}
        with pytest.raises(IntegrityError), database.writing() as connection:
            connection.execute(
                insert(runs).values(row | {"deployment": database.deployment(connection, SCOPE)})
            )
        with database.reading() as connection:
            assert database.deployment(connection, SCOPE) == 7


# ------------------------------------------------------------------------------------------- the URL


@pytest.mark.parametrize(
    "url",
    [
        "",
        "records.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://folder/records.db",
        "postgres://ada:secret@host/name",
        "mysql://ada:secret@host/name",
        "postgresql+psycopg2://ada:secret@host/name",
        "postgresql://ada:secret@host",
        "postgresql://ada:secret@host/",
        "postgresql://ada:secret@host:port/name",
        "postgresql://ada:sec/secret@host/name",
        "postgresql://ada:secret#secret@host/name",
        "postgresql://ada:12/secret@host/name",
        "postgresql://ada:12?secret@host/name",
        "postgresql://ada:secret@secret@host/name",
        "postgresql://ada:secret@[::1/name",
        "postgresql://ada:secret@ho\u2100st/name",
    ],
)
def test_what_is_no_url_of_ours_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from abeyance.settings import load_settings

    monkeypatch.setenv("ABEYANCE_DATABASE_URL", url)
    for refused_by in (lambda: Database(url), load_settings):
        with pytest.raises(SettingsError) as refused:
            refused_by()
        assert "ABEYANCE_DATABASE_URL: " in str(refused.value)
        assert not {"secret", "\n"} & {*re.split(r"(secret|\n)", str(refused.value))}


def test_a_password_is_shown_by_no_setting_and_no_error() -> None:
    from abeyance.settings import Settings

    url = "postgresql://ada:hush@127.0.0.1:1/name"
    database = Database(url)

    assert database.place == "postgresql://127.0.0.1:1/name"
    assert "hush" not in repr(Settings(database_url=url))
    with pytest.raises(RecordsUnavailable) as away:
        database.check()
    assert "hush" not in str(away.value)


def test_both_names_of_the_driver_mean_the_same(cluster: Cluster) -> None:
    with cluster.database() as url:
        check(url.replace("postgresql://", "postgresql+psycopg://"))


def test_a_path_is_meant_from_where_the_process_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database("sqlite:///a folder?/100%25.db")
    monkeypatch.chdir("/")
    database.check()
    database.close()

    assert (tmp_path / "a folder?" / "100%25.db").is_file()


# ---------------------------------------------------------------------------------------------- away


def test_a_server_that_is_away_at_the_start_is_used_once_it_is_there(cluster: Cluster) -> None:
    with cluster.database() as url:
        name = url.rpartition("/")[2]
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        database = Database(url)
        with pytest.raises(RecordsUnavailable, match="not currently accepting connections"):
            database.check()
        with pytest.raises(RecordsUnavailable), database.writing():
            pass
        cluster.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        with database.reading() as connection:
            assert count(connection) == 0
        database.close()


def test_a_database_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(RecordsUnavailable, match='database "nowhere" does not exist'):
        check(cluster.url("nowhere"))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends every wait after two seconds at most."""
    monkeypatch.setattr(engines, "_STATEMENT_SECONDS", 1)
    monkeypatch.setattr(engines, "_CONNECT_SECONDS", 2)
    monkeypatch.setattr(engines, "_PATIENCE", 2.0)


@pytest.mark.usefixtures("hurried")
def test_nobody_waits_long_for_a_server_that_accepts_and_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(RecordsUnavailable, match="timeout"):
            check(f"postgresql://127.0.0.1:{silent.getsockname()[1]}/any")

    assert time.monotonic() - began < 10


@pytest.mark.usefixtures("hurried")
async def test_a_server_that_hangs_is_away_and_its_connections_are_used_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.database() as url:
        database = Database(url)
        assert await database.read(count) == 0
        monkeypatch.setattr(database_module, "READ_SECONDS", 0.5)
        with cluster.stopped():
            for _ in range(6):
                with pytest.raises(RecordsUnavailable, match=r"did not answer within 0\.5 s"):
                    await database.read(count)
            began = time.monotonic()
            with pytest.raises(RecordsUnavailable), database.writing() as connection:
                count(connection)
            assert time.monotonic() - began < 20
        monkeypatch.setattr(database_module, "READ_SECONDS", 30)
        assert await database.read(count) == 0
        database.close()


def test_a_server_that_was_restarted_costs_no_call(cluster: Cluster) -> None:
    with cluster.database() as url:
        database = Database(url)
        with database.reading() as connection:
            assert count(connection) == 0
        cluster.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'abeyance'"
        )
        with database.writing() as connection:
            assert database.deployment(connection, SCOPE) == 1
        database.close()


@pytest.mark.usefixtures("hurried")
def test_a_statement_that_takes_too_long_is_ended(
    cluster: Cluster,
) -> None:
    with cluster.database() as url:
        database = Database(url)
        with (
            pytest.raises(RecordsUnavailable, match="statement timeout"),
            database.reading() as each,
        ):
            each.execute(text("SELECT pg_sleep(60)"))
        database.close()


@pytest.mark.usefixtures("hurried")
def test_a_writer_that_waits_too_long_for_another_gives_up(
    tmp_path: Path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/records.db")
    database.check()
    other = sqlite3.connect(tmp_path / "records.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(RecordsUnavailable, match="locked"), database.writing():
        pass
    with database.reading() as connection:
        assert count(connection) == 0
    other.close()
    with database.writing() as connection:
        assert database.deployment(connection, SCOPE) == 1
    database.close()


def test_a_full_disk_is_said_and_used_again_once_there_is_room(
    database: Database, database_url: str
) -> None:
    def fill() -> None:
        with database.writing() as connection:
            if not database.is_postgres:
                connection.exec_driver_sql("PRAGMA max_page_count=1")
            rows = [{"namespace": "n" * 1000, "task_queue": str(each)} for each in range(100)]
            connection.execute(insert(deployments), rows)

    database.check()
    if database.is_postgres:
        execute(
            database_url,
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'could not extend file: No space left on device'"
            " USING ERRCODE = 'disk_full'; END $$",
            "CREATE TRIGGER full_disk BEFORE INSERT ON deployments EXECUTE FUNCTION full_disk()",
        )
    with pytest.raises(RecordsUnavailable, match=r"disk is full|No space left on device"):
        fill()

    if database.is_postgres:
        execute(database_url, "DROP TRIGGER full_disk ON deployments")
    else:
        with database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    with database.writing() as connection:
        assert database.deployment(connection, SCOPE)


@contextmanager
def nobody() -> Iterator[None]:
    """The rights of somebody who is not root, who may write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    file = tmp_path / "records.db"
    database = Database(f"sqlite:///{file}")
    database.check()
    database.close()
    file.chmod(0o444)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)

    with nobody(), pytest.raises(RecordsUnavailable, match="denied"):
        check(f"sqlite:///{file}")
    with nobody(), pytest.raises(RecordsUnavailable, match="denied"):
        check(f"sqlite:///{tmp_path}/new/records.db")


def test_a_server_that_takes_no_writes_is_said(cluster: Cluster) -> None:
    with cluster.database() as url:
        name = url.rpartition("/")[2]
        cluster.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        database = Database(url)
        with pytest.raises(RecordsUnavailable, match="read-only"), database.writing() as connection:
            database.deployment(connection, SCOPE)
        with database.reading() as connection:
            assert count(connection) == 0
        database.close()


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "records.db").write_bytes(b"something else" * 1000)

    with pytest.raises(RecordsUnavailable, match="file is not a database"):
        check(f"sqlite:///{tmp_path}/records.db")


async def test_what_is_closed_can_be_opened_again_by_another(database_url: str) -> None:
    for _ in range(3):
        database = Database(database_url)
        assert await database.read(count) == 0
        database.close()
        with pytest.raises(RecordsUnavailable, match="this process is stopping"):
            await database.read(count)
