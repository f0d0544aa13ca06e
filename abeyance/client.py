"""Starting, answering and controlling runs from outside, over Temporal.

Every call is bounded in time, and every call that is repeated (by us or by its caller, with the same
`key`) has the effect of one. What the run refuses comes back as a `Refusal` with its code; what cannot
be reached, as `Unavailable`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from temporalio.exceptions import ApplicationError

from abeyance import wire
from abeyance.core import authority, ledger
from abeyance.core.events import Message
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.graphs.graph import Graph
from abeyance.histories.accepted import earlier_receipts
from abeyance.histories.closed import edit_after_the_end, respond_after_the_end
from abeyance.runs.controlled import Order, was_done
from abeyance.runs.line import RPC, RunEnded
from abeyance.runs.sessions import Sessions
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.retry import patiently
from abeyance.temporal.turnstile import Turn
from abeyance.values.answers import respond_order
from abeyance.values.statemodel import ValuesError

_TURNED_AWAY: Final = 5
"""How often a message is signalled that meets a queue which is full in just that moment."""


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

    async def pause(self, run_id: str, order: wire.Pause | None = None) -> wire.RunView:
        """Start no new work. Raises `unknown_run`, `not_running`, or `unknown_node` and
        `capability_required` for its goto.

        With the `key` of an order again, this and the other controls have no further effect, and raise
        `idempotency_conflict` if it came with anything else.
        """
        order = order or wire.Pause()
        view = await self._control(run_id, "pause", order)
        # Only a goto can be refused. A run that is not paused now may also have been resumed since.
        is_goto = order.on_timeout.startswith("goto:")
        if (
            is_goto
            and not (view.paused or view.degraded or view.outcome)
            and not await was_done(self._line, run_id, order)
        ):
            raise _not_paused(order, view)
        return view

    async def resume(self, run_id: str, order: wire.Resume | None = None) -> wire.RunView:
        """Go on after a pause. Raises `unknown_run` and `not_running`."""
        return await self._control(run_id, "resume", order or wire.Resume())

    async def cancel(self, run_id: str, order: wire.Cancel | None = None) -> wire.RunView:
        """End the run in good order. Raises `unknown_run` and `not_running`."""
        return await self._control(run_id, "cancel", order or wire.Cancel())

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

    async def steer(self, run_id: str, message: wire.SteerMessage) -> wire.MessageReceipt:
        """Put a message into the run's mailbox by a signal, and read back what became of it.

        Where no worker can be asked, the signal is sent and `queue_depth` is None. Raises what
        `send_message` raises.
        """
        message = _named(message)
        before = await self._checked(run_id, message)
        return await self._signalled(run_id, message, before)

    async def _checked(self, run_id: str, message: wire.SteerMessage) -> wire.MessageCheck | None:
        """What would become of a message; None if nobody can tell. Raises what it would be refused."""
        described = await self._line.described(run_id)
        if not described.is_running:
            raise described.not_running()
        try:
            found = await self._line.query(run_id, "check_message", wire.MessageCheck, message)
        except Unavailable:
            return None
        if found.refusal is not None:
            raise found.refusal.refusal()
        return found

    async def _signalled(
        self, run_id: str, message: wire.SteerMessage, before: wire.MessageCheck | None
    ) -> wire.MessageReceipt:
        depth: int | None = None
        for _ in range(_TURNED_AWAY):
            try:
                await self._line.signal(run_id, "steer", message)
            except RunEnded as ended:
                raise ended.described.not_running() from ended
            if before is None:
                # Where nobody could be asked just now, nobody is asked again: the caller would only wait.
                break
            try:
                after = await self._line.query(run_id, "check_message", wire.MessageCheck, message)
            except Unavailable:
                await self._refuse_what_came_too_late(run_id, message)
                break
            if after.refusal is not None:
                # Another message was quicker, or the run began to end.
                raise after.refusal.refusal()
            if after.duplicate:
                depth = after.queue_depth
                break
            # The queue was full when it came, and has room by now.
        else:
            raise await self._never_had_room(run_id, message)
        return wire.MessageReceipt(
            message_id=message.message_id or "",
            duplicate=before is not None and before.duplicate,
            queue_depth=depth,
        )

    async def _never_had_room(self, run_id: str, message: wire.SteerMessage) -> Refusal:
        view = await self.view(run_id)
        return Refusal(
            Code.QUEUE_FULL,
            f"The message {message.message_id!r} came {_TURNED_AWAY} times while the queue of the run "
            f"{run_id!r}, which holds {view.max_queue_size}, was full. Others are quicker: send it "
            "later, or with a timeout in which it is tried again.",
            message_id=message.message_id,
            limit=view.max_queue_size,
            actual=view.queue_depth,
        )

    async def _refuse_what_came_too_late(self, run_id: str, message: wire.SteerMessage) -> None:
        """Of an ended run that no worker tells of: the notes that it left."""
        described = await self._line.described(run_id)
        if described.is_running:
            return
        record = await self._line.record(described)
        late = {note.message_id for note in record.view.rejected if note.code == Code.NOT_RUNNING}
        if message.message_id in late:
            raise described.not_running()

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

        A message that would be refused pauses nothing. Raises what `pause` and `send_message` raise.
        """
        message = _named(message)
        before = await self._checked(run_id, message)
        await self.pause(run_id, pause)
        return await self._signalled(run_id, message, before)

    async def _control(self, run_id: str, signal: str, order: Order) -> wire.RunView:
        try:
            await self._line.signal(run_id, signal, order)
        except RunEnded as ended:
            if not await was_done(self._line, run_id, order):
                raise ended.described.not_running() from ended
        view = await self.view(run_id)
        # Where nobody could be asked just now, nobody is asked again: the caller would only wait.
        if not (view.degraded or view.outcome):
            await was_done(self._line, run_id, order)
        return view


def _not_paused(order: wire.Pause, view: wire.RunView) -> Refusal:
    """Why a run did not take a pause that leads to a node."""
    principal = Principal(subject=order.actor, capabilities=order.capabilities)
    demanded: list[str | None] = [authority.CONTROL, *view.guarded_by]
    if principal == TEMPORAL:
        demanded = [entry.requested_capability for entry in view.interrupts]
    if lacking := principal.lacks(demanded):
        return authority.lacks(principal, f"lead the run on ({order.on_timeout})", lacking)
    return Refusal(
        Code.UNKNOWN_NODE,
        f"The pause was not applied: on_timeout={order.on_timeout!r} names no node of the graph that "
        "can be gone to.",
    )


def _named(message: wire.SteerMessage) -> wire.SteerMessage:
    # Named here, so that sending it again is known to be sending the same.
    if message.message_id is not None:
        return message
    return message.model_copy(update={"message_id": uuid.uuid4().hex})
