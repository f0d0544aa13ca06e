"""What somebody answers in Python, as the JSON that travels: nothing of it is changed on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from abeyance.core.canonical import Json
from abeyance.errors import Code, Refusal
from abeyance.values.jsonable import as_json


def _as_json(answer: Any) -> Json:
    """An answer as JSON; one that is an instance of a model or a dataclass, an enum or a date becomes
    what its type is written as. Raises the Refusal `invalid_answer`.
    """
    try:
        return as_json(answer)
    except (ValueError, RecursionError) as error:
        message = f"a {type(answer).__name__} that is no JSON: {error}"
        raise Refusal(
            Code.INVALID_ANSWER,
            f"The answer is {message}. The interrupt stays open.",
            errors=[{"pointer": "", "message": message}],
        ) from error


def as_asked(response: Any, answer: Json) -> Any:
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
