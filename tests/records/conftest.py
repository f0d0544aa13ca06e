from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import Cluster, running_cluster
from recorded import Recorded

from abeyance.records.database import Database


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The PostgreSQL server of this pytest process."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def changes_tables() -> bool:
    """Whether a test changes the tables themselves, and not only their rows."""
    return False


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(
    request: pytest.FixtureRequest, tmp_path: Path, *, changes_tables: bool
) -> Iterator[str]:
    """The URL of a database whose tables are all there and empty."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/records.db"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.database() if changes_tables else cluster.emptied() as url:
            yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database of this test's own, on SQLite and on PostgreSQL."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def recorded(database: Database) -> Recorded:
    """The records of one deployment in such a database."""
    return Recorded(database)
