"""The updates of a run that are about its messages."""

from __future__ import annotations

from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, views, wire
    from abeyance.commands import as_events
    from abeyance.core import events, idempotency, machine, messages
    from abeyance.core.state import RunState
    from abeyance.workflows import requests


class MessageUpdates(Protocol):
    """Sending, taking and discarding messages. A protocol, as `QuestionUpdates` is one."""

    _state: RunState
    _orders: requests.Orders

    def _feed(self, event: events.Event, *, is_local: bool = False) -> None:
        """Feed an event to the run. Raise a Refusal if it is refused."""
        ...

    def _feed_update(self, event: events.Event, *, is_local: bool = False) -> None:
        """Feed the event to the run. Raise an ApplicationError if it is refused."""
        ...

    def _check_sealed(self, name: str, order: wire.Request | None) -> None:
        """Check the stamp of a request. Raise an ApplicationError if it is refused."""
        ...

    async def _recorded(self) -> None:
        """Wait until what has happened so far can be read."""
        ...

    @workflow.update(description='Send a message, get a receipt: {"message_id": ..., "text": ...}.')
    async def send_message(self, message: commands.SendMessage) -> views.MessageReceipt:
        event = as_events.message_sent(message, workflow.now(), str(workflow.uuid4()))
        with requests.refusals_as_application_errors():
            machine.check(self._state, event)
            is_known = self._state.mailbox.knows(event.message)
            if message.pause is not None:
                self._feed(as_events.control(message.pause, event.now))
        self._feed_update(event)
        receipt = self._message_receipt(event.message.message_id, duplicate=is_known)
        await self._recorded()
        return receipt

    @send_message.validator
    def _check_send_message(self, message: commands.SendMessage) -> None:
        event = as_events.message_sent(message, workflow.now(), "-")
        pauses = False
        with requests.refusals_as_application_errors():
            self._orders.check("send_message", message.stamp)
            machine.check(self._state, event)
            is_known = self._state.mailbox.knows(event.message)
            if message.pause is not None:
                pause = as_events.control(message.pause, event.now)
                machine.check(self._state, pause)
                pauses = idempotency.earlier(self._state.keys, pause) is None
        if is_known and not pauses:
            receipt = self._message_receipt(event.message.message_id, duplicate=True)
            raise requests.replayed(receipt)

    def _message_receipt(self, message_id: str, *, duplicate: bool) -> views.MessageReceipt:
        depth = len(self._state.mailbox.queue)
        return views.MessageReceipt(message_id=message_id, duplicate=duplicate, queue_depth=depth)

    @workflow.update(description="Discard the unread messages; they are listed as undelivered.")
    async def clear_messages(self, order: commands.ClearMessages | None = None) -> views.Cleared:
        count = len(self._state.mailbox.queue)
        order = order or commands.ClearMessages()
        self._feed_update(as_events.event(events.MessagesCleared, order, workflow.now()))
        await self._recorded()
        return views.Cleared(cleared=count)

    @clear_messages.validator
    def _check_clear_messages(self, order: commands.ClearMessages | None = None) -> None:
        order = order or commands.ClearMessages()
        event = as_events.event(events.MessagesCleared, order, workflow.now())
        with requests.refusals_as_application_errors():
            self._orders.check("clear_messages", order.stamp)
            called = idempotency.earlier(self._state.keys, event)
        if called is not None:
            raise requests.replayed(views.Cleared(cleared=called.receipt))

    @workflow.update(description="Internal: a visit takes its messages.")
    async def take_messages(self, order: commands.TakeMessages) -> list[events.Message]:
        event = events.MessagesTaken(now=workflow.now(), visit=order.visit, upto=order.upto)
        self._feed_update(event)
        visit = self._state.visits.get(order.visit)
        return [] if visit is None else list(visit.inbox.taken[order.start : order.upto])

    @take_messages.validator
    def _check_take_messages(self, order: commands.TakeMessages) -> None:
        self._check_sealed("take_messages", order)
        visit = self._state.visits.get(order.visit)
        if visit is not None and (
            len(visit.inbox.taken) > order.start or any(messages.for_visit(self._state, visit))
        ):
            return
        raise ApplicationError(
            f"there are no messages for {order.visit!r}", type=names.EMPTY, non_retryable=True
        )
