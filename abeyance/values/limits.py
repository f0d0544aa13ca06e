"""Whether a run can live with the limits that somebody gives it, asked before it starts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter, ValidationError

from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal
from abeyance.values.statemodel import pointed

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


def checked(limits: Limits) -> Limits:
    """The limits, each of its type. Raises the Refusal `invalid_body` for limits that no run can live
    with: one that cannot even read them would try to for ever.
    """
    given = asdict(limits)
    errors: list[dict[str, str]] = []
    try:
        limits = _LIMITS.validate_python(given)
    except ValidationError as error:
        for found in pointed(error, given):
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
