"""The mailbox of one run over Temporal: messages are sent, taken by a visit, and discarded."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Unpack

from temporalio.exceptions import ApplicationError

from abeyance import commands, names, views
from abeyance.client.reader import RunReader
from abeyance.client.rpc import RunEnded
from abeyance.commands import as_events
from abeyance.core import idempotency, mailbox, messages
from abeyance.core.events import Keyed, Message
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.state import Called
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields
from abeyance.orders import message_order
from abeyance.temporal.update_limiter import Turn


class RunMailbox(RunReader):
    """The messages to one run."""

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> views.MessageReceipt:
        """Put a message into the mailbox, and return the run's receipt.

        The same message again (by its id) is a duplicate and changes nothing. Raises the refusals
        `invalid_message`, `action_not_allowed`, `unknown_node` for its target, `message_conflict`,
        `queue_full`, `not_running` and `unknown_run`.
        """
        return await self.send_message(order_of_message(text, fields))

    async def send_message(self, message: commands.SteerMessage) -> views.MessageReceipt:
        """Send a message by a command. Raises as `send`."""
        try:
            return await self._line.update(
                self.run_id,
                "send_message",
                with_id(message),
                views.MessageReceipt,
                Turn.SEND_MESSAGE,
            )
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
            return views.MessageReceipt.model_validate(error.details[0])
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Put a message into the mailbox by a signal, and return its id.

        Raises `unknown_run` and `not_running`, and `message_conflict` if this client has sent another
        message under the id.
        """
        return await self.signal_message(order_of_message(text, fields))

    async def signal_message(self, message: commands.SteerMessage) -> str:
        """Steer by a command. Raises as `steer`."""
        message = with_id(message)
        event = as_events.message_sent(message, datetime.now(UTC), "")
        messages.refuse_empty(event.message)
        id_ = event.message.message_id
        try:
            await self._line.signal(
                self.run_id,
                "steer",
                message,
                key=f"message {id_}",
                digest=mailbox.digest(event.message),
            )
        except RunEnded as ended:
            raise ended.described.not_running() from ended
        except Refusal as refusal:
            if refusal.code is not Code.IDEMPOTENCY_CONFLICT:
                raise
            raise mailbox.conflict(id_) from refusal
        return id_

    async def take_messages(self, order: commands.TakeMessages) -> list[Message]:
        """Take the messages of a visit. For node code only."""
        try:
            return await self._line.update(
                self.run_id, "take_messages", order, list[Message], Turn.TAKE_MESSAGES
            )
        except ApplicationError as error:
            if error.type != names.EMPTY:
                raise
            return []
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, which are reported, and return how many there were.

        A repeated `key` discards nothing that came since.
        """
        actor = "local" if principal is None else principal.subject
        order = commands.ClearMessages(actor=actor, key=key)
        try:
            cleared = await self._line.update(
                self.run_id, "clear_messages", order, views.Cleared, Turn.SEND_MESSAGE
            )
        except ApplicationError as error:
            if error.type != names.REPLAYED:
                raise
            cleared = views.Cleared.model_validate(error.details[0])
        except RunEnded as ended:
            called = await self._earlier(
                ended, as_events.messages_cleared(order, datetime.now(UTC))
            )
            if called is None:
                raise ended.described.not_running() from ended
            return int(called.receipt)
        return cleared.cleared

    async def _earlier(self, ended: RunEnded, event: Keyed) -> Called | None:
        """The same call under its key, if the run accepted it before it ended."""
        if event.key is None:
            return None
        return idempotency.earlier((await self._line.record(ended.described)).keys, event)


def order_of_message(text: str, fields: MessageFields) -> commands.SteerMessage:
    """The command for a message; without a principal, it is `temporal`'s."""
    return message_order(text, fields, principal=fields.get("principal") or TEMPORAL)


def with_id(message: commands.SteerMessage) -> commands.SteerMessage:
    """The message with an id, made here if it has none, so that a retry sends the same message."""
    if message.message_id is not None:
        return message
    return message.model_copy(update={"message_id": uuid.uuid4().hex})
