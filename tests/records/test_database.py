"""The database of the records, on SQLite and on PostgreSQL."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from databases import SCOPE, check, connected, count, counted, execute, numbered
from postgres import Cluster
from sqlalchemy import func, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError

from abeyance.errors import RecordsUnavailable, SettingsError
from abeyance.records import engines, schema
from abeyance.records.database import Database, Scope
from abeyance.records.schema import Prepared
from abeyance.records.tables import deployments, labels, runs

ANY_ROW = {"namespace": "n", "task_queue": "any"}
PROGRAM = """
import pathlib, sys
from abeyance.records import schema
from abeyance.records.database import Database
schema.MIGRATIONS = pathlib.Path(sys.argv[2])
schema.REVISIONS, schema.HEAD = (*schema.REVISIONS, "9999"), "9999"
print(Database(sys.argv[1]).create_or_upgrade())
"""
WRITES = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
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


@pytest.fixture
def changes_tables() -> bool:
    return True


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.database(is_empty=True) as url:
            yield url


def said(url: str) -> str:
    """Return the one line with which a check refuses a database. A read fails with the same line."""
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


def tables(url: str) -> list[str]:
    with connected(url) as connection:
        return sorted(inspect(connection).get_table_names())


# The schema


def test_the_code_knows_the_revisions_of_the_migrations() -> None:
    script = ScriptDirectory(str(schema.MIGRATIONS))

    assert tuple(each.revision for each in reversed([*script.walk_revisions()])) == schema.REVISIONS


def test_setup_creates_the_tables_once(empty: str) -> None:
    database = Database(empty)

    assert [database.create_or_upgrade(), database.create_or_upgrade()] == ["created", "up to date"]
    database.check()
    assert numbered(database) == 1
    database.close()


def test_an_empty_database_of_postgresql_is_refused_until_it_is_set_up(cluster: Cluster) -> None:
    with cluster.database(is_empty=True) as url:
        assert said(url).endswith("is empty: run `abeyance setup`, which creates its tables")
        waiting = Database(url)
        with pytest.raises(RecordsUnavailable), waiting.writing():
            pass
        assert set_up(url) == "created"
        assert numbered(waiting) == 1
        waiting.close()


def test_setup_indexes_the_texts_of_searches_as_soon_as_the_database_lets_it(
    cluster: Cluster,
) -> None:
    with cluster.database(is_empty=True) as url:
        name = url.rpartition("/")[2]
        cluster.execute("CREATE ROLE tenant LOGIN PASSWORD 'p'")
        cluster.execute("GRANT USAGE, CREATE ON SCHEMA public TO tenant", database=name)
        database = Database(f"postgresql://tenant:p@127.0.0.1:{cluster.port}/{name}")

        assert database.create_or_upgrade() == "created"
        assert not _indices(cluster, name)

        cluster.execute("CREATE EXTENSION pg_trgm", database=name)
        assert database.create_or_upgrade() == "up to date"
        assert _indices(cluster, name) == ["ix_questions_search", "ix_runs_search"]
        database.close()
        cluster.execute("DROP OWNED BY tenant", database=name)
    cluster.execute("DROP ROLE tenant")


def _indices(cluster: Cluster, database: str) -> list[str]:
    query = "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'ix_%_search' ORDER BY 1"
    return [name for (name,) in cluster.execute(query, database=database)]


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "empty"])
def test_a_new_file_of_sqlite_needs_no_setup(tmp_path: Path, *, is_there: bool) -> None:
    file = tmp_path / "new" / "records.db"
    if is_there:
        file.parent.mkdir()
        file.touch()
    database = Database(f"sqlite:///{file}")

    assert numbered(database) == 1
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
    before = tables(empty)

    assert said(empty).endswith(
        "has tables of something else: name a database that only Abeyance uses"
    )
    with pytest.raises(SettingsError, match="has tables of something else"):
        set_up(empty)
    assert tables(empty) == before


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_text_is_refused(cluster: Cluster, encoding: str) -> None:
    name = encoding.lower()
    as_ = f"ENCODING '{encoding}' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0"
    cluster.execute(f"CREATE DATABASE {name} {as_}")

    assert said(cluster.url(name)).endswith("createdb --encoding UTF8 --template template0 NAME`")
    with pytest.raises(SettingsError, match="cannot hold every text"):
        set_up(cluster.url(name))
    made = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert cluster.execute(made, database=name) == [(0,)]


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
        found.append(numbered(database))

    threads = [threading.Thread(target=use, args=[database]) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in databases:
        database.close()

    assert found == [1] * 8


# Transactions


def test_to_open_a_file_once_more_leaves_the_locks_of_this_process_on_it(tmp_path: Path) -> None:
    file = tmp_path / "records.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE anything (id INTEGER)")
        # This lock lies on the file itself, like the locks that protect a journal in use.
        connection.execute("BEGIN EXCLUSIVE")
        engines.make_file(file)
        other = subprocess.run(
            [sys.executable, "-c", WRITES, str(file)], capture_output=True, text=True, check=False
        )

    assert "database is locked" in other.stderr


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


def test_a_reading_transaction_sees_one_state_and_cannot_write(database: Database) -> None:
    with database.reading() as reader:
        assert count(reader) == 0
        with database.writing() as writer:
            writer.execute(insert(deployments).values(ANY_ROW))
        assert count(reader) == 0
    assert counted(database) == 1
    with pytest.raises(RecordsUnavailable, match=r"read-?only"), database.reading() as reader:
        reader.execute(insert(deployments).values(ANY_ROW | {"namespace": "other"}))


def test_an_integrity_error_is_not_an_outage_and_hides_its_parameters(
    database: Database,
) -> None:
    row = {"namespace": "n", "task_queue": "what nobody should read"}

    with database.writing() as connection:
        connection.execute(insert(deployments).values(row))
    with pytest.raises(IntegrityError) as defect, database.writing() as connection:
        connection.execute(insert(deployments).values(row))
    assert "nobody should" not in str(defect.value).partition("DETAIL")[0]
    assert counted(database) == 1


async def test_a_read_runs_in_another_thread(database: Database) -> None:
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
        assert numbered(database) == 1
        database.close()


def test_a_number_of_another_database_is_not_kept(cluster: Cluster) -> None:
    with cluster.database() as url, closing(Database(url)) as database:
        numbered(database)
        with database.reading() as connection:
            assert database.deployment(connection, SCOPE) == 1
        # This stands for a database made anew in which others have come first.
        execute(url, "UPDATE deployments SET id = 7")
        row = {column.name: 1 for column in runs.columns} | {"is_newest": True, "is_blocked": False}
        with pytest.raises(IntegrityError), database.writing() as connection:
            connection.execute(
                insert(runs).values(row | {"deployment": database.deployment(connection, SCOPE)})
            )
        with database.reading() as connection:
            assert database.deployment(connection, SCOPE) == 7


# The URL


@pytest.mark.parametrize(
    "url",
    [
        "",
        "records.db",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://folder/records.db",
        "sqlite:///records.db?mode=ro",
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
def test_an_invalid_database_url_is_refused_without_its_password(
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


def test_an_unreachable_database_is_named_with_a_remedy() -> None:
    database = Database("postgresql://ada:secret@127.0.0.1:1/records")
    with pytest.raises(RecordsUnavailable) as away:
        database.create_or_upgrade()

    (told,) = str(database.explained(away.value)).splitlines()

    assert "Connection refused" in told
    assert "postgresql://127.0.0.1:1/records" in told
    assert "ABEYANCE_DATABASE_URL" in told
    assert "secret" not in told
