"""The claims of runs on their conversations.

A workflow of its own holds the claims of a conversation, because visibility lists a run a moment late. A
start claims a place there first, and the run releases it at its end. A claim whose start failed or whose
run was terminated is released by the next client that reads it: it blocks the conversation for a minute
at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance import names, wire
from abeyance.client.rpc import WorkflowRpc
from abeyance.core.conversation import Claim, Conversation
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.description import RPC
from abeyance.storage.converter import UNREADABLE, of_run
from abeyance.temporal.retry import NotFound, refusals, retry_until
from abeyance.util import conversation_workflow_id, gather_limited

_UNSTARTED: Final = timedelta(seconds=60)
"""How long a claim without a run is valid. Longer than a start is retried."""
_SWEEPS: Final = 3

T = TypeVar("T")


class Claims:
    """The claims on the conversations of one deployment."""

    def __init__(self, line: WorkflowRpc) -> None:
        self._line = line

    async def claim(self, conversation_id: str, claim: Claim) -> None:
        """Claim a place in a conversation for a run that is about to start.

        Raises `conversation_busy` with the id of the run that is active, and `too_many_runs`.
        """
        for _ in range(_SWEEPS):
            try:
                return await self._send(conversation_id, claim)
            except Refusal:
                claims = await self.listed(conversation_id)
                left = await self.alive(conversation_id, claims, waited=True)
                # Raises, unless the claims in the way were void.
                Conversation(conversation_id=conversation_id, claims=tuple(left)).check(claim)
        return await self._send(conversation_id, claim)

    async def release(self, order: wire.Release) -> None:
        """Release claims. A conversation that has ended holds none."""
        handle = self._line.temporal.get_workflow_handle(self._workflow_of(order.conversation_id))

        send = partial(handle.signal, "release", order.tokens, rpc_timeout=RPC)
        try:
            await retry_until(
                f"the conversation {order.conversation_id!r}", send, seconds=self._line.patience
            )
        except NotFound:
            return

    async def listed(self, conversation_id: str) -> list[Claim]:
        """Return the claims on a conversation, oldest first. No worker has to be up."""
        try:
            return await self._line.ask(
                self._workflow_of(conversation_id),
                "active",
                list[Claim],
                about=f"the conversation {conversation_id!r}",
            )
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_RUN:
                raise
            return []
        except Unavailable:
            return await self._in_history(conversation_id)

    async def alive(
        self, conversation_id: str, claims: list[Claim], *, waited: bool = False
    ) -> list[Claim]:
        """Return the claims of active runs, and release the void ones.

        With `waited` also the claims of runs that may be about to start.
        """
        states = await gather_limited(claims, lambda claim: self._state(conversation_id, claim))
        void = [c.token for c, state in zip(claims, states, strict=True) if state == "void"]
        if void:
            await self.release(wire.Release(conversation_id=conversation_id, tokens=void))
        kinds = {"active", "unstarted"} if waited else {"active"}
        return [claim for claim, state in zip(claims, states, strict=True) if state in kinds]

    def _workflow_of(self, conversation_id: str) -> str:
        return conversation_workflow_id(self._line.task_queue, conversation_id)

    async def _send(self, conversation_id: str, claim: Claim) -> None:
        about = f"the conversation {conversation_id!r}"
        with refusals(about):
            # A conversation that has ended is started again.
            await self._line.update_with_start(
                "claim",
                claim,
                names.CONVERSATION_WORKFLOW,
                Conversation(conversation_id=conversation_id),
                id=self._workflow_of(conversation_id),
                update_id=claim.token,
                about=about,
            )

    async def _in_history(self, conversation_id: str) -> list[Claim]:
        read = partial(roster, self._line.temporal, self._line.task_queue, conversation_id)
        try:
            return list(
                await retry_until(
                    f"the conversation {conversation_id!r}", read, seconds=self._line.patience
                )
            )
        except NotFound:
            return []

    async def _state(self, conversation_id: str, claim: Claim) -> str:
        now = datetime.now(UTC)
        claimed_at = claim.claimed_at or now
        ended_at: datetime | None = None
        try:
            run = await self._line.describe(claim.run_id)
        except NotFound:
            pass
        else:
            if run.is_running and run.start.get("conversation_id") == conversation_id:
                return "active"
            ended_at = run.ended_at
        has_ended = ended_at is not None and ended_at >= claimed_at
        return "void" if has_ended or now - claimed_at > _UNSTARTED else "unstarted"


async def roster(
    temporal: TemporalClient, task_queue: str, conversation_id: str
) -> Sequence[Claim]:
    """Return the claims of a conversation, oldest first, without those released by unread signals.

    They are read from its history without a worker: those of its start and of accepted updates, less
    those that were released.

    Raises NotFound, or RPCError NOT_FOUND, if there is no such conversation.
    """
    workflow_id = conversation_workflow_id(task_queue, conversation_id)
    converter = of_run(temporal.data_converter, workflow_id)
    handle = temporal.get_workflow_handle(workflow_id)
    held = Conversation(conversation_id=conversation_id)
    async for event in handle.fetch_history_events(rpc_timeout=RPC):
        held = await _after(held, event, converter)
    return held.claims


async def _after(held: Conversation, event: HistoryEvent, converter: DataConverter) -> Conversation:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            started = event.workflow_execution_started_event_attributes
            if started.workflow_type.name != names.CONVERSATION_WORKFLOW:
                # Another application's workflow.
                raise NotFound
            return await _read(converter, started.input, Conversation)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            update = event.workflow_execution_update_accepted_event_attributes
            claim = await _read(converter, update.accepted_request.input.args, Claim)
            try:
                return held.claimed(claim, event.event_time.ToDatetime(tzinfo=UTC))
            except Refusal:
                # The workflow refused it too.
                return held
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            try:
                return held.released(await _read(converter, signal.input, list[str]))
            except UNREADABLE:
                # The workflow dropped it.
                return held
        case _:
            return held


async def _read(converter: DataConverter, payloads: Payloads, kind: type[T]) -> T:
    values: list[T] = await converter.decode(payloads.payloads, [kind])
    return values[0]
