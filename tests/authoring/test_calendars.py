"""Calendars of questions: how authors declare them, and what the graph keeps of them."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from abeyance import START, Calendar, Graph, GraphError
from abeyance.core import terms as core
from abeyance.core.spec import InterruptNode


def calendar_of(value: Any) -> core.Calendar:
    """Return the calendar of a question that was declared with `calendar=value`."""
    graph = Graph("shop")
    graph.interrupt("ask", prompt="?", timeout="2bd", calendar=value)
    graph.edge(START, "ask")
    node = graph.build().nodes["ask"]
    assert isinstance(node, InterruptNode)
    assert node.question.terms is not None
    assert node.question.terms.calendar is not None
    return node.question.terms.calendar


def test_a_country_and_its_subdivision_have_holidays_on_working_days_and_utc() -> None:
    calendar = calendar_of("DE-BY")

    assert (calendar.name, calendar.timezone) == ("DE-BY", "UTC")
    assert (calendar.days, calendar.opens, calendar.closes) == ((0, 1, 2, 3, 4), 540, 1020)
    # Epiphany is a holiday in Bavaria; All Saints' Day of 2026 is a Sunday.
    assert "2026-01-06" in calendar.holidays
    assert "2026-11-01" not in calendar.holidays
    assert "2026-01-06" not in calendar_of("DE").holidays
    assert (calendar.holidays[0][:4], calendar.holidays[-1][:4]) == ("2024", "2045")


def test_the_zone_of_the_short_form_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABEYANCE_TIMEZONE", "Europe/Berlin")
    assert calendar_of("DE").timezone == "Europe/Berlin"
    assert calendar_of(Calendar(country="DE", timezone="UTC")).timezone == "UTC"

    monkeypatch.setenv("ABEYANCE_TIMEZONE", "Europe/Atlantis")
    with pytest.raises(
        GraphError, match=r"ABEYANCE_TIMEZONE='Europe/Atlantis': .*no such time zone"
    ):
        calendar_of("DE")


def test_days_and_hours_may_differ() -> None:
    calendar = calendar_of(Calendar(days="sun-tue, thu", hours="00:00-24:00"))

    assert (calendar.name, calendar.holidays) == ("sun-tue, thu 00:00-24:00", ())
    assert (calendar.days, calendar.opens, calendar.closes) == ((0, 1, 3, 6), 0, 1440)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (7, "calendar= should be a country and its subdivision such as DE-BY, or a mapping, not 7"),
        ({"land": "DE"}, "calendar=: 'land' is not a key here"),
        ("in DE", "'in DE' is invalid: write 'DE-BY', or Calendar(country='DE', ...)"),
        ("de", "the country 'de' is unknown: did you mean 'DE'?"),
        ("QQQ", "the country 'QQQ' is unknown"),
        ("DE-XX", "the subdivision 'XX' of DE is unknown: DE has BB, BE, BW, BY"),
        ("MC-XX", "the subdivision 'XX' of MC is unknown: MC has none"),
        (Calendar(subdivision="BY"), "subdivision='BY' has no country: add country="),
        (Calendar(timezone="Berlin"), "timezone='Berlin' is unknown: use a name such as"),
        (Calendar(days="mon-foo"), "days='mon-foo' is invalid: write 'mon-fri'"),
        (Calendar(hours="17:00-09:00"), "hours='17:00-09:00' is invalid: write '09:00-17:00'"),
        (Calendar(hours="9-17"), "hours='9-17' is invalid"),
        (Calendar(hours="09:00-24:30"), "hours='09:00-24:30' is invalid"),
    ],
)
def test_a_fault_names_the_value_and_what_to_write(value: Any, fault: str) -> None:
    with pytest.raises(GraphError) as raised:
        calendar_of(value)
    assert fault in str(raised.value)


def test_a_calendar_without_the_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(GraphError, match=r"need the package holidays: install abeyance\[people\]"):
        calendar_of("FR")
