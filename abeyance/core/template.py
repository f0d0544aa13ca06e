"""Filling `{field}` in a prompt: once, with plain values, never evaluated.

A field is a plain name, and dots walk mappings only: there is no attribute access, no index, no
format specification, so a prompt can show what is in the values and nothing else. What was put in is
not looked at again, so a value that contains `{secret}` shows just that. A field that is missing
stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from abeyance.core.json import Json, canonical

_FIELD = re.compile(r"\{([A-Za-z_]\w*(?:\.\w+)*)\}")
_MISSING = object()


def fill(text: str, values: Mapping[str, Json]) -> str:
    """The text with every known `{field}` replaced by its value."""

    def replacement(found: re.Match[str]) -> str:
        value = look_up(values, found[1], _MISSING)
        if value is _MISSING:
            return found[0]
        return value if isinstance(value, str) else canonical(value)

    return _FIELD.sub(replacement, text)


def fill_all(value: Json, values: Mapping[str, Json]) -> Json:
    """A JSON value with every text in it filled; keys stay as they are."""
    match value:
        case str():
            return fill(value, values)
        case Mapping():
            return {key: fill_all(item, values) for key, item in value.items()}
        case list() | tuple():
            return [fill_all(item, values) for item in value]
        case _:
            return value


def paths(value: Json) -> Iterator[str]:
    """The paths of all fields in the texts of a JSON value, whether or not there are such fields."""
    match value:
        case str():
            yield from _FIELD.findall(value)
        case Mapping():
            for item in value.values():
                yield from paths(item)
        case list() | tuple():
            for item in value:
                yield from paths(item)
        case _:
            pass


def look_up(values: Mapping[str, Json], path: str, missing: Json = None) -> Json:
    """The value at a dotted path through mappings, or `missing`."""
    found: Json = values
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return missing
        found = found[name]
    return found
