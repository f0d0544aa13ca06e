"""`make bench` works: a few runs of Abeyance and of Temporal alone, on a real server, without times."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]
_TITLES = {
    "by-hand": "Temporal by hand",
    "abeyance": "Abeyance",
    "by-hand-local": "Temporal by hand, local activities",
    "abeyance-local": "Abeyance, local nodes",
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(_ROOT / "benchmarks" / "run.py"), "--quick", *arguments],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        # Generous, because the machine may be busy.
        timeout=300,
        check=False,
    )


def tables(printed: str) -> list[dict[str, dict[str, str]]]:
    """Return the printed tables in order, each with rows by contender and cells by column."""
    found: list[dict[str, dict[str, str]]] = []
    for block in printed.split("\n\n"):
        rows = [line.strip("| ").split(" | ") for line in block.splitlines() if line[:1] == "|"]
        if rows:
            columns, _, *others = rows
            found.append({row[0]: dict(zip(columns, row, strict=True)) for row in others})
    return found


@pytest.mark.timeout(330)
def test_every_run_of_ours_and_of_the_floor_completes_and_has_its_row() -> None:
    done = bench("--contenders", ",".join(_TITLES), "--database", "postgres")

    assert done.returncode == 0, done.stderr
    numbers, ratios = tables(done.stdout)
    assert list(numbers) == list(ratios) == list(_TITLES.values())
    for row in numbers.values():
        assert row["runs"] == "23"
        assert float(row["runs/s, 20 at a time"]) > 0
        assert float(row["answer to next node, p50 ms"]) > 0
        assert int(row["events a run"]) > 0
    assert numbers["Temporal by hand"]["the database"].strip() == ""
    assert float(numbers["Abeyance"]["the database"]) > 0
    assert ratios["Temporal by hand"]["events a run"] == "1"
    ordinary, local = numbers["Abeyance"], numbers["Abeyance, local nodes"]
    assert int(local["events a run"]) < int(ordinary["events a run"])


@pytest.mark.skipif(
    find_spec("dbos") is not None, reason="only without the extra `bench` is dbos missing"
)
def test_a_contender_that_is_not_installed_is_left_out_with_one_line() -> None:
    done = bench("--contenders", "dbos")

    assert done.returncode != 0
    assert done.stdout.splitlines() == ["DBOS, SQLite is left out: dbos is not installed."]
    assert "no contender is left" in done.stderr


def test_a_contender_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    done = bench("--contenders", "by-foot")

    assert done.returncode != 0
    assert "no contender is called by-foot; there are by-hand, abeyance," in done.stderr
