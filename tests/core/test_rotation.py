"""When a history has grown too long."""

import pytest

from abeyance.core.rotation import Growth, due


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
