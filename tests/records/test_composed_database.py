"""The script with which Docker Compose makes the database of the records."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from postgres import Cluster

from abeyance.records.database import Database

SCRIPT = Path(__file__).parents[2] / "deploy" / "records-database.sh"


def make(cluster: Cluster, password: str) -> None:
    path = f"{cluster.programs}:{os.environ['PATH']}"
    who = {"PGUSER": "postgres", "PGPASSWORD": cluster.password}
    place = {"PGHOST": "127.0.0.1", "PGPORT": str(cluster.port), **who}
    subprocess.run(
        ["sh", SCRIPT],
        env={"PATH": path, **place, "RECORDS_PASSWORD": password},
        check=True,
        timeout=60,
    )


def test_the_script_makes_a_database_whose_owner_reaches_no_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.database() as another:
        make(cluster, 'it\'s a "secret"')
        make(cluster, "another")
        monkeypatch.setenv("PGPASSWORD", "another")
        url = f"postgresql://abeyance@127.0.0.1:{cluster.port}"

        with closing(Database(f"{url}/abeyance")) as database:
            assert database.create_or_upgrade() == "created"
        for name in (another.rpartition("/")[2], "postgres"):
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(f"{url}/{name}").close()
    (stored,) = cluster.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'abeyance'")
    assert stored[0].startswith("SCRAM-SHA-256$")
