"""Durations, in all forms in which people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from abeyance.duration import OptionalSeconds, Seconds, in_days, seconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (30, 30.0),
        (0, 0.0),
        (1.5, 1.5),
        (-5, -5.0),
        ("30", 30.0),
        ("0.25", 0.25),
        ("500ms", 0.5),
        ("30s", 30.0),
        (" 30 s ", 30.0),
        ("5m", 300.0),
        ("1.5h", 5_400.0),
        ("2d", 172_800.0),
        ("PT5M", 300.0),
        (" PT5M ", 300.0),
        ("PT0.5S", 0.5),
        ("P2DT1H", 176_400.0),
        ("P1W", 604_800.0),
        ("-PT5M", -300.0),
        (timedelta(minutes=5), 300.0),
        (timedelta(days=36_500), 3_153_600_000.0),
    ],
)
def test_every_form_is_seconds(given: Any, expected: float) -> None:
    assert seconds(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        *(None, True, False, b"5s", [5], {}, float("nan"), 10**400),
        *("", " ", "soon", "5 min", "s", "-5s", "1e3", "0x10", "P", "PT", "p2d", "5,5s", "٣s"),
    ],
)
def test_an_invalid_duration_is_named(given: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration: write seconds, '30s'") as caught:
        seconds(given)
    assert str(caught.value).startswith(repr(given)[:100])


@pytest.mark.parametrize("given", ["P1M", "P1Y", "P5M", "-P1M", " P1Y2M ", "P1MT5M"])
def test_months_and_years_have_no_length(given: str) -> None:
    with pytest.raises(ValueError, match="say 'P30D', or 'PT5M' for minutes"):
        seconds(given)


@pytest.mark.parametrize(
    "given",
    [float("inf"), -float("inf"), 1e300, timedelta.max, "36501d", "P5300W", "9" * 400 + "d"],
)
def test_a_duration_over_a_hundred_years_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        seconds(given)


@pytest.mark.parametrize(
    ("hours", "text"), [(24, "1 day"), (36, "1.5 days"), (720, "30 days"), (12, "0.5 days")]
)
def test_a_length_of_time_is_shown_in_days(hours: int, text: str) -> None:
    assert in_days(timedelta(hours=hours)) == text


class Timed(BaseModel):
    length: Seconds
    perhaps: OptionalSeconds = 5.0


def test_fields_of_models_take_every_form() -> None:
    assert Timed.model_validate({"length": "PT1M", "perhaps": None}) == Timed(
        length=60.0, perhaps=None
    )
    assert Timed.model_validate_json('{"length": "30", "perhaps": 1}') == Timed(
        length=30.0, perhaps=1.0
    )
