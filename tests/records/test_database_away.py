"""A database that is away, hangs, is full or cannot be written."""

from __future__ import annotations

import os
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from databases import check, count, counted, numbered
from postgres import Cluster
from sqlalchemy import insert, text

from abeyance.errors import RecordsUnavailable
from abeyance.records import database as database_module
from abeyance.records import engines
from abeyance.records.database import Database
from abeyance.records.tables import deployments


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
        assert counted(database) == 0
        database.close()


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
        monkeypatch.setattr(database_module, "READ_SECONDS", 0.2)
        with cluster.stopped():
            for _ in range(6):
                with pytest.raises(RecordsUnavailable, match=r"did not answer within 0\.2 s"):
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
        assert counted(database) == 0
        cluster.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'abeyance'"
        )
        assert numbered(database) == 1
        database.close()


@pytest.mark.usefixtures("hurried")
def test_a_statement_that_takes_too_long_is_ended(cluster: Cluster) -> None:
    with cluster.database() as url:
        database = Database(url)
        with (
            pytest.raises(RecordsUnavailable, match="statement timeout"),
            database.reading() as each,
        ):
            each.execute(text("SELECT pg_sleep(60)"))
        database.close()


@pytest.mark.usefixtures("hurried")
def test_a_writer_that_waits_too_long_for_another_gives_up(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/records.db")
    database.check()
    other = sqlite3.connect(tmp_path / "records.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(RecordsUnavailable, match="locked"), database.writing():
        pass
    assert counted(database) == 0
    other.close()
    assert numbered(database) == 1
    database.close()


def test_a_full_disk_is_reported_and_used_again_once_there_is_room(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/records.db")
    database.check()

    def fill() -> None:
        with database.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            rows = [{"namespace": "n" * 1000, "task_queue": str(each)} for each in range(100)]
            connection.execute(insert(deployments), rows)

    with pytest.raises(RecordsUnavailable, match="disk is full"):
        fill()
    with database.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    assert numbered(database)
    database.close()


@contextmanager
def nobody() -> Iterator[None]:
    """Act as a user who is not root, because root may write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "records.db"
    database = Database(f"sqlite:///{file}")
    database.check()
    database.close()
    file.chmod(0o444)
    # A user who is not root may list all folders that were made for tests.
    root = Path(tempfile.gettempdir())
    for folder in (tmp_path, *tmp_path.parents):
        if root in folder.parents:
            folder.chmod(0o755)

    with nobody(), pytest.raises(RecordsUnavailable, match="readonly"):
        check(f"sqlite:///{file}")
    with nobody(), pytest.raises(RecordsUnavailable, match="denied"):
        check(f"sqlite:///{tmp_path}/new/records.db")


def test_a_read_only_server_is_reported(cluster: Cluster) -> None:
    with cluster.database() as url:
        name = url.rpartition("/")[2]
        cluster.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        database = Database(url)
        with pytest.raises(RecordsUnavailable, match="read-only"):
            numbered(database)
        assert counted(database) == 0
        database.close()


def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "records.db").write_bytes(b"something else" * 1000)

    with pytest.raises(RecordsUnavailable, match="file is not a database"):
        check(f"sqlite:///{tmp_path}/records.db")


async def test_a_closed_database_can_be_opened_by_another_object(database_url: str) -> None:
    for _ in range(3):
        database = Database(database_url)
        assert await database.read(count) == 0
        database.close()
        with pytest.raises(RecordsUnavailable, match="this process is stopping"):
            await database.read(count)
