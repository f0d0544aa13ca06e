"""Commands made of what callers of a `RunHandle` pass, with the faults of all of it at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import EllipsisType
from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.core.events import Control
from abeyance.core.policy import Principal
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields
from abeyance.schemas.answers import answers_as_json
from abeyance.schemas.json_types import to_json
from abeyance.schemas.state_model import at_pointer
from abeyance.util import as_names

R = TypeVar("R", bound=wire.Request)
Q = TypeVar(
    "Q",
    commands.EditDeadline,
    commands.Claim,
    commands.ReleaseClaim,
    commands.Reassign,
    commands.TakeBack,
)

SIGNALS: Final[Mapping[type[commands.Order], Control]] = {
    commands.Pause: "pause",
    commands.Resume: "resume",
    commands.Cancel: "cancel",
}


class CommandedRun(ABC):
    """A run that takes commands, over Temporal or in memory: the methods of `RunHandle` that only make a
    command of what their caller passes.

    `caller` is who calls without a `principal`.
    """

    caller: ClassVar[Principal]

    @abstractmethod
    async def control(self, order: commands.Order) -> None:
        """Pause, resume or cancel by a command."""

    @abstractmethod
    async def edit(self, order: commands.Edit) -> None:
        """Edit values, a deadline or whose a question is, or take an answer back, by a command."""

    async def pause(
        self,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Start no new work, for `timeout` at most; then `on_timeout`: `resume`, `halt`, `goto:<node>`.

        A signal, as `RunHandle.pause`.
        """
        by = principal or self.caller
        about = {"reason": reason, "mode": mode, "timeout": timeout, "on_timeout": on_timeout}
        whose = {"actor": by.subject, "capabilities": tuple(by.capabilities), "key": key}
        await self.control(order_of(commands.Pause, {**about, **whose}))

    async def resume(
        self,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Resume after a pause. A signal, as `pause`."""
        actor = (principal or self.caller).subject
        about = {"reason": reason, "actor": actor, "key": key}
        await self.control(order_of(commands.Resume, about))

    async def cancel(
        self,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Cancel the run; `grace` is how long nodes may take to stop. A signal, as `pause`."""
        actor = (principal or self.caller).subject
        about = {"reason": reason, "mode": mode, "grace": grace, "actor": actor, "key": key}
        await self.control(order_of(commands.Cancel, about))

    async def edit_deadline(
        self,
        interrupt_id: str,
        *,
        deadline: datetime | EllipsisType | None = ...,
        timeout: Duration | EllipsisType | None = ...,
        on_timeout: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Move the deadline of an open interrupt, or change what happens then (`halt`, `goto:<node>`).

        None as `deadline` or `timeout` removes it. Raises as `RunHandle.edit_deadline`; in an ended run
        the status of the interrupt decides.
        """
        moved = {"deadline": deadline, "timeout": timeout}
        arguments = {name: value for name, value in moved.items() if value is not ...}
        about = {"on_timeout": on_timeout, **arguments}
        await self._edit_question(commands.EditDeadline, interrupt_id, about, principal, key)

    async def claim(
        self,
        interrupt_id: str,
        *,
        for_: Duration = commands.ONE_CLAIM,
        on_behalf_of: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Keep an open question for the caller. Raises as `RunHandle.claim`."""
        about = {"for_": for_, "on_behalf_of": on_behalf_of}
        await self._edit_question(commands.Claim, interrupt_id, about, principal, key)

    async def release(
        self, interrupt_id: str, *, principal: Principal | None = None, key: str | None = None
    ) -> None:
        """End the claim of a question. Raises as `RunHandle.release`."""
        await self._edit_question(commands.ReleaseClaim, interrupt_id, {}, principal, key)

    async def reassign(
        self,
        interrupt_id: str,
        to: str | Sequence[str],
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Replace whom a question is for. Raises as `RunHandle.reassign`."""
        about = {"to": as_names(to), "note": note}
        await self._edit_question(commands.Reassign, interrupt_id, about, principal, key)

    async def take_back(
        self,
        interrupt_id: str,
        *,
        note: str | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> None:
        """Take back a yes while its question is held. Raises as `RunHandle.take_back`."""
        await self._edit_question(commands.TakeBack, interrupt_id, {"note": note}, principal, key)

    async def _edit_question(
        self,
        kind: type[Q],
        interrupt_id: str,
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> None:
        by = {"interrupt_id": interrupt_id, "principal": principal or self.caller, "key": key}
        await self.edit(order_of(kind, {**about, **by}))


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
