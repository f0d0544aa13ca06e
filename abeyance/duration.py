"""Durations: 30, "30", "30s", "5m", "2h", "2d", "PT5M" or a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from abeyance.core.terms import BusinessTime, Span

_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_BUSINESS = re.compile(r"(-?\d{1,4})\s*(bd|bh)", re.ASCII)
_UNITS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CALENDAR = re.compile(r"[+-]?P[^T]*[YM].*")
_ISO = TypeAdapter(timedelta)
_LONGEST = 100 * 365 * 86_400.0
"""In seconds. Timers cannot be much longer."""

Duration: TypeAlias = timedelta | float | str
"""A timedelta, seconds, or text such as "30s", "5m", "2h", "2d" or ISO 8601 ("PT5M", "P2D")."""


def seconds(value: object) -> float:
    """Return a duration in seconds. Raise ValueError if it is not one, or over 100 years."""
    try:
        length = _length(value)
    except (OverflowError, ValidationError):
        length = None
    shown = f"{value!r}"[:100]
    if isinstance(value, str) and _CALENDAR.fullmatch(value.strip()):
        message = (
            f"{shown} has months or years, whose length differs: say 'P30D', or 'PT5M' for minutes"
        )
        raise ValueError(message)
    if length is None or math.isnan(length):
        forms = "seconds, '30s', '5m', '2h', '2d' or ISO 8601 ('PT5M')"
        message = f"{shown} is not a duration: write {forms}"
        raise ValueError(message)
    if abs(length) > _LONGEST:
        message = f"{shown} is longer than 100 years: leave out the timeout to wait forever"
        raise ValueError(message)
    return length


def positive_seconds(value: object) -> float:
    """Return a duration above zero in seconds. Raise ValueError if it is not one."""
    length = seconds(value)
    if length <= 0:
        raise ValueError(f"{value!r} is not greater than 0")
    return length


def span(value: object) -> Span:
    """Return a length of time: seconds, or business time such as `2bd`. A minus makes it negative.

    Raise ValueError if it is neither.
    """
    if not isinstance(value, str):
        return seconds(value)
    if match := _BUSINESS.fullmatch(value.strip()):
        return BusinessTime(int(match[1]), "bd" if match[2] == "bd" else "bh")
    return -seconds(value[1:]) if value.startswith("-") else seconds(value)


def in_days(length: timedelta) -> str:
    """Return a length of time as text, such as "1 day" or "1.5 days"."""
    days = length / timedelta(days=1)
    return f"{days:g} day{'' if days == 1 else 's'}"


def as_sent(value: Span | None) -> float | str | None:
    """Return a length of time as JSON."""
    return str(value) if isinstance(value, BusinessTime) else value


def _length(value: object) -> float | None:
    match value:
        case timedelta():
            return value.total_seconds()
        case bool():
            return None
        case int() | float():
            return float(value)
        case str():
            text = value.strip()
            if match := _SHORT.fullmatch(text):
                return float(match[1]) * _UNITS[match[2]]
            is_iso = text.lstrip("+-").startswith("P")
            return _ISO.validate_python(text).total_seconds() if is_iso else None
        case _:
            return None


def _optional(value: Any) -> float | None:
    return None if value is None else seconds(value)


Seconds: TypeAlias = Annotated[float, BeforeValidator(seconds, json_schema_input_type=float | str)]
"""A field of a pydantic model that takes any form of duration and holds seconds."""

OptionalSeconds: TypeAlias = Annotated[
    float | None, BeforeValidator(_optional, json_schema_input_type=float | str | None)
]
"""The same, or None."""


def _ahead(value: Any) -> Span | None:
    if value is None or isinstance(value, BusinessTime):
        return value
    length = span(value)
    if (length.amount if isinstance(length, BusinessTime) else length) <= 0:
        raise ValueError(f"{value!r} is not greater than 0")
    return length


OptionalSpan: TypeAlias = Annotated[
    BusinessTime | float | None,
    BeforeValidator(_ahead, json_schema_input_type=float | str | None),
    PlainSerializer(as_sent),
]
"""A field that takes a length of time above zero, business time such as `2bd` included, or None."""
