"""The mailbox of one run over Temporal: messages are sent, taken by a visit, and discarded."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from temporalio.exceptions import ApplicationError

from abeyance import commands, names, views
from abeyance.client.reader import RunReader
from abeyance.client.rpc import RunEnded
from abeyance.commands import as_events
from abeyance.core import idempotency, mailbox, messages
from abeyance.core.events import Keyed, Message
from abeyance.core.policy import Principal
from abeyance.core.state import Called
from abeyance.errors import Code, Refusal
from abeyance.temporal.update_limiter import Turn


class RunMailbox(RunReader):
    """The messages to one run."""

    async def send_message(self, message: commands.SteerMessage) -> views.MessageReceipt:
        """Send a message by a command. The same message again (by its id) is a duplicate."""
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

    async def signal_message(self, message: commands.SteerMessage) -> str:
        """Steer by a command. Raises also `message_conflict` if this client has sent another message
        under the id.
        """
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


def with_id(message: commands.SteerMessage) -> commands.SteerMessage:
    """The message with an id, made here if it has none, so that a retry sends the same message."""
    if message.message_id is not None:
        return message
    return message.model_copy(update={"message_id": uuid.uuid4().hex})
