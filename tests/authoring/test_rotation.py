"""When a run is handed over to a new history, and what is handed over."""

from __future__ import annotations

import pytest
from core_drive import Drive, gate, graph, restored

from abeyance.core.model import START
from abeyance.core.rotation import Growth, due
from abeyance.core.snapshot import joined, parted


def growth(events: int = 0, bytes_: int = 0, updates: int = 0) -> Growth:
    return Growth(events=events, bytes=bytes_, updates=updates)


@pytest.mark.parametrize("measure", ["events", "bytes_", "updates"])
def test_each_measure_alone_brings_a_hand_over_and_at_four_times_its_mark_a_hard_one(
    measure: str,
) -> None:
    mark = {"events": 50, "bytes_": 2_000_000, "updates": 400}[measure]
    found = [due(growth(**{measure: mark * n // 4}), soft_events=50) for n in (0, 3, 4, 15, 16, 99)]

    assert found == [None, None, "soft", "soft", "hard", "hard"]


def test_measures_are_not_added_up() -> None:
    assert due(growth(49, 1_999_999, 399), soft_events=50) is None


def test_the_smallest_setting_hands_over_often_but_not_at_once() -> None:
    assert due(growth(events=2), soft_events=3) is None
    assert due(growth(events=3), soft_events=3) == "soft"


def test_what_is_handed_over_without_spec_and_values_is_the_run_again_with_them() -> None:
    run = Drive(
        graph(gate("ask"), "n", ways=[(START, "ask"), (START, "n")]), values={"x": "v" * 5_000}
    )
    bare, spec, values = parted(run.state)

    assert joined(restored(bare), spec, values) == run.state
    assert values == {"graph:g": {"x": "v" * 5_000}}
    assert "vvvv" not in str(bare)
    assert bare.spec.nodes == {}
