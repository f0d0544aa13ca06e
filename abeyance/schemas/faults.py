"""Faults: errors of pydantic as JSON pointers into the given value, with words for the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from abeyance.core.text import truncate
from abeyance.schemas.json_schema import escaped

MOST_FAULTS: Final = 20
"""The most faults that a refusal lists. A request of a megabyte can have 90,000."""
_SHOWN_CHARS: Final = 80
_JSON_NAMES: Final = {
    "dictionary or object to extract fields from": "object",
    "dictionary": "object",
    "tuple": "list",
    ", unable to parse raw data as a unicode string": " without halves of characters",
    " after validation": "",
}
"""The JSON names of types that pydantic calls by their names in Python."""


def at_pointer(error: ValidationError, given: Any = None) -> list[dict[str, str]]:
    """Return the errors of pydantic, each with a JSON pointer into the given value."""
    return [
        {
            "pointer": _pointer(entry["loc"], entry["type"], given),
            # The author's own words say enough.
            "message": entry["msg"].removeprefix("Value error, "),
        }
        for entry in error.errors(include_url=False, include_context=False, include_input=False)[
            :MOST_FAULTS
        ]
    ]


def _pointer(place: Sequence[int | str], type_: str, given: Any = None) -> str:
    """Return the JSON pointer of an error of pydantic of this type in the given value."""
    parts: list[str] = []
    here = given
    for number, part in enumerate(place, 1):
        match here:
            case Mapping() if part in here:
                here = here[part]
            case list() | tuple() if isinstance(part, int) and part < len(here):
                here = here[part]
            case None:
                pass
            case _ if type_ == "missing" and number == len(place):
                pass
            case _:
                # Pydantic also names the member of a union that it tried, which is not a place.
                continue
        parts.append(f"/{escaped(str(part))}")
    return "".join(parts)


def request_faults(errors: Sequence[Mapping[str, Any]], given: Any = None) -> list[dict[str, str]]:
    """Return the errors of pydantic in a request, each with a JSON pointer into what was given."""
    found = [entry for entry in errors if not _is_echo(entry)]
    return [
        {"pointer": _pointer(entry["loc"], entry["type"], given), "message": _message(entry)}
        for entry in found[:MOST_FAULTS]
    ]


def _is_echo(entry: Mapping[str, Any]) -> bool:
    """Return whether a list is too short only because of its faulty items, which have faults of their
    own.
    """
    given = entry["input"]
    is_short = entry["type"] == "too_short" and isinstance(given, Sequence)
    return is_short and len(given) > entry["ctx"]["actual_length"]


def _message(entry: Mapping[str, Any]) -> str:
    match entry["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not a field of this request"
        case "value_error":
            return str(entry["msg"]).removeprefix("Value error, ")
        case _:
            msg = str(entry["msg"])
            text = f"{msg[:1].lower()}{msg[1:]}"
            for word, name in _JSON_NAMES.items():
                text = text.replace(word, name)
            shown = truncate(repr(entry.get("input")), _SHOWN_CHARS)
            return f"{text} (got {shown})"
