"""Moments by the clock, and by the working days and hours of a calendar."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from abeyance.core.terms import BusinessTime, Calendar, Span

_FARTHEST: Final = 100 * 365 * 86_400.0
"""In seconds. Timers cannot be much longer."""
_EVERY_DAY: Final = Calendar(name="")


def is_zone(name: str) -> bool:
    """Return whether this machine knows a time zone. UTC it always does."""
    try:
        return name == "UTC" or ZoneInfo(name).key == name
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return False


def moment(start: datetime, span: Span, calendar: Calendar | None = None) -> datetime:
    """Return the moment so long after `start`, or before it for a negative length, in UTC.

    Business days keep the time of day in the calendar's zone. Business hours are counted within the
    hours of working days; from outside of them, counting begins at their next start, or, backwards, at
    their last end.
    """
    if not isinstance(span, BusinessTime):
        return start + timedelta(seconds=max(-_FARTHEST, min(_FARTHEST, span)))
    calendar = calendar or _EVERY_DAY
    # UTC needs no data about zones, which a small image does not have.
    zone = UTC if calendar.timezone == "UTC" else ZoneInfo(calendar.timezone)
    local = start.astimezone(zone)
    if span.amount == 0:
        return start
    if span.unit == "bd":
        following = _working_days(local.date(), span.amount, calendar, inclusive=False)
        day = next(islice(following, abs(span.amount) - 1, None))
        return datetime.combine(day, local.time(), local.tzinfo).astimezone(UTC)
    return _after_hours(local, span.amount, calendar)


def _after_hours(local: datetime, hours: int, calendar: Calendar) -> datetime:
    left = timedelta(hours=abs(hours))
    here = local.astimezone(UTC)
    days = _working_days(local.date(), hours, calendar, inclusive=True)
    while True:
        midnight = datetime.combine(next(days), time(), local.tzinfo)
        begin, end = (
            (midnight + timedelta(minutes=at)).astimezone(UTC)
            for at in (calendar.opens, calendar.closes)
        )
        if hours > 0:
            begin = max(begin, here)
        else:
            end = min(end, here)
        if end - begin >= left:
            return begin + left if hours > 0 else end - left
        left -= max(end - begin, timedelta())


def _working_days(
    day: date, direction: int, calendar: Calendar, *, inclusive: bool
) -> Iterator[date]:
    step = timedelta(days=1 if direction > 0 else -1)
    day = day if inclusive else day + step
    while True:
        if day.weekday() in calendar.days and day.isoformat() not in calendar.holidays:
            yield day
        day += step
