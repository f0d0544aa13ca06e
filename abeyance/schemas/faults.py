"""What is wrong with a request, in the same words over HTTP, over Temporal and in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal
from abeyance.schemas.state_model import StateModel, ValuesError, pointer

MOST_FAULTS: Final = 20
"""How many faults of a request are told. One of a megabyte can have 90,000."""
_SHOWN_CHARS: Final = 80
_JSON_NAMES: Final = {
    "dictionary or object to extract fields from": "object",
    "dictionary": "object",
    "tuple": "list",
    " after validation": "",
}
"""What pydantic calls by its name in Python, as callers call it."""


def request_faults(errors: Sequence[Mapping[str, Any]], given: Any = None) -> list[dict[str, str]]:
    """Return the errors of pydantic in a request, each with a JSON pointer into what was given."""
    found = [entry for entry in errors if not _is_echo(entry)]
    return [
        {"pointer": pointer(entry["loc"], entry["type"], given), "message": _message(entry)}
        for entry in found[:MOST_FAULTS]
    ]


def json_patch(patch: Mapping[str, Any]) -> dict[str, Json]:
    """Return a patch of the values as JSON. Raises `invalid_input` if it is none."""
    try:
        return StateModel(None).patch(patch)
    except ValuesError as error:
        raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error


def _is_echo(entry: Mapping[str, Any]) -> bool:
    """Return whether a list is too short only by its faulty items, of which each is told."""
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
