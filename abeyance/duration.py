"""Lengths of time as people write them: 30, "30s", "5m", "2h", "2d", "PT5M", a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, TypeAdapter, ValidationError

_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO = TypeAdapter(timedelta)

Duration: TypeAlias = timedelta | float | str
"""A timedelta, seconds, or text such as "30s", "5m", "2h", "2d" or ISO 8601 ("PT5M", "P2D")."""


def seconds(value: object) -> float:
    """The duration in seconds. Raises ValueError naming the value if it is none."""
    match value:
        case timedelta():
            return value.total_seconds()
        case bool():
            pass
        case int() | float():
            return float(value)
        case str():
            if found := _SHORT.fullmatch(value.strip()):
                return float(found[1]) * _UNITS[found[2]]
            if value.lstrip("+-").startswith("P"):
                try:
                    return _ISO.validate_python(value).total_seconds()
                except ValidationError:
                    pass
        case _:
            pass
    message = (
        f"{value!r} is not a duration: write seconds, '30s', '5m', '2h', '2d' or ISO 8601 ('PT5M')"
    )
    raise ValueError(message)


def _optional(value: Any) -> float | None:
    return None if value is None else seconds(value)


Seconds: TypeAlias = Annotated[float, BeforeValidator(seconds)]
"""A field of a pydantic model that takes any form of duration and holds seconds."""

OptionalSeconds: TypeAlias = Annotated[float | None, BeforeValidator(_optional)]
"""The same, or None."""
