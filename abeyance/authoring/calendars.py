"""The working time by which `2bd` and `3bh` are counted.

A calendar is resolved to working days, hours and holidays when the graph is built. The holidays become
part of the graph, so every replay computes the same moments, whatever a later version of the library
`holidays` says.
"""

from __future__ import annotations

import re
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from abeyance.core import terms as core
from abeyance.core.terms import is_zone
from abeyance.errors import SettingsError

YEARS: Final = range(2024, 2046)
"""The years whose holidays a calendar knows."""
_COUNTRY: Final = re.compile(r"([A-Za-z]{2,3})(?:-([\w ]{1,40}))?")
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)")
_MINUTES_OF_A_DAY: Final = 24 * 60


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Calendar:
    """The working time by which `2bd` and `3bh` are counted: the days, without the public holidays of the
    country and its subdivision. `timezone` None is `ABEYANCE_TIMEZONE`.
    """

    country: str | None = None
    subdivision: str | None = None
    timezone: str | None = None
    days: str = "mon-fri"
    hours: str = "09:00-17:00"


def calendar_of(value: str | Calendar) -> core.Calendar:
    """Resolve an author's calendar, or a country and its subdivision such as `DE-BY`.

    Raise ValueError if it is invalid.
    """
    if isinstance(value, Calendar):
        return _resolved(value)
    if match := _COUNTRY.fullmatch(value):
        return _resolved(Calendar(country=match[1], subdivision=match[2]))
    raise ValueError(f"{value!r} is invalid: write 'DE-BY', or Calendar(country='DE', ...)")


def _resolved(calendar: Calendar) -> core.Calendar:
    days, (opens, closes) = _days(calendar.days), _hours(calendar.hours)
    zone = _zone(calendar.timezone)
    country, subdivision = calendar.country, calendar.subdivision
    if country is None and subdivision is not None:
        raise ValueError(f"subdivision={subdivision!r} has no country: add country=")
    name = "-".join(part for part in (country, subdivision) if part is not None)
    holidays = () if country is None else _holidays(country, subdivision)
    return core.Calendar(
        name=name or f"{calendar.days} {calendar.hours}",
        timezone=zone,
        days=days,
        opens=opens,
        closes=closes,
        holidays=tuple(day.isoformat() for day in holidays if day.weekday() in days),
    )


@lru_cache(maxsize=64)
def _holidays(country: str, subdivision: str | None) -> tuple[date, ...]:
    try:
        import holidays  # noqa: PLC0415  (of the extra `people`)
    except ImportError as error:
        message = f"the holidays of {country!r} need the package holidays: install abeyance[people]"
        raise ValueError(message) from error
    known = holidays.list_supported_countries()
    if country not in known:
        nearest = get_close_matches(country.upper(), known, n=1)
        fix = f"did you mean {nearest[0]!r}?" if nearest else "use a code such as 'DE'"
        raise ValueError(f"the country {country!r} is unknown: {fix}")
    try:
        days = holidays.country_holidays(country, subdiv=subdivision, years=YEARS)
    except NotImplementedError as error:
        those = known[country]
        hint = f"{country} has {', '.join(those)}" if those else f"{country} has none"
        message = f"the subdivision {subdivision!r} of {country} is unknown: {hint}"
        raise ValueError(message) from error
    dates: list[date] = sorted(days)
    return tuple(dates)


def _zone(name: str | None) -> str:
    if name is None:
        from abeyance.settings import load_settings  # noqa: PLC0415  (slow to import)

        try:
            return load_settings().timezone
        except SettingsError as error:
            raise ValueError(str(error)) from error
    if not is_zone(name):
        raise ValueError(
            f"timezone={name!r} is unknown: use a name such as 'Europe/Berlin'. Zones come with the "
            "system, or with abeyance[people]"
        )
    return name


def _days(text: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(f"days={text!r} is invalid: write 'mon-fri', or 'mon,wed,sat'")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        days.update(day % 7 for day in range(begin, end + (1 if end >= begin else 8)))
    return tuple(sorted(days))


def _hours(text: str) -> tuple[int, int]:
    if match := _HOURS.fullmatch(text):
        opens = int(match[1]) * 60 + int(match[2])
        closes = int(match[3]) * 60 + int(match[4])
        if opens < closes <= _MINUTES_OF_A_DAY:
            return opens, closes
    raise ValueError(f"hours={text!r} is invalid: write '09:00-17:00', the start before the end")
