"""Starting the workflow of a run: of a new one, of a retry, and of a fork.

A start claims its place in its conversation and room among the active runs first, and gives both back if
it fails. A claim whose start has an unknown outcome is not given back: it expires if there is no run.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from temporalio.client import WithStartWorkflowOperation
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateTimeout
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from abeyance import names, views, wire
from abeyance.client.claims import Claims
from abeyance.client.eviction import Capacity, Policy
from abeyance.client.rpc import RPC, WorkflowRpc
from abeyance.client.start import StartPlan
from abeyance.core.conversation import Claim
from abeyance.core.json import rfc3339
from abeyance.errors import AbeyanceError, Code, Refusal
from abeyance.handle import Started
from abeyance.history.description import RunDescription
from abeyance.runtime import retries
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.retry import retry_until
from abeyance.util import run_exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many runs may be active (0: no limit), and what a start does that finds no room."""

    bound: int = 0
    policy: Policy = "evict-lru"


UNBOUNDED: Final = Room()


class Executions:
    """The executions of the runs of one deployment. `notify` returns patterns of the events that somebody
    is to be notified of, by the name of the graph.
    """

    def __init__(
        self,
        line: WorkflowRpc,
        claims: Claims,
        capacity: Capacity,
        notify: Callable[[str], Sequence[str]],
    ) -> None:
        self._notify = notify
        self._line = line
        self._claims = claims
        self._capacity = capacity

    async def make_room(self, run_id: str, room: Room) -> None:
        """Make room for a run among the active ones. Raises `too_many_runs`."""
        await self._capacity.make_room(run_id, room.bound, room.policy)

    async def claim(self, plan: StartPlan, *, allow_concurrent: bool = False) -> StartPlan:
        """Claim the place of a run in its conversation, if it has one. Return the plan with the claim.

        Raises `conversation_busy` and `too_many_runs`.
        """
        if plan.start.conversation_id is None:
            return plan
        claim = Claim(
            run_id=plan.start.run_id,
            session_type=plan.start.session_type,
            token=uuid.uuid4().hex,
            allow_concurrent=allow_concurrent,
        )
        await self._claims.claim(plan.start.conversation_id, claim)
        return plan.claimed(claim.token)

    async def give_back(self, plan: StartPlan) -> None:
        """Give back the room and the place of a run that did not start."""
        start = plan.start
        self._capacity.forget(start.run_id)
        if start.conversation_id is not None and start.claim is not None:
            await self._claims.release(
                wire.Release(conversation_id=start.conversation_id, tokens=[start.claim])
            )

    async def send(
        self,
        plan: StartPlan,
        policy: WorkflowIDReusePolicy,
        *,
        check: Callable[[], Awaitable[None]] | None = None,
        until: frozenset[str] = frozenset(),
    ) -> asyncio.Future[views.RunView] | None:
        """Start the workflow. `check` is called before each attempt.

        With `until`, which are statuses of an open run, the same call waits for one of them, and this
        returns the view to come. None if a start cannot wait: without a worker, and if runs accept only
        sealed requests, because a seal names the execution, which has no name yet.

        Raises WorkflowAlreadyStartedError, and Unavailable.
        """
        plan = plan.announcing(self._notify(plan.spec.name))
        is_sealed = is_all_sealed(self._line.temporal.data_converter)
        if is_sealed:
            plan = plan.stamped()
        run_id = plan.start.run_id
        # By which a start is known whose response did not come in time, as none does without a worker.
        call = uuid.uuid4().hex
        is_one_call = bool(until) and not is_sealed
        memo = {**plan.memo, names.MEMO_QUEUE: self._line.task_queue}
        if is_one_call:
            memo[names.MEMO_START] = {**plan.memo_of_start, "call": call}
        options: dict[str, Any] = {
            "args": plan.arguments,
            "id": run_id,
            "task_queue": self._line.task_queue,
            "memo": memo,
            "search_attributes": plan.search_attributes,
            "static_summary": plan.summary,
            "id_reuse_policy": policy,
            "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
        }

        async def send() -> asyncio.Future[views.RunView] | None:
            if check is not None:
                await check()
            reached = None
            if is_one_call:
                starting = WithStartWorkflowOperation[Any, Any](names.WORKFLOW, **options)
                try:
                    started, reached = await self._line.start_and_wait(starting, until)
                except (UpdateTimeout, WorkflowAlreadyStartedError):
                    if await self._call_of(run_id) != call:
                        raise
                    return None
            else:
                started = await self._line.temporal.start_workflow(
                    names.WORKFLOW, **options, rpc_timeout=RPC
                )
            first = started.first_execution_run_id or ""
            self._line.learn(run_id, first, execution=first, start=plan.memo_of_start)
            return reached

        return await retry_until(run_id, send, seconds=self._line.patience)

    async def _call_of(self, run_id: str) -> str | None:
        """The call that started a run, None if there is no run, or its start did not wait."""
        try:
            return (await self._line.described(run_id)).start.get("call")
        except Refusal:
            return None

    async def again(self, plan: StartPlan, ended: RunDescription, mark: str, room: Room) -> None:
        """Start the next execution of an ended run. `mark` is that of this call, by which it is known.

        Raises `not_finished` if another call has started one meanwhile, and what `claim` and `make_room`
        raise.
        """

        async def check() -> None:
            # Two retries must not both go on from the same end.
            if (await self._line.described(ended.run_id)).execution != ended.execution:
                raise WorkflowAlreadyStartedError(ended.run_id, names.WORKFLOW)

        plan = await self.claim(plan)
        try:
            await self.make_room(ended.run_id, room)
        except AbeyanceError:
            await self.give_back(plan)
            raise
        try:
            await self.send(plan, WorkflowIDReusePolicy.ALLOW_DUPLICATE, check=check)
        except WorkflowAlreadyStartedError:
            now = await self._line.described(ended.run_id)
            # It may be the one that this call has started, if the response was lost.
            if mark not in retry_marks(now):
                await self.give_back(plan)
                raise retries.not_finished(now.run_id, now.shown_status) from None
        except Refusal:
            await self.give_back(plan)
            raise

    async def fork(self, plan: StartPlan, room: Room) -> Started:
        """Start a fork. Starting the same again changes nothing. Raises `run_exists`."""
        await self.make_room(plan.start.run_id, room)
        try:
            await self.send(plan, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            await self.give_back(plan)
            return await self.already_started(plan)
        return Started(run_id=plan.start.run_id, created=True)

    async def already_started(self, plan: StartPlan) -> Started:
        """Return the run that has the id already, if the same call started it. Raises `run_exists`."""
        run_id = plan.start.run_id
        try:
            described = await self._line.described(run_id)
        except Refusal:
            raise Refusal(
                Code.RUN_EXISTS,
                f"The id {run_id!r} belongs to a workflow in Temporal that is not a run. Choose another "
                "id.",
                run_id=run_id,
            ) from None
        if plan.repeats(described):
            return Started(run_id=run_id, created=False)
        if not described.is_running:
            status = described.ended_as()
            reuse = ", or say reuse: true" if plan.start.forked_from is None else ""
            raise Refusal(
                Code.RUN_EXISTS,
                f"A run {run_id!r} has ended ({status}). Choose another id{reuse}.",
                run_id=run_id,
                run_status=status,
                ended_at=described.ended_at and rfc3339(described.ended_at),
            )
        raise run_exists(run_id, described.shown_status)


def retry_marks(described: RunDescription) -> list[str]:
    """Return the marks of the latest retries of a run, oldest first."""
    return [str(mark) for mark in described.start.get("retry_keys") or []]
