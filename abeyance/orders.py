"""Commands made of the arguments of a `RunHandle`, with all faults at once."""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Final, TypeVar, Unpack, assert_never

from pydantic import ValidationError

from abeyance import commands, wire
from abeyance.commands.lists import known_statuses
from abeyance.core.events import Control
from abeyance.core.json import Json, why_not_json
from abeyance.core.ledger import Receipt
from abeyance.core.migration import CODE_UNDER_WAY
from abeyance.core.policy import Principal
from abeyance.errors import Refusal
from abeyance.filters import ApprovalsFilter, EventFilter, InboxFilter, RunFilter
from abeyance.handle import MessageFields, RunHandle
from abeyance.runtime.graph_today import cannot_migrate, is_under_way
from abeyance.schemas.faults import request_faults
from abeyance.util import checked_key, invalid, without_none
from abeyance.views import UNTIL_BLOCKED, MessageReceipt, Migration, Rewind

R = TypeVar("R", bound=wire.Request)
C = TypeVar("C", bound=commands.Order)

SIGNALS: Final[Mapping[type[commands.Order], Control]] = {
    commands.Pause: "pause",
    commands.Resume: "resume",
    commands.Cancel: "cancel",
}


AT_KEY: Final = {"pointer": "/key"}
REST_SECONDS: Final = 45.0
"""How long a migration waits for the code of a run to end: less than the read timeout over HTTP."""
_REST_POLL_SECONDS: Final = 0.25
FOR_MIGRATION: Final = "until it is migrated"
"""The reason of a pause that lets a run come to rest for a migration."""
_FOREVER: Final = 1e10
"""In seconds: some centuries. Adding a much larger number to a time would overflow."""


class CommandedRun(RunHandle):
    """A run that takes validated commands, over Temporal or in memory.

    `caller` is the principal of calls without one. Methods that take a command are for callers that have
    a command already, such as the API.
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
        """Edit values, a deadline, a claim or assignees, or take an answer back, by a command."""

    @abstractmethod
    async def checked_patch(self, patch: Mapping[str, Any]) -> Mapping[str, Json]:
        """Return a patch of the values as their state model writes it. Raises `invalid_input`."""

    @abstractmethod
    async def migrate_by(self, order: commands.Migrate) -> Migration:
        """Migrate by a command. Raises `cannot_migrate` for a run that is not at rest."""

    async def migrate_at_rest(self, order: commands.Migrate, *, pause: bool) -> Migration:
        """Migrate by a command. With `pause`, a run that is not at rest is paused until it is, at most
        for REST_SECONDS, and goes on afterwards, unless somebody else has paused it.
        """
        if not pause:
            return await self.migrate_by(order)
        if order.dry_run:
            tried = await self.migrate_by(order)
            # The pause would let the code under way end, so that code is not an obstacle.
            left = [each for each in tried.obstacles if each.what != CODE_UNDER_WAY]
            return tried.model_copy(update={"obstacles": left})
        try:
            done = await self.migrate_by(order)
        except Refusal as refusal:
            if not is_under_way(refusal):
                raise
            done = await self._pause_and_migrate(order)
        await self._go_on(order.principal)
        return done

    async def _pause_and_migrate(self, order: commands.Migrate) -> Migration:
        tried = await self.migrate_by(order.model_copy(update={"dry_run": True}))
        if any(each.what != CODE_UNDER_WAY for each in tried.obstacles):
            raise cannot_migrate(tried.obstacles)
        if tried.before == tried.after and not order.patch:
            # The run is already at today's graph.
            return tried.model_copy(update={"dry_run": False, "obstacles": []})
        await self.control(_pause_or_resume(commands.Pause, order.principal))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REST_SECONDS
        while True:
            try:
                return await self.migrate_by(order)
            except Refusal as refusal:
                if not is_under_way(refusal):
                    await self._go_on(order.principal)
                    raise
                if loop.time() > deadline:
                    raise _not_at_rest(refusal) from refusal
            await asyncio.sleep(_REST_POLL_SECONDS)

    async def _go_on(self, by: Principal) -> None:
        """Resume the run if it was paused by this call, or by an earlier one that was cut off."""
        pause = (await self.view()).pause
        if pause is not None and pause.reason == FOR_MIGRATION:
            await self.control(_pause_or_resume(commands.Resume, by))

    @abstractmethod
    async def retry_by(
        self, order: commands.RetryBody, *, principal: Principal, key: str | None = None
    ) -> None:
        """Retry by a command."""

    @abstractmethod
    async def rewind_by(
        self, order: commands.RewindBody, *, principal: Principal, key: str | None = None
    ) -> Rewind:
        """Rewind by a command."""

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
        # With the message's id as its key, a repeated call pauses only once.
        pause = commands.Pause(actor=message.sender, key=message.message_id)
        return await self.pause_and_send_message(message, pause)

    def _message(self, text: str, fields: MessageFields) -> commands.SteerMessage:
        return message_order(text, fields, principal=fields.get("principal") or self.caller)

    async def _send(
        self,
        kind: type[commands.Command],
        about: Mapping[str, Any],
        principal: Principal | None,
        key: str | None,
    ) -> Any:
        by = principal or self.caller
        whose = {"principal": by, **without_none(key=key)}
        if issubclass(kind, commands.Control):
            return await self.control(control_order(kind, about, by, key))
        if issubclass(kind, commands.Respond):
            answers = {"note": None, "digests": {}, **about, **whose}
            return await self.respond_to(order_of(kind, answers))
        if issubclass(kind, commands.EditValues):
            about = {**about, "patch": await self.checked_patch(about["patch"])}
        if issubclass(kind, commands.OfPrincipal):
            return await self.edit(order_of(kind, {**about, **whose}))
        body = order_of(kind, about)
        key = checked_key(key, AT_KEY)
        match body:
            case commands.MigrateBody(pause=pause):
                fields = {
                    name: getattr(body, name) for name in commands.MigrationFields.model_fields
                }
                order = commands.Migrate(**fields, version=self.graph_version, **whose)
                return await self.migrate_at_rest(order, pause=pause)
            case commands.RetryBody():
                return await self.retry_by(body, principal=by, key=key)
            case commands.RewindBody():
                return await self.rewind_by(body, principal=by, key=key)
            case _:
                assert_never(body)


def _not_at_rest(refusal: Refusal) -> Refusal:
    nodes = ", ".join(repr(each["name"]) for each in refusal.details["obstacles"])
    return Refusal(
        refusal.code,
        f"The run is paused, and after {REST_SECONDS:g} seconds its code is still under way ({nodes}). "
        "It is not migrated, and stays paused: repeat the call, or resume the run.",
        **refusal.details,
    )


def _pause_or_resume(kind: type[C], by: Principal) -> C:
    return control_order(kind, {"reason": FOR_MIGRATION}, by, None)


def message_order(
    text: str, fields: MessageFields, *, principal: Principal
) -> commands.SteerMessage:
    """Return the command of a message. Raises the Refusal `invalid_body`."""
    body = message_of(text, fields)
    by = {"sender": principal.subject, "capabilities": tuple(principal.capabilities)}
    given = {name: getattr(body, name) for name in body.model_fields_set}
    return order_of(commands.SteerMessage, {**given, **by})


def message_of(text: str, fields: MessageFields) -> commands.MessageBody:
    """Return a message without its sender. Raises the Refusal `invalid_body`."""
    given = {"text": text, **fields}
    members = {name: value for name, value in given.items() if name != "principal"}
    for name in ("text", "metadata", "params"):
        if (fault := why_not_json(members.get(name))) is not None:
            raise invalid([{"pointer": f"/{name}", "message": f"is not JSON: {fault}"}])
    return order_of(commands.MessageBody, members)


def awaited(until: Collection[str], timeout: float) -> tuple[frozenset[str], float]:
    """Return the arguments of a `wait`, checked. Raises the Refusal `invalid_body`."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    # The comparison also accepts an int that no float can hold, and refuses NaN.
    if not (is_number and timeout <= math.inf):
        raise invalid(
            [{"pointer": "/timeout", "message": f"{timeout!r} is not a number of seconds"}]
        )
    try:
        names = (until,) if isinstance(until, str) else tuple(until)
        statuses = known_statuses(names, UNTIL_BLOCKED)
    except (TypeError, ValueError) as error:
        raise invalid([{"pointer": "/until", "message": str(error)}]) from error
    return frozenset(statuses), max(-_FOREVER, min(timeout, _FOREVER))


def check_page(
    kind: type[R],
    filters: RunFilter | InboxFilter | EventFilter | ApprovalsFilter,
    **beside: Any,
) -> R:
    """Return a filter, and the arguments `beside` it, as a command. Raises the Refusal `invalid_body`."""
    names = {each.name for each in fields(filters)} & kind.model_fields.keys()
    named = {name: getattr(filters, name) for name in names}
    return order_of(kind, {**named, **beside})


def control_order(kind: type[C], about: Mapping[str, Any], by: Principal, key: str | None) -> C:
    """Return the command of a control operation. Raises the Refusal `invalid_body`."""
    whose: dict[str, Any] = {"actor": by.subject, "key": key}
    if kind is commands.Pause:
        whose["capabilities"] = tuple(by.capabilities)
    return order_of(kind, {**about, **whose})


def body_of(kind: type[R], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validate arguments as a command, and return it as JSON. Raises the Refusal `invalid_body`."""
    sent: dict[str, Any] = order_of(kind, arguments).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    return sent


def order_of(kind: type[R], arguments: Mapping[str, Any]) -> R:
    """Validate arguments as a command. Raises the Refusal `invalid_body`."""
    checked_key(arguments.get("key"), AT_KEY)
    try:
        return kind(**arguments)
    except ValidationError as error:
        raise invalid(request_faults(error.errors(include_url=False), arguments)) from error
