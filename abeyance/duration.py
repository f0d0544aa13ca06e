"""Durations: 30, "30", "30s", "5m", "2h", "2d", "PT5M" or a timedelta."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, TypeAdapter, ValidationError

_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?", re.ASCII)
_UNITS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
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
    if length is None or math.isnan(length):
        forms = "seconds, '30s', '5m', '2h', '2d' or ISO 8601 ('PT5M')"
        message = f"{shown} is not a duration: write {forms}"
        raise ValueError(message)
    if abs(length) > _LONGEST:
        message = f"{shown} is longer than 100 years: leave out the timeout to wait for ever"
        raise ValueError(message)
    return length


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
