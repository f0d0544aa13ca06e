"""Simulated schedules of runs; `make simulate` plays more (docs/internals/simulation.md)."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from tests.simulation import run
from tests.simulation.faults import FAULTS
from tests.simulation.schedule import QUIET, Kind, play
from tests.simulation.shrink import shrunk


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    # The graphs' code fails on purpose, and the worker would log each failure.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_seed_is_the_same_schedule_each_time_and_so_are_its_draws() -> None:
    first, second = play(1), play(1)

    assert (first.log, first.draws) == (second.log, second.draws)
    assert play(1, first.draws).log == first.log


@pytest.mark.parametrize(("many", "kind"), [(25, "any"), (8, "grants"), (12, "migrations")])
def test_whatever_happens_every_promise_is_kept(many: int, kind: Kind) -> None:
    batch = run.play_batch(range(many), kind)

    assert batch.broken is None, run.told(batch.broken, kind)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("many", "kind"), [(1000, "any"), (300, "grants"), (300, "migrations")])
def test_whatever_happens_every_promise_is_kept_in_many_schedules(many: int, kind: Kind) -> None:
    command = [sys.executable, run.__file__, "--seeds", str(many), "--kind", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        # Playing each schedule twice to compare the runs takes minutes.
        pytest.param(name, marks=[pytest.mark.slow] if fault.is_compared else [])
        for name, fault in FAULTS.items()
    ],
)
def test_a_fault_is_found(name: str) -> None:
    # After a change of the product a later seed may be the first that shows the fault. Then this test
    # takes longer, until the table has that seed.
    fault = FAULTS[name]
    quiet = 1.0 if fault.is_compared else QUIET
    played = partial(play, quiet=quiet, kind=fault.kind)
    with fault.change():
        seeds = range(fault.seed, fault.seed + 600)
        found = next(seed for seed in seeds if played(seed).fault)

    # Without the fault the same schedule keeps every promise.
    assert not played(found).fault


@pytest.mark.slow
def test_the_shortest_schedule_shows_the_same_fault() -> None:
    fault = FAULTS["anybody may answer any question"]
    with fault.change():
        tried = map(play, range(fault.seed, fault.seed + 150))
        found = next(played for played in tried if played.fault)
        shortest = shrunk(found, most=30)

        assert shortest.kind == found.kind
        assert sum(shortest.draws) < sum(found.draws)
        assert play(found.seed, shortest.draws).fault == shortest.fault
