"""The floor: the same run written by hand with Temporal's SDK, and nothing beside it.

A workflow, an activity for each node, an update with a validator for the answer, a timer for the
deadline. Who waits for the gate reads the history as it grows, which asks nothing of the worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from approval.workload import (
        AFTER,
        BEFORE,
        GATE_STAYS_OPEN,
        Claim,
        Decision,
        Trace,
        visit,
    )
    from stage import Processes, by_hand, serve


_QUEUE: Final = "by-hand"
_NODE_SECONDS: Final = timedelta(seconds=30)


def _node(name: str) -> Callable[[Claim], Any]:
    @activity.defn(name=name)
    async def node(claim: Claim) -> dict[str, Any]:
        return visit(name, claim.claim_id)

    return node


@workflow.defn
class ClaimApproval:
    """A claim on its way."""

    def __init__(self) -> None:
        self._is_open = False
        self._decision: Decision | None = None

    @workflow.run
    async def run(self, claim: Claim, local: bool) -> Claim:
        for name in BEFORE:
            claim = await self._visited(name, claim, local)
        self._is_open = True
        await workflow.wait_condition(lambda: self._decision is not None, timeout=GATE_STAYS_OPEN)
        claim = claim.model_copy(update={"decision": self._decision})
        for name in AFTER:
            claim = await self._visited(name, claim, local)
        return claim

    @workflow.update
    def decide(self, decision: Decision) -> datetime:
        self._is_open = False
        self._decision = decision
        return workflow.now()

    @decide.validator
    def _check_decide(self, decision: Decision) -> None:
        if not self._is_open:
            raise ApplicationError("the gate is not open", type="not_open", non_retryable=True)

    async def _visited(self, name: str, claim: Claim, local: bool) -> Claim:
        execute = workflow.execute_local_activity if local else workflow.execute_activity
        patch: dict[str, Any] = await execute(
            name, claim, result_type=dict[str, Any], start_to_close_timeout=_NODE_SECONDS
        )
        return claim.model_copy(update={**patch, "log": [*claim.log, *patch["log"]]})


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes, *, local: bool) -> None:
        self.processes = processes
        self._temporal = temporal
        self._local = local

    async def until_gate(self, run: str, claim: Claim) -> None:
        handle = await self._temporal.start_workflow(
            ClaimApproval.run, args=[claim, self._local], id=run, task_queue=_QUEUE
        )
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_started_event_attributes"):
                return

    async def answer(self, run: str, decision: Decision) -> Claim:
        handle = self._temporal.get_workflow_handle(run, result_type=Claim)
        await handle.execute_update(ClaimApproval.decide, decision)
        ended: Claim = await handle.result()
        return ended

    async def trace(self, run: str) -> Trace | None:
        history = await self._temporal.get_workflow_handle(run).fetch_history()
        size = sum(event.ByteSize() for event in history.events)
        return Trace(events=len(history.events), bytes=size)


@asynccontextmanager
async def opened(folder: Path, *, local: bool = False) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "approval.by_hand") as (temporal, processes):
        yield ByHand(temporal, processes, local=local)


def main() -> None:
    """The worker."""
    asyncio.run(serve(_QUEUE, [ClaimApproval], [_node(name) for name in (*BEFORE, *AFTER)]))
