"""Starting, answering and controlling runs from outside, over Temporal.

Every call is bounded in time, and every call that is repeated (by us or by its caller, with the same
`key`) has the effect of one. What the run refuses comes back as a `Refusal` with its code; what cannot
be reached, as `Unavailable`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from temporalio.exceptions import ApplicationError

from abeyance import arrivals, wire
from abeyance.core import keys, ledger, mailbox
from abeyance.core.events import Control, Message
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.graphs.graph import Graph
from abeyance.histories.accepted import earlier_receipts
from abeyance.histories.closed import edit_after_the_end, respond_after_the_end
from abeyance.runs.line import RPC, RunEnded
from abeyance.runs.sessions import Sessions
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.patience import patiently
from abeyance.temporal.turnstile import Turn
from abeyance.values.answers import respond_order
from abeyance.values.statemodel import ValuesError


class Client(Sessions):
    """The runs of one deployment: to start, to answer, to control, and to read."""

    async def respond(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,
        *,
        response: Any = ...,
        principal: Principal,
        note: str | None = None,
        digests: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> list[ledger.Receipt]:
        """Answer interrupts by id, all or nothing; or, with `response`, the only open one.

        An answer is JSON, or an instance of what the question names as its `response`. The same
        answer again gets the first receipt, also after the run has ended. Raises the
        refusals of the respond table; nothing of a refused call is applied.
        """
        order = respond_order(
            answers, response=response, principal=principal, note=note, digests=digests
        )
        return await self.respond_to(run_id, order, key=key)

    async def respond_to(
        self, run_id: str, order: wire.Respond, *, key: str | None = None
    ) -> list[ledger.Receipt]:
        """Answer as an order says."""
        if is_all_sealed(self.temporal.data_converter):
            order = await self._bound(run_id, order)
        try:
            receipts = await self._line.update(
                run_id, "respond", order, wire.Receipts, Turn.RESPOND, key=key
            )
        except ApplicationError as error:
            if error.type != wire.REPLAYED:
                raise
            receipts = wire.Receipts.model_validate(error.details[0])
        except RunEnded as ended:
            return respond_after_the_end(await self._line.record(ended.described), order)
        return receipts.receipts

    async def _bound(self, run_id: str, order: wire.Respond) -> wire.Respond:
        """The order, good for the questions only that are asked now, as they are asked now."""
        asked = {entry.id: entry.digest or "" for entry in await self.interrupts(run_id)}
        answered = set(order.responses or filter(None, [order.interrupt_id]))
        if not answered and len(asked) == 1:
            answered = set(asked)
        shown = {id_: order.digests.get(id_, asked[id_]) for id_ in answered if id_ in asked}
        return order.stamped(wire.Stamp(order="respond", shown=shown))

    async def earlier_receipts(self, run_id: str, key: str) -> list[ledger.Receipt] | None:
        """What an accepted `respond` with this key got; None if there was none. Raises `unknown_run`."""
        await self._line.admit(run_id)
        ask = partial(earlier_receipts, self.temporal, run_id, key, RPC)
        if (found := await patiently(run_id, ask, seconds=self.patience)) is not None:
            return found
        before = await self._line.accepted_before(run_id, "respond", key=key)
        return None if before is None else wire.Receipts.model_validate(before.result).receipts

    async def refuse_natively_paused(self, run_id: str) -> None:
        """Raise the refusal `natively_paused` if the run is paused through Temporal itself."""
        await self._line.refuse_natively_paused(run_id)

    async def pause(self, run_id: str, order: wire.Pause | None = None) -> None:
        """Start no new work. Raises `unknown_run` and `not_running`.

        This, `resume`, `cancel` and `steer` return once Temporal has the signal. What the run refuses is
        told by its events. With the `key` of an order again they have no further effect. A key that came
        with another order is an `idempotency_conflict`, which is raised if this client sent that order.
        """
        await self._control(run_id, "pause", order or wire.Pause())

    async def resume(self, run_id: str, order: wire.Resume | None = None) -> None:
        """Go on after a pause. Raises `unknown_run` and `not_running`."""
        await self._control(run_id, "resume", order or wire.Resume())

    async def cancel(self, run_id: str, order: wire.Cancel | None = None) -> None:
        """End the run in good order. Raises `unknown_run` and `not_running`."""
        await self._control(run_id, "cancel", order or wire.Cancel())

    async def edit_values(
        self,
        run_id: str,
        patch: Mapping[str, Any],
        *,
        graph: Graph,
        version: int,
        principal: Principal,
        key: str | None = None,
    ) -> wire.RunView:
        """Set fields of the values of a run that is paused or waits, if they are still at `version`.

        The patch is held against the state of `graph`, which has to be the run's. Raises
        `invalid_input`, `not_stopped`, `stale`, `capability_required`, `unknown_run`, `not_running`.
        """
        try:
            checked = graph.states.patch(patch)
        except ValuesError as error:
            described = await self._line.described(run_id)
            if not described.is_running:
                raise described.not_running() from error
            raise Refusal(Code.INVALID_INPUT, f"{error}.", errors=error.errors) from error
        order = wire.EditValues(patch=checked, version=version, principal=principal)
        await self._edit(run_id, "edit_values", order, key)
        return await self.view(run_id)

    async def edit_deadline(
        self, run_id: str, order: wire.EditDeadline, *, key: str | None = None
    ) -> wire.InterruptView:
        """Move the deadline of an open interrupt, or change what happens then.

        Raises `unknown_interrupt`, `already_answered`, `withdrawn`, `capability_required`,
        `unknown_node`, `invalid_body`, `unknown_run`. Of an ended run the interrupt's own state decides.
        """
        await self._edit(run_id, "edit_deadline", order, key)
        if (edited := await self.interrupt(run_id, order.interrupt_id)) is not None:
            return edited
        raise Unavailable(f"the run {run_id!r} cannot be read now; the deadline was moved")

    async def _edit(self, run_id: str, name: str, order: wire.Request, key: str | None) -> None:
        if key is not None and await self._line.repeats(run_id, name, order, key=key):
            return
        try:
            await self._line.update(run_id, name, order, None, Turn.RESPOND, key=key)
        except RunEnded as ended:
            if isinstance(order, wire.EditDeadline):
                record = await self._line.record(ended.described)
                raise edit_after_the_end(record, order) from ended
            raise ended.described.not_running() from ended
        if key is not None:
            await self._line.check_same(run_id, name, order, key=key)

    async def send_message(
        self, run_id: str, message: wire.SteerMessage, *, key: str | None = None
    ) -> wire.MessageReceipt:
        """Put a message into the run's mailbox, in one round trip.

        The same message again (by its id) is a duplicate and changes nothing. Raises the refusals
        `invalid_message`, `action_not_allowed`, `unknown_node` for its target, `message_conflict`,
        `queue_full`, `not_running` and `unknown_run`.
        """
        try:
            return await self._line.update(
                run_id,
                "send_message",
                _named(message),
                wire.MessageReceipt,
                Turn.SEND_MESSAGE,
                # Not the message's own id: the mailbox knows that one, and says so.
                key=key,
            )
        except ApplicationError as error:
            if error.type != wire.REPLAYED:
                raise
            return wire.MessageReceipt.model_validate(error.details[0])
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def steer(self, run_id: str, message: wire.SteerMessage) -> str:
        """Put a message into the run's mailbox by a signal; returns the id of the message.

        Raises `unknown_run` and `not_running`, and `message_conflict` if this client has sent another
        message under the id.
        """
        message = _named(message)
        event = arrivals.message_sent(message, datetime.now(UTC), "")
        id_ = event.message.message_id
        try:
            await self._line.signal(
                run_id,
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

    async def take_messages(self, run_id: str, order: wire.TakeMessages) -> list[Message]:
        """What a visit takes; none if there is none for it. Not for people."""
        try:
            return await self._line.update(
                run_id, "take_messages", order, list[Message], Turn.TAKE_MESSAGES, key=None
            )
        except ApplicationError as error:
            if error.type != wire.EMPTY:
                raise
            return []
        except RunEnded as ended:
            raise ended.described.not_running() from ended

    async def clear_messages(
        self, run_id: str, *, actor: str = "local", key: str | None = None
    ) -> int:
        """Throw the unread messages away, which are reported, and return how many there were.

        With the same `key` again, what came since stays.
        """
        order = wire.ClearMessages(actor=actor)
        before = key and await self._line.repeats(run_id, "clear_messages", order, key=key)
        if before:
            return wire.Cleared.model_validate(before.result).cleared
        try:
            cleared = await self._line.update(
                run_id, "clear_messages", order, wire.Cleared, Turn.SEND_MESSAGE, key=key
            )
        except RunEnded as ended:
            raise ended.described.not_running() from ended
        return cleared.cleared

    async def pause_and_send(
        self, run_id: str, message: wire.SteerMessage, pause: wire.Pause | None = None
    ) -> wire.MessageReceipt:
        """Pause the run, and put a message into its mailbox, which is read when it goes on.

        A message that is refused pauses nothing. Raises what `send_message` raises, and `unknown_node`
        and `idempotency_conflict` of the pause. Where no worker is up both are sent as signals.
        """
        pause = pause or wire.Pause()
        message = _named(message)
        try:
            return await self.send_message(run_id, wire.SendMessage(**dict(message), pause=pause))
        except Unavailable:
            pass
        except Refusal as refusal:
            if refusal.code is not Code.NATIVELY_PAUSED:
                raise
        await self.pause(run_id, pause)
        sent = await self.steer(run_id, message)
        return wire.MessageReceipt(message_id=sent, duplicate=False, queue_depth=None)

    async def _control(self, run_id: str, signal: Control, order: wire.Order) -> None:
        event = arrivals.control(order, datetime.now(UTC))
        try:
            await self._line.signal(run_id, signal, order, key=order.key, digest=keys.digest(event))
        except RunEnded as ended:
            if order.key is not None:
                record = await self._line.record(ended.described)
                if keys.is_repeat(record.controls, event):
                    return
            raise ended.described.not_running() from ended


def _named(message: wire.SteerMessage) -> wire.SteerMessage:
    # Named here, so that sending it again is known to be sending the same.
    if message.message_id is not None:
        return message
    return message.model_copy(update={"message_id": uuid.uuid4().hex})
