"""The input of callers: limits, answers and patches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import ValidationError

from abeyance.core.json import Json
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal
from abeyance.schemas.faults import at_pointer
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import StateModel, ValuesError
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


def json_patch(patch: Mapping[str, Any]) -> dict[str, Json]:
    """Return a patch of the values as JSON. Raises `invalid_input` if it is none."""
    try:
        return StateModel(None).patch(patch)
    except ValuesError as error:
        raise error.refusal() from error
