"""When a run is handed over to a new history."""

from __future__ import annotations

import pytest

from abeyance.workflows.continue_as_new import Growth, due


@pytest.mark.parametrize(
    ("events", "bytes_", "updates", "rotation"),
    [
        (0, 0, 0, None),
        (999, 1_999_999, 399, None),
        (1000, 0, 0, "soft"),
        (0, 2_000_000, 0, "soft"),
        (0, 0, 400, "soft"),
        (3999, 7_999_999, 1599, "soft"),
        (4000, 0, 0, "hard"),
        (0, 8_000_000, 0, "hard"),
        (0, 0, 1600, "hard"),
    ],
)
def test_the_fullest_of_three_measures_decides(
    events: int, bytes_: int, updates: int, rotation: str | None
) -> None:
    assert due(Growth(events=events, bytes=bytes_, updates=updates), soft_events=1000) == rotation


def test_the_smallest_setting_hands_over_often_but_not_at_once() -> None:
    assert due(Growth(events=2, bytes=0, updates=0), soft_events=3) is None
    assert due(Growth(events=3, bytes=0, updates=0), soft_events=3) == "soft"
