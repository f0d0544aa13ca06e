"""What somebody answers in Python, as the JSON that travels: nothing of it is changed on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from abeyance import wire
from abeyance.core.canonical import Json
from abeyance.core.policy import Principal
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal
from abeyance.values.jsonable import as_json
from abeyance.values.statemodel import pointed

if TYPE_CHECKING:
    from abeyance.handle import MessageFields

R = TypeVar("R", bound=wire.Request)


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


def respond_order(
    answers: Mapping[str, Any] | str | None,
    response: Any = ...,
    *,
    principal: Principal,
    note: str | None = None,
    digests: Mapping[str, str] | None = None,
) -> wire.Respond:
    """Answers by the ids of their interrupts, one `response` by the id of its interrupt, or one to the
    only open interrupt.

    Raises the Refusals `invalid_answer` for an answer that is no JSON, and `invalid_body` for what is
    no order.
    """
    forms = answers_as_json(answers, response)
    about = {"principal": principal, "note": note, "digests": dict(digests or {})}
    return order_of(wire.Respond, {**forms, **about}, fault="This answers nothing")


def message_order(text: str, fields: MessageFields, *, principal: Principal) -> wire.SteerMessage:
    """A message of somebody. Raises the Refusal `invalid_body` for what is none."""
    given = {name: value for name, value in fields.items() if name != "principal"}
    by = {"sender": principal.subject, "capabilities": tuple(principal.capabilities)}
    return order_of(wire.SteerMessage, {"text": text, **given, **by})


def deadline_order(
    interrupt_id: str,
    *,
    deadline: datetime | EllipsisType | None,
    timeout: Duration | EllipsisType | None,
    on_timeout: str | None,
    principal: Principal,
) -> wire.EditDeadline:
    """An edit of a deadline. Raises the Refusal `invalid_body` for what is none."""
    moved = {"deadline": deadline, "timeout": timeout}
    given = {name: value for name, value in moved.items() if value is not ...}
    about = {"interrupt_id": interrupt_id, "on_timeout": on_timeout, "principal": principal}
    return order_of(wire.EditDeadline, {**given, **about})


def order_of(
    kind: type[R], given: Mapping[str, Any], *, fault: str = "The request cannot be used"
) -> R:
    """What a caller gives, as an order. Raises the Refusal `invalid_body` for what is none."""
    try:
        return kind(**given)
    except ValidationError as error:
        errors = pointed(error, given)
        listed = "; ".join(f"{each['pointer'] or 'it'}: {each['message']}" for each in errors)
        raise Refusal(Code.INVALID_BODY, f"{fault}: {listed}.", errors=errors) from error
