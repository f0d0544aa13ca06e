"""What somebody answers in Python, as the JSON that travels: nothing of it is changed on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from abeyance import wire
from abeyance.core.canonical import Json, why_not_json
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.values.statemodel import pointed

# Otherwise pydantic writes NaN as null, which is another answer.
_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


def as_json(answer: Any) -> Json:
    """An answer as JSON; one that is an instance of a model or a dataclass, an enum or a date becomes
    what its type is written as. Raises the Refusal `invalid_answer`.
    """
    try:
        found: Json = json.loads(_ANY.dump_json(answer))
        fault = why_not_json(found)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        fault = str(error)
    if fault is None:
        return found
    message = f"a {type(answer).__name__} that is no JSON: {fault}"
    raise Refusal(
        Code.INVALID_ANSWER,
        f"The answer is {message}. The interrupt stays open.",
        errors=[{"pointer": "", "message": message}],
    )


def as_asked(response: Any, answer: Json) -> Any:
    """An answer as the type that its question names; as it is, if that is none or a JSON Schema.

    Raises pydantic's ValidationError if it does not fit that.
    """
    if response is None or isinstance(response, Mapping):
        return answer
    return TypeAdapter(response).validate_json(json.dumps(answer))


def respond_order(
    answers: Mapping[str, Any] | None,
    *,
    response: Any = ...,
    principal: Principal,
    note: str | None = None,
    digests: Mapping[str, str] | None = None,
) -> wire.Respond:
    """Answers by the ids of their interrupts or, without, one `response` to the only open interrupt.

    Raises the Refusals `invalid_answer` for an answer that is no JSON, and `invalid_body` for what is
    no order.
    """
    forms: dict[str, Any] = {}
    if answers is not None:
        forms["responses"] = {id_: as_json(answer) for id_, answer in answers.items()}
    if response is not ...:
        forms["response"] = as_json(response)
    given = {**forms, "principal": principal, "note": note, "digests": dict(digests or {})}
    try:
        return wire.Respond(**given)
    except ValidationError as error:
        errors = pointed(error, given)
        told = "; ".join(f"{each['pointer'] or 'it'}: {each['message']}" for each in errors)
        raise Refusal(Code.INVALID_BODY, f"This answers nothing: {told}.", errors=errors) from error
