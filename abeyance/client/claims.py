"""The claims of runs on their conversations.

A workflow of its own holds the claims of a conversation, because visibility lists a run a moment late. A
start claims a place there first, and the run releases it at its end. A claim whose start failed or whose
run was terminated is released by the next client that reads it: it blocks the conversation for a minute
at most.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio.client import WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy

from abeyance import names, wire
from abeyance.client.rpc import RPC, WorkflowRpc, update_with_start_errors
from abeyance.core.conversation import Claim, Conversation
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.conversations import roster
from abeyance.temporal.retry import NotFound, retry_until
from abeyance.temporal.update_limiter import Turn, UpdateLimiter
from abeyance.util import conversation_workflow_id, gather_limited

_UNSTARTED: Final = timedelta(seconds=60)
"""How long a claim without a run is valid. Longer than a start is retried."""
_SWEEPS: Final = 3


class Claims:
    """The claims on the conversations of one deployment."""

    def __init__(self, line: WorkflowRpc) -> None:
        self._line = line
        self._claiming = UpdateLimiter()

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

        async def send() -> None:
            await handle.signal("release", order.tokens, rpc_timeout=RPC)

        try:
            await retry_until(order.conversation_id, send, seconds=self._line.patience)
        except NotFound:
            return

    async def listed(self, conversation_id: str) -> list[Claim]:
        """Return the claims on a conversation, oldest first. No worker has to be up."""
        try:
            return await self._line.ask(self._workflow_of(conversation_id), "active", list[Claim])
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
        workflow_id = self._workflow_of(conversation_id)

        async def send() -> None:
            # Such an operation can be used only once. A conversation that has ended is started again.
            start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                names.CONVERSATION_WORKFLOW,
                Conversation(conversation_id=conversation_id),
                id=workflow_id,
                task_queue=self._line.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            async with self._claiming.turn(workflow_id, Turn.SEND_MESSAGE):
                with update_with_start_errors():
                    await self._line.temporal.execute_update_with_start_workflow(
                        "claim",
                        claim,
                        start_workflow_operation=start,
                        id=claim.token,
                        rpc_timeout=RPC,
                    )

        await retry_until(claim.run_id, send, seconds=self._line.patience)

    async def _in_history(self, conversation_id: str) -> list[Claim]:
        read = partial(roster, self._line.temporal, self._line.task_queue, conversation_id, RPC)
        try:
            return list(await retry_until(conversation_id, read, seconds=self._line.patience))
        except NotFound:
            return []

    async def _state(self, conversation_id: str, claim: Claim) -> str:
        now = datetime.now(UTC)
        claimed_at = claim.claimed_at or now
        ended_at: datetime | None = None
        try:
            run = await self._line.described(claim.run_id)
        except Refusal:
            pass
        else:
            start = run.memo.get(names.MEMO_START) or {}
            if run.is_running and start.get("conversation_id") == conversation_id:
                return "active"
            ended_at = run.ended_at
        has_ended = ended_at is not None and ended_at >= claimed_at
        return "void" if has_ended or now - claimed_at > _UNSTARTED else "unstarted"
