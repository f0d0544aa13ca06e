"""The input of callers: limits, answers and patches; and the faults of requests, in the same words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from pydantic import ValidationError

from abeyance.core.json import Json
from abeyance.core.state import Limits
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import StateModel, ValuesError, at_pointer, pointer
from abeyance.util import checked_mapping
from abeyance.wire import Request

_LEAST: Final = {
    "max_queue_size": 1,
    "max_message_length": 0,
    "max_metadata_size": 0,
    "max_visits": 1,
    "max_guard_turns": 0,
    "max_parallel_visits": 1,
    "pause_timeout": 0,
    "grace": 0,
    "finally_timeout": 0,
    "settled_kept": 1,
    "task_bytes": 1,
    "visit_bytes": 1,
    "continue_as_new_after": 3,
}

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


class _OfRun(Request):
    limits: Limits


def checked_limits(limits: Limits) -> Limits:
    """Return valid limits, or raise the Refusal `invalid_body`.

    A run that could not read its limits would retry forever.
    """
    values, given = asdict(limits), {"limits": asdict(limits)}
    errors: list[dict[str, str]] = []
    try:
        limits = _OfRun.model_validate(given).limits
    except ValidationError as error:
        for fault in at_pointer(error, given):
            value = values[fault["pointer"].split("/")[2]]
            message = f"is {value!r}: {fault['message']}"
            errors.append({"pointer": fault["pointer"], "message": message})
    else:
        for name, least in _LEAST.items():
            actual = getattr(limits, name)
            if actual is not None and not least <= actual < math.inf:
                message = f"is {values[name]!r}, and the minimum is {least}"
                errors.append({"pointer": f"/limits/{name}", "message": message})
    if errors:
        problems = "; ".join(f"{error['pointer'][8:]} {error['message']}" for error in errors)
        raise Refusal(Code.INVALID_BODY, f"The limits are invalid: {problems}.", errors=errors)
    return limits


def _as_json(answer: Any) -> Json:
    """Return an answer as JSON; a model, dataclass, enum or date is serialized. Raise the Refusal
    `invalid_answer`.
    """
    try:
        return to_json(answer)
    except (ValueError, RecursionError) as error:
        message = f"a {type(answer).__name__}, which cannot be written as JSON: {error}"
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer is {message}. The interrupt stays open.",
            errors=[{"pointer": "", "message": message}],
        ) from error


def answers_as_json(answers: Mapping[str, Any] | str | None, response: Any) -> dict[str, Json]:
    """Return the fields of a command for several answers by interrupt id, for one, or for `response`.

    Raise the Refusal `invalid_answer` for an answer that is not JSON, and `invalid_body`.
    """
    forms: dict[str, Json] = {}
    if isinstance(answers, str):
        forms["interrupt_id"] = answers
    elif answers is not None:
        by_id = checked_mapping(answers, "/responses")
        forms["responses"] = {id_: _as_json(answer) for id_, answer in by_id.items()}
    if response is not ...:
        forms["response"] = _as_json(response)
    return forms


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
        raise error.refusal() from error


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
