"""Signals and messages to a run in memory."""

from __future__ import annotations

from typing import Final, Unpack

from abeyance import commands
from abeyance.commands import as_events
from abeyance.core import events, idempotency, machine, messages
from abeyance.core.events import MessageSent
from abeyance.core.policy import EVERYTHING, Principal
from abeyance.errors import Code, Refusal
from abeyance.handle import MessageFields
from abeyance.orders import SIGNALS, CommandedRun, message_order, order_of
from abeyance.testing.reader import InMemoryReader
from abeyance.views import MessageReceipt, MessageView

ANYBODY: Final = Principal(subject="tester", capabilities=(EVERYTHING,))


class InMemoryControl(CommandedRun, InMemoryReader):
    """The half of a run in memory that is controlled by signals, and reads messages."""

    caller = ANYBODY

    _sent: int
    """The number of messages that were sent, by which they get their ids."""

    async def control(self, order: commands.Order) -> None:
        """Pause, resume or cancel by a command.

        Sent as a signal: a refusal is published as the event `signal.refused`.
        """
        event = as_events.control(order, self.now)
        if idempotency.earlier(self.state.keys, event) is not None:
            return
        self._refuse_ended()
        try:
            await self._driver.feed(event)
        except Refusal as refusal:
            refused = events.SignalRefused(
                now=self.now,
                signal=SIGNALS[type(order)],
                code=str(refusal.code),
                reason=refusal.message,
            )
            await self._driver.feed(refused)

    def _refuse_ended(self) -> None:
        if self.state.finished:
            raise Refusal(Code.NOT_RUNNING, f"The run {self.run_id!r} has ended ({self.status}).")

    async def steer(self, text: str = "", **fields: Unpack[MessageFields]) -> str:
        """Send a message as a signal, and return its id.

        A rejection is published as the event `message.rejected`.
        """
        sent = self._message(text, fields, signalled=True)
        messages.refuse_empty(sent.message)
        self._refuse_ended()
        await self._driver.feed(sent)
        return sent.message.message_id

    async def send(self, text: str = "", **fields: Unpack[MessageFields]) -> MessageReceipt:
        """Send a message, and return its receipt. Raise the Refusal if the run refuses it."""
        sent = self._message(text, fields)
        is_duplicate = self.state.mailbox.knows(sent.message)
        await self._driver.feed(sent)
        return MessageReceipt(
            message_id=sent.message.message_id,
            duplicate=is_duplicate,
            queue_depth=len(self.state.mailbox.queue),
        )

    async def pause_and_send(
        self, text: str = "", **fields: Unpack[MessageFields]
    ) -> MessageReceipt:
        """Pause the run, and send a message that is read when it resumes.

        If the run refuses the message, it is not paused.
        """
        sent = self._message(text, fields)
        machine.check(self.state, sent)
        await self.pause(principal=fields.get("principal"))
        fields["message_id"] = sent.message.message_id
        return await self.send(text, **fields)

    def _message(self, text: str, fields: MessageFields, *, signalled: bool = False) -> MessageSent:
        self._sent += 1
        order = message_order(text, fields, principal=fields.get("principal") or ANYBODY)
        sent = as_events.message_sent(order, self.now, f"m{self._sent}", signalled=signalled)
        named = {"message_id": sent.message.message_id}
        self._driver.orders.add("send_message", {**order.model_dump(mode="json"), **named})
        return sent

    async def messages(self) -> list[MessageView]:
        """Return the unread messages, next first."""
        return [MessageView.of(message) for message in self.state.mailbox.queue]

    async def clear_messages(
        self, *, principal: Principal | None = None, key: str | None = None
    ) -> int:
        """Discard the unread messages, publish that, and return their number."""
        actor = (principal or ANYBODY).subject
        order = order_of(commands.ClearMessages, {"actor": actor, "key": key})
        event = as_events.messages_cleared(order, self.now)
        if (earlier := idempotency.earlier(self.state.keys, event)) is not None:
            return int(earlier.receipt)
        count = len(self.state.mailbox.queue)
        await self._driver.feed(event)
        return count
