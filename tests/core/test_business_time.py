"""Moments by working days and hours. March 2 of 2026 is a Monday."""

from __future__ import annotations

import sys
import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from abeyance.core.deadlines import moment
from abeyance.core.terms import BusinessTime, Calendar, Span, is_zone

BERLIN = Calendar(name="DE-BY", timezone="Europe/Berlin", holidays=("2026-04-03", "2026-04-06"))


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine is in Tokyo, which changes nothing."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def _without_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine has no data about time zones, as in a small image."""
    loaded = [name for name in sys.modules if name.startswith("tzdata.")]
    for module in ("tzdata", *loaded):
        monkeypatch.setitem(sys.modules, module, None)
    zoneinfo.reset_tzpath([])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()


def berlin(start: str, span: Span, calendar: Calendar | None = BERLIN) -> str:
    """Return the moment in Berlin so long after `start`, which is UTC."""
    ends = moment(datetime.fromisoformat(start).replace(tzinfo=UTC), span, calendar)
    assert ends.tzinfo == UTC
    return f"{ends:%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("start", "span", "ends"),
    [
        ("2026-03-02T08:00", BusinessTime(2, "bd"), "03-04 08:00"),
        ("2026-03-05T08:00", BusinessTime(2, "bd"), "03-09 08:00"),
        # Good Friday and Easter Monday, and summer time begins in between.
        ("2026-03-27T08:00", BusinessTime(1, "bd"), "03-30 07:00"),
        ("2026-04-02T08:00", BusinessTime(1, "bd"), "04-07 08:00"),
        ("2026-03-07T08:00", BusinessTime(1, "bd"), "03-09 08:00"),
        ("2026-03-09T08:00", BusinessTime(-1, "bd"), "03-06 08:00"),
        ("2026-03-09T08:00", BusinessTime(0, "bd"), "03-09 08:00"),
        ("2026-03-02T08:00", BusinessTime(3, "bh"), "03-02 11:00"),
        ("2026-03-02T09:30", BusinessTime(3, "bh"), "03-02 12:30"),
        ("2026-03-02T15:00", BusinessTime(3, "bh"), "03-03 10:00"),
        ("2026-03-02T05:00", BusinessTime(3, "bh"), "03-02 11:00"),
        ("2026-03-06T18:00", BusinessTime(8, "bh"), "03-09 16:00"),
        ("2026-03-07T12:00", BusinessTime(1, "bh"), "03-09 09:00"),
        ("2026-03-09T09:00", BusinessTime(-3, "bh"), "03-06 14:00"),
        ("2026-03-02T12:30", BusinessTime(-3, "bh"), "03-02 09:30"),
        ("2026-03-02T08:00", 90.0, "03-02 08:01"),
        ("2026-03-02T08:00", -3600.0, "03-02 07:00"),
    ],
)
def test_business_time_is_counted_on_working_days_and_in_their_hours(
    start: str, span: Span, ends: str
) -> None:
    assert berlin(start, span) == ends


def test_a_calendar_without_a_name_is_monday_to_friday_in_utc() -> None:
    assert berlin("2026-03-06T16:30", BusinessTime(1, "bh"), None) == "03-09 09:30"


def test_business_time_is_written_as_its_author_wrote_it() -> None:
    assert str(BusinessTime(-2, "bd")) == "-2bd"


@pytest.mark.parametrize(
    ("name", "is_known"),
    [("UTC", True), ("Europe/Berlin", True), ("Europe/Atlantis", False), ("../zone", False)],
)
def test_a_zone_is_known_by_its_name(name: str, is_known: bool) -> None:
    assert is_zone(name) is is_known


@pytest.mark.usefixtures("_without_zones")
def test_utc_is_known_where_no_other_zone_is() -> None:
    assert [is_zone(name) for name in ("UTC", "Europe/Berlin")] == [True, False]
    assert berlin("2026-03-06T16:30", BusinessTime(1, "bh"), None) == "03-09 09:30"
