"""Commands made of what callers of a `RunHandle` pass, with the faults of all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import EllipsisType
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.core.policy import Principal
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields
from abeyance.schemas.answers import answers_as_json
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import at_pointer

R = TypeVar("R", bound=wire.Request)


def migrate_order(
    *,
    patch: Mapping[str, Any] | None,
    renames: Mapping[str, str] | None,
    dry_run: bool,
    principal: Principal,
    key: str | None,
    version: str | None = None,
) -> commands.Migrate:
    """Return the command of a migration. Raises the Refusal `invalid_body`."""
    changes = {"patch": to_json(dict(patch or {})), "map": dict(renames or {}), "dry_run": dry_run}
    about = {"principal": principal, "version": version, **({} if key is None else {"key": key})}
    return order_of(commands.Migrate, {**changes, **about})


def retry_order(
    *,
    graph: Literal["pinned", "today"],
    patch: Mapping[str, Any] | None,
    renames: Mapping[str, str] | None,
) -> commands.RetryBody:
    """Return the command of a retry. Raises the Refusal `invalid_body`."""
    changes = {"patch": to_json(dict(patch or {})), "map": dict(renames or {}), "graph": graph}
    return order_of(commands.RetryBody, changes)


def respond_order(
    answers: Mapping[str, Any] | str | None,
    response: Any = ...,
    *,
    principal: Principal,
    note: str | None = None,
    digests: Mapping[str, str] | None = None,
    on_behalf_of: str | None = None,
    key: str | None = None,
) -> commands.Respond:
    """Return the command of answers: several by id, one by id, or one to the only open interrupt.

    Raises the Refusals `invalid_answer` for an answer that is not JSON, and `invalid_body`.
    """
    forms = answers_as_json(answers, response)
    about = {"principal": principal, "note": note, "digests": dict(digests or {})}
    about |= {} if key is None else {"key": key}
    about |= {} if on_behalf_of is None else {"on_behalf_of": on_behalf_of}
    return order_of(commands.Respond, {**forms, **about}, fault="This answers nothing")


def message_order(
    text: str, fields: MessageFields, *, principal: Principal
) -> commands.SteerMessage:
    """Return the command of a message. Raises the Refusal `invalid_body`."""
    arguments = {name: value for name, value in fields.items() if name != "principal"}
    by = {"sender": principal.subject, "capabilities": tuple(principal.capabilities)}
    return order_of(commands.SteerMessage, {"text": text, **arguments, **by})


def deadline_order(
    interrupt_id: str,
    *,
    deadline: datetime | EllipsisType | None,
    timeout: Duration | EllipsisType | None,
    on_timeout: str | None,
    principal: Principal,
    key: str | None,
) -> commands.EditDeadline:
    """Return the command of a deadline's edit. Raises the Refusal `invalid_body`."""
    moved = {"deadline": deadline, "timeout": timeout}
    arguments = {name: value for name, value in moved.items() if value is not ...}
    about = {"interrupt_id": interrupt_id, "on_timeout": on_timeout, "principal": principal}
    about |= {} if key is None else {"key": key}
    return order_of(commands.EditDeadline, {**arguments, **about})


def order_of(
    kind: type[R], arguments: Mapping[str, Any], *, fault: str = "The request is invalid"
) -> R:
    """Validate arguments as a command. Raises the Refusal `invalid_body`."""
    try:
        return kind(**arguments)
    except ValidationError as error:
        errors = at_pointer(error, arguments)
        listed = "; ".join(f"{each['pointer'] or 'it'}: {each['message']}" for each in errors)
        raise Refusal(Code.INVALID_BODY, f"{fault}: {listed}.", errors=errors) from error
