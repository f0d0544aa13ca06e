"""The updates of a run: answers, edits of questions, and messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, views, wire
    from abeyance.commands import as_events
    from abeyance.core import events, idempotency, machine, messages, replies
    from abeyance.core.state import RunState
    from abeyance.workflows import answers, requests


class Updates(Protocol):
    """The updates of `AgentRun` about answers, deadlines, claims and messages.

    A protocol, because the updates need the state of the run and its one entry for events.
    """

    _state: RunState
    _stamps: requests.StampChecker

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
        """Wait until all changes so far are recorded, or the database is known to be away."""
        ...

    @workflow.update(description='Answer: {"interrupt_id": ..., "response": ...}.')
    async def respond(self, order: commands.Respond) -> views.Receipts:
        with requests.refusals_as_application_errors():
            given = self._responded(order, is_checked=True)
            event = await answers.written(self._state, given)
            if event is not given:
                # Other events may have come meanwhile.
                event = replace(event, now=max(event.now, self._state.updated_at))
                machine.check(self._state, event)
            receipts = idempotency.receipts(self._state.ledger, event)
        self._feed_update(event, is_local=event is not given)
        await self._recorded()
        return views.Receipts(receipts=receipts)

    @respond.validator
    def _check_respond(self, order: commands.Respond) -> None:
        with requests.refusals_as_application_errors():
            self._stamps.check_update("respond", order.stamp)
            event = self._responded(order)
            called = idempotency.earlier(self._state.keys, event)
            if called is not None:
                again = idempotency.receipts_again(called)
            else:
                replies.refuse_strays(event)
                event = answers.typed(self._state, event)
                machine.check(self._state, event)
                again = [*replies.check_answers(self._state.ledger, event).values()]
        if len(again) == len(event.answers):
            # A rejection responds without writing to the history.
            raise requests.replayed(views.Receipts(receipts=again))

    def _responded(self, order: commands.Respond, *, is_checked: bool = False) -> events.Responded:
        state = self._state
        return as_events.responded(
            order, state.ledger, workflow.now(), keys=state.keys, is_checked=is_checked
        )

    @workflow.update(description='Move a deadline: {"interrupt_id": ..., "timeout": "PT2H"}.')
    async def edit_deadline(self, order: commands.EditDeadline) -> None:
        await self._edit(order)

    @edit_deadline.validator
    def _check_edit_deadline(self, order: commands.EditDeadline) -> None:
        self._check_edit("edit_deadline", order)

    @workflow.update(description='Take back a yes that is held: {"interrupt_id": ...}.')
    async def take_back(self, order: commands.TakeBack) -> None:
        await self._edit(order)

    @take_back.validator
    def _check_take_back(self, order: commands.TakeBack) -> None:
        self._check_edit("take_back", order)

    @workflow.update(description='Claim a question: {"interrupt_id": ..., "for": "PT30M"}.')
    async def claim(self, order: commands.Claim) -> None:
        await self._edit(order)

    @claim.validator
    def _check_claim(self, order: commands.Claim) -> None:
        self._check_edit("claim", order)

    @workflow.update(description='End a claim: {"interrupt_id": ...}.')
    async def release(self, order: commands.ReleaseClaim) -> None:
        await self._edit(order)

    @release.validator
    def _check_release(self, order: commands.ReleaseClaim) -> None:
        self._check_edit("release", order)

    @workflow.update(description='Name other assignees: {"interrupt_id": ..., "to": ["ada"]}.')
    async def reassign(self, order: commands.Reassign) -> None:
        await self._edit(order)

    @reassign.validator
    def _check_reassign(self, order: commands.Reassign) -> None:
        self._check_edit("reassign", order)

    async def _edit(self, order: commands.Edit) -> None:
        self._feed_update(as_events.edited(order, workflow.now()))
        await self._recorded()

    def _check_edit(self, name: str, order: commands.Edit) -> None:
        event = as_events.edited(order, workflow.now())
        with requests.refusals_as_application_errors():
            self._stamps.check_update(name, order.stamp)
            called = idempotency.earlier(self._state.keys, event)
        if called is not None:
            raise requests.replayed(wire.Record())
        with requests.refusals_as_application_errors():
            machine.check(self._state, event)

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
            self._stamps.check_update("send_message", message.stamp)
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
        count = messages.unread(self._state, workflow.now())
        order = order or commands.ClearMessages()
        self._feed_update(as_events.event(events.MessagesCleared, order, workflow.now()))
        await self._recorded()
        return views.Cleared(cleared=count)

    @clear_messages.validator
    def _check_clear_messages(self, order: commands.ClearMessages | None = None) -> None:
        order = order or commands.ClearMessages()
        event = as_events.event(events.MessagesCleared, order, workflow.now())
        with requests.refusals_as_application_errors():
            self._stamps.check_update("clear_messages", order.stamp)
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
