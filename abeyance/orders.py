"""Commands made of what callers of a `RunHandle` pass, with the faults of all of it at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar, Unpack

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.core.events import Control
from abeyance.core.json import Json
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields, RunHandle
from abeyance.schemas.state_model import at_pointer
from abeyance.util import without_none
from abeyance.views import MessageReceipt, Migration

R = TypeVar("R", bound=wire.Request)

SIGNALS: Final[Mapping[type[commands.Order], Control]] = {
    commands.Pause: "pause",
    commands.Resume: "resume",
    commands.Cancel: "cancel",
}


class CommandedRun(RunHandle):
    """A run that takes validated commands, over Temporal or in memory.

    `caller` is who calls without a `principal`. Methods that take a command are for callers that have one
    already, as the API has.
    """

    caller: ClassVar[Principal]

    @property
    def graph_version(self) -> str | None:
        """The version of the graph that the handle has, if it has one."""
        return None

    @abstractmethod
    async def respond_to(self, order: commands.Respond) -> list[Receipt]:
        """Answer interrupts by a command."""

    @abstractmethod
    async def control(self, order: commands.Order) -> None:
        """Pause, resume or cancel by a command."""

    @abstractmethod
    async def edit(self, order: commands.Edit) -> None:
        """Edit values, a deadline or whose a question is, or take an answer back, by a command."""

    @abstractmethod
    async def checked_patch(self, patch: Mapping[str, Any]) -> Mapping[str, Json]:
        """Return a patch of the values as their state model writes it. Raises `invalid_input`."""

    @abstractmethod
    async def migrate_by(self, order: commands.Migrate) -> Migration:
        """Migrate by a command."""

    @abstractmethod
    async def retry_by(
        self, order: commands.RetryBody, *, principal: Principal, key: str | None = None
    ) -> None:
        """Retry by a command."""

    @abstractmethod
    async def signal_message(self, message: commands.SteerMessage) -> str:
        """Steer by a command."""

    @abstractmethod
    async def send_message(self, message: commands.SteerMessage) -> MessageReceipt:
        """Send a message by a command."""

    @abstractmethod
    async def pause_and_send_message(
        self, message: commands.SteerMessage, pause: commands.Pause
    ) -> MessageReceipt:
        """Pause and send by commands."""

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        return await self.signal_message(self._message(text, fields))

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        return await self.send_message(self._message(text, fields))

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        message = self._message(text, fields)
        return await self.pause_and_send_message(message, commands.Pause(actor=message.sender))

    def _message(self, text: str, fields: MessageFields) -> commands.SteerMessage:
        return message_order(text, fields, principal=fields.get("principal") or self.caller)

    async def _respond(
        self, about: Mapping[str, Any], principal: Principal | None, key: str | None
    ) -> list[Receipt]:
        by = {"principal": principal or self.caller, **without_none(key=key)}
        answers = {"note": None, "digests": {}, **about, **by}
        order = order_of(commands.Respond, answers, fault="This answers nothing")
        return await self.respond_to(order)

    async def _control(
        self,
        kind: type[commands.Order],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> None:
        by = principal or self.caller
        whose: dict[str, Any] = {"actor": by.subject, "key": key}
        if kind is commands.Pause:
            whose["capabilities"] = tuple(by.capabilities)
        await self.control(order_of(kind, {**about, **whose}))

    async def _edit_question(
        self,
        kind: type[commands.QuestionEdit],
        interrupt_id: str,
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> None:
        by = {"interrupt_id": interrupt_id, "principal": principal or self.caller, "key": key}
        await self.edit(order_of(kind, {**about, **by}))

    async def _edit_values(
        self,
        patch: Mapping[str, Any],
        version: int | None,
        principal: Principal | None,
        key: str | None,
    ) -> None:
        checked = await self.checked_patch(patch)
        read = (await self.view()).version if version is None else version
        by = {"principal": principal or self.caller, "key": key}
        order = order_of(commands.EditValues, {"patch": checked, "version": read, **by})
        await self.edit(order)

    async def _migrate(
        self, about: Mapping[str, Json], principal: Principal | None, key: str | None
    ) -> Migration:
        by = {"principal": principal or self.caller, **without_none(key=key)}
        order = order_of(commands.Migrate, {**about, "version": self.graph_version, **by})
        return await self.migrate_by(order)

    async def _retry(
        self, about: Mapping[str, Json], principal: Principal | None, key: str | None
    ) -> None:
        order = order_of(commands.RetryBody, about)
        await self.retry_by(order, principal=principal or self.caller, key=key)


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
