"""Whether a run can live with the limits that somebody gives it, asked before it starts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from abeyance.core.json import Json
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import at_pointer

_LIMITS: Final = TypeAdapter(Limits)
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


def checked_limits(limits: Limits) -> Limits:
    """The limits, each of its type. Raises the Refusal `invalid_body` for limits that no run can live
    with: one that cannot even read them would try to for ever.
    """
    given = asdict(limits)
    errors: list[dict[str, str]] = []
    try:
        limits = _LIMITS.validate_python(given)
    except ValidationError as error:
        for found in at_pointer(error, given):
            value = given[found["pointer"].split("/")[1]]
            message = f"is {value!r}: {found['message']}"
            errors.append({"pointer": f"/limits{found['pointer']}", "message": message})
    else:
        for name, least in _LEAST.items():
            actual = getattr(limits, name)
            if actual is not None and not least <= actual < math.inf:
                message = f"is {given[name]!r}, and the least is {least}"
                errors.append({"pointer": f"/limits/{name}", "message": message})
    if errors:
        told = "; ".join(f"{error['pointer'][8:]} {error['message']}" for error in errors)
        raise Refusal(Code.INVALID_BODY, f"No run can live with its limits: {told}.", errors=errors)
    return limits


def _as_json(answer: Any) -> Json:
    """An answer as JSON; one that is an instance of a model or a dataclass, an enum or a date becomes
    what its type is written as. Raises the Refusal `invalid_answer`.
    """
    try:
        return to_json(answer)
    except (ValueError, RecursionError) as error:
        message = f"a {type(answer).__name__} that is no JSON: {error}"
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer is {message}. The interrupt stays open.",
            errors=[{"pointer": "", "message": message}],
        ) from error


def parse_answer(response: Any, answer: Json) -> Any:
    """An answer as the type that its question names; as it is, if that is none or a JSON Schema.

    Raises pydantic's ValidationError if it does not fit that.
    """
    if response is None or isinstance(response, Mapping):
        return answer
    return TypeAdapter(response).validate_json(json.dumps(answer))


def answers_as_json(answers: Mapping[str, Any] | str | None, response: Any) -> dict[str, Json]:
    """The members of an order that hold its answers: several by the ids of their interrupts, one by its
    id, or only the `response`. Raises the Refusal `invalid_answer` for an answer that is no JSON.
    """
    forms: dict[str, Json] = {}
    if isinstance(answers, str):
        forms["interrupt_id"] = answers
    elif answers is not None:
        forms["responses"] = {id_: _as_json(answer) for id_, answer in answers.items()}
    if response is not ...:
        forms["response"] = _as_json(response)
    return forms
