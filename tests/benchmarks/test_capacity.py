"""The capacity model: its formula, its page, and the command that measures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(_ROOT / "benchmarks")
    return import_module("capacity.model")


def units(model: Any, **costs: dict[str, float]) -> dict[str, Any]:
    """Return the costs of all units; units that are not named cost nothing."""
    names = (*model.RUN, "waking", "waiting", "follower", "inbox", "change", "page", "listed")
    return {name: model.Cost(**costs.get(name, {})) for name in names}


def test_a_load_takes_what_its_runs_take_in_the_busiest_hour(model: Any) -> None:
    of = units(
        model,
        start={"worker": 100, "rows": 3, "events": 10},
        node={"worker": 10, "actions": 1, "rows": 2},
        question={"worker": 20, "stored": 1_000},
        answer={"worker": 30, "history": 2_000},
        message={"worker": 40},
        waking={"worker": 50},
    )
    # A fifth of 18,000 questions in an hour is one a second: 100 + 6 * 10 + 20 + 30 + 40 ms.
    warm = model.demand(of, model.Load(questions=18_000, waiting=1_000))
    cold = model.demand(of, model.Load(questions=18_000, waiting=2_000))

    assert warm.workers == pytest.approx(0.25)
    assert warm.actions == pytest.approx(6)
    assert warm.rows == 15 * (18_000 * 365 + 1_000)
    assert warm.stored == 1_000 * (18_000 * 365 + 1_000)
    assert warm.history == 2_000 * (18_000 * 30 + 1_000)
    # If more runs wait than a worker caches, most are replayed before their answer is handled.
    assert cold.workers == pytest.approx(0.3)


def test_an_inbox_reads_what_is_asked_at_most_twice_a_second_and_seldom_all(model: Any) -> None:
    of = units(model, change={"api": 5}, page={"records": 9}, listed={"records": 1})

    assert model.read(of, 0, 1 / 60).api == pytest.approx(5 / 60)
    assert model.read(of, 0, 10).api == pytest.approx(2 * 5)
    # 51 pages of 9 + 20 ms in each quarter of an hour.
    assert model.read(of, 20_000, 0).records == pytest.approx(51 * 29 / 900)


def test_the_part_of_which_most_is_taken_is_used_up_first(model: Any) -> None:
    of = units(model, start={"worker": 1_000, "actions": 1})
    # Each run takes one core-second: both of two cores are in use, and 0.4 % of the actions.
    wanted = model.demand(of, model.Load(questions=36_000, waiting=0))

    assert model.bottleneck(wanted).of == "workers"
    assert max(model.shares(wanted)) == pytest.approx(1)
    many = model.demand(of, model.Load(questions=36_000, waiting=50_000_000))
    assert model.bottleneck(many).of == "waiting"


def test_the_page_has_the_tables_of_what_was_measured_last(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, page = import_module("run_capacity"), import_module("page")
    text = command.PAGE.read_text(encoding="utf-8")
    found = json.loads(command.MEASURED.read_text(encoding="utf-8"))

    assert page.shown(text, "capacity", command.shown(found)) == text


@pytest.mark.slow
@pytest.mark.timeout(580)
def test_the_command_measures_what_each_unit_costs(model: Any) -> None:
    done = subprocess.run(
        [sys.executable, str(_ROOT / "benchmarks" / "run_capacity.py"), "--quick", "--json"],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    costs = {name: model.Cost(**cost) for name, cost in json.loads(done.stdout).items()}

    assert set(costs) == set(units(model))
    for name in model.RUN:
        cost = costs[name]
        # A question opens in the workflow task of the unit before it, so it needs no task of its own.
        counted = ["events", "history", "rows", "stored", "actions"]
        counted += [] if name == "question" else ["rpcs", "transitions"]
        assert [part for part in counted if getattr(cost, part) <= 0] == [], name
        assert cost.rows == round(cost.rows), name
    assert costs["start"].worker > 0
    assert costs["page"].api > 0
    # Waiting runs and inbox pages cause no calls to Temporal.
    assert costs["waiting"].rpcs == costs["page"].rpcs == 0


@pytest.mark.slow
@pytest.mark.timeout(330)
def test_reads_of_many_rows_are_measured_on_both_databases() -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(_ROOT / "benchmarks" / "run_capacity.py"),
            "--rows",
            "--quick",
            "--json",
        ],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert [*found] == [
        "SQLite",
        "SQLite, processor",
        "rows",
        "PostgreSQL",
        "PostgreSQL, processor",
    ]
    assert found["rows"]["runs"] == 2_000 + 5
    assert found["SQLite"].keys() == found["PostgreSQL"].keys()
