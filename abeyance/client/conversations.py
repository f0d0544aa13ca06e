"""Conversations: claiming a place for a run, and controlling all active runs of one.

A workflow of its own holds the claims of a conversation, because visibility lists a run a moment late. A
start claims a place there first, and the run releases it at its end. A claim whose start failed or whose
run was terminated is released by the next client that reads it: it blocks the conversation for a minute
at most.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, Unpack

from temporalio.client import WithStartWorkflowOperation, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy

from abeyance import wire
from abeyance.client.reader import Deployment
from abeyance.client.rpc import RPC, is_lost, refusal_of
from abeyance.client.run import TemporalRun
from abeyance.core.conversation import EXCLUSIVE, Claim, Conversation
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.duration import Duration
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.handle import MessageFields, Steered, message_order
from abeyance.history.conversations import roster
from abeyance.temporal.retry import NotFound, RetryableError, retry_until
from abeyance.temporal.update_limiter import Turn, UpdateLimiter
from abeyance.util import conversation_workflow_id, gather_limited

_UNSTARTED: Final = timedelta(seconds=60)
"""How long a claim without a run is valid. Longer than a start is retried."""
_SWEEPS: Final = 3
_MAX_LISTED: Final = 20
_GONE: Final = frozenset({Code.NOT_RUNNING, Code.UNKNOWN_RUN})


class Conversations:
    """The conversations of one deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._line = deployment.line
        self._claiming = UpdateLimiter()

    async def runs(self, conversation_id: str, *, session_type: str | None = None) -> list[str]:
        """Return the ids of the active runs, oldest first, of one session type or of all.

        Runs that were started a moment ago are included. No worker has to be up.
        """
        claims = [
            claim
            for claim in await self._claims(conversation_id)
            if session_type in (None, claim.session_type)
        ]
        alive = await self._alive(conversation_id, claims)
        return list(dict.fromkeys(claim.run_id for claim in alive))

    async def interrupt(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["graceful", "now"] = "graceful",
        grace: Duration | None = None,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Cancel each active run of a conversation, and return their ids."""
        return await self._reach(
            conversation_id,
            lambda run: run.cancel(reason, mode=mode, grace=grace, principal=principal, key=key),
        )

    async def pause(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        mode: Literal["after-node", "now"] = "after-node",
        timeout: Duration | None = None,
        on_timeout: str = "resume",
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Pause each active run of a conversation, and return their ids."""
        return await self._reach(
            conversation_id,
            lambda run: run.pause(
                reason,
                mode=mode,
                timeout=timeout,
                on_timeout=on_timeout,
                principal=principal,
                key=key,
            ),
        )

    async def resume(
        self,
        conversation_id: str,
        reason: str | None = None,
        *,
        principal: Principal | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Resume each active run of a conversation, and return their ids."""
        return await self._reach(
            conversation_id, lambda run: run.resume(reason, principal=principal, key=key)
        )

    async def control(self, conversation_id: str, order: wire.Order) -> list[str]:
        """Send a command to each active run of a conversation, and return their ids."""
        return await self._reach(conversation_id, lambda run: run.control(order))

    async def steer(
        self, conversation_id: str, text: str = "", **fields: Unpack[MessageFields]
    ) -> Steered:
        """Steer the only active run of an agent in a conversation.

        Raises `no_active_run`, `ambiguous_run` listing them, and what `steer` of a run raises.
        """
        message = message_order(text, fields, principal=fields.get("principal") or TEMPORAL)
        return await self.signal_message(conversation_id, message)

    async def signal_message(self, conversation_id: str, message: wire.SteerMessage) -> Steered:
        """Steer by a command."""
        runs = await self.runs(conversation_id, session_type=EXCLUSIVE)
        if not runs:
            raise _no_active_run(conversation_id)
        if len(runs) > 1:
            raise Refusal(
                Code.AMBIGUOUS_RUN,
                f"The conversation {conversation_id!r} has {len(runs)} active runs of agents: "
                f"{', '.join(runs[:_MAX_LISTED])}. Steer one of them by its own id.",
                conversation_id=conversation_id,
                runs=runs[:_MAX_LISTED],
                actual=len(runs),
            )
        try:
            sent = await TemporalRun(self._deployment, runs[0]).signal_message(message)
            return Steered(run_id=runs[0], message_id=sent)
        except Refusal as refusal:
            if refusal.code not in _GONE:
                raise
            raise _no_active_run(conversation_id) from refusal

    async def claim_run(self, conversation_id: str, claim: Claim) -> None:
        """Claim a place in a conversation for a run that is about to start.

        Raises `conversation_busy` with the id of the run that is active, and `too_many_runs`.
        """
        for _ in range(_SWEEPS):
            try:
                return await self._claim(conversation_id, claim)
            except Refusal:
                claims = await self._claims(conversation_id)
                left = await self._alive(conversation_id, claims, waited=True)
                # Raises, unless the claims in the way were void.
                Conversation(conversation_id=conversation_id, claims=tuple(left)).check(claim)
        return await self._claim(conversation_id, claim)

    async def release(self, order: wire.Release) -> None:
        """Release claims. A conversation that has ended holds none."""
        handle = self._line.temporal.get_workflow_handle(self._workflow_of(order.conversation_id))

        async def send() -> None:
            await handle.signal("release", order.tokens, rpc_timeout=RPC)

        try:
            await retry_until(order.conversation_id, send, seconds=self._line.patience)
        except NotFound:
            return

    def _workflow_of(self, conversation_id: str) -> str:
        return conversation_workflow_id(self._line.task_queue, conversation_id)

    async def _reach(
        self, conversation_id: str, work: Callable[[TemporalRun], Awaitable[object]]
    ) -> list[str]:
        async def reached(run_id: str) -> bool:
            try:
                await work(TemporalRun(self._deployment, run_id))
            except Refusal as refusal:
                if refusal.code not in _GONE:
                    raise
                return False
            return True

        runs = await self.runs(conversation_id)
        done = await gather_limited(runs, reached)
        return [run_id for run_id, was_reached in zip(runs, done, strict=True) if was_reached]

    async def _claim(self, conversation_id: str, claim: Claim) -> None:
        workflow_id = self._workflow_of(conversation_id)

        async def send() -> None:
            # Such an operation can be used only once. A conversation that has ended is started again.
            start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
                wire.CONVERSATION_WORKFLOW,
                Conversation(conversation_id=conversation_id),
                id=workflow_id,
                task_queue=self._line.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            async with self._claiming.turn(workflow_id, Turn.SEND_MESSAGE):
                try:
                    await self._line.temporal.execute_update_with_start_workflow(
                        "claim",
                        claim,
                        start_workflow_operation=start,
                        id=claim.token,
                        rpc_timeout=RPC,
                    )
                except WorkflowUpdateFailedError as error:
                    if is_lost(error):
                        raise RetryableError(str(error.cause)) from error
                    if (refusal := refusal_of(error)) is None:
                        raise
                    raise refusal from error

        await retry_until(claim.run_id, send, seconds=self._line.patience)

    async def _claims(self, conversation_id: str) -> list[Claim]:
        try:
            return await self._line.ask(self._workflow_of(conversation_id), "active", list[Claim])
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_RUN:
                raise
            return []
        except Unavailable:
            return await self._claims_in_history(conversation_id)

    async def _claims_in_history(self, conversation_id: str) -> list[Claim]:
        read = partial(roster, self._line.temporal, self._line.task_queue, conversation_id, RPC)
        try:
            return list(await retry_until(conversation_id, read, seconds=self._line.patience))
        except NotFound:
            return []

    async def _alive(
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

    async def _state(self, conversation_id: str, claim: Claim) -> str:
        now = datetime.now(UTC)
        claimed_at = claim.claimed_at or now
        ended_at: datetime | None = None
        try:
            run = await self._line.described(claim.run_id)
        except Refusal:
            pass
        else:
            start = run.memo.get(wire.MEMO_START) or {}
            if run.is_running and start.get("conversation_id") == conversation_id:
                return "active"
            ended_at = run.ended_at
        has_ended = ended_at is not None and ended_at >= claimed_at
        return "void" if has_ended or now - claimed_at > _UNSTARTED else "unstarted"


def _no_active_run(conversation_id: str) -> Refusal:
    return Refusal(
        Code.NO_ACTIVE_RUN,
        f"The conversation {conversation_id!r} has no active run of an agent: start one.",
        conversation_id=conversation_id,
    )
