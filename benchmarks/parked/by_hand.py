"""The floor: a workflow that waits for one update, and nothing beside it. It has no inbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from stage import Processes, by_hand, serve


_QUEUE: Final = "by-hand"
_STAYS_OPEN: Final = timedelta(days=7)


@workflow.defn
class Waiting:
    """A gate, and nothing else."""

    def __init__(self) -> None:
        self._answer: str | None = None

    @workflow.run
    async def run(self, amount: int) -> str:
        await workflow.wait_condition(lambda: self._answer is not None, timeout=_STAYS_OPEN)
        return self._answer or ""

    @workflow.update
    def answer(self, answer: str) -> None:
        self._answer = answer

    @answer.validator
    def _check_answer(self, answer: str) -> None:
        if self._answer is not None:
            raise ApplicationError("it was answered", type="already_answered", non_retryable=True)


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes) -> None:
        self.processes = processes
        self._temporal = temporal

    async def park(self, run: str) -> None:
        handle = await self._temporal.start_workflow(Waiting.run, 250, id=run, task_queue=_QUEUE)
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_started_event_attributes"):
                return

    async def wake(self, run: str, answer: str) -> str:
        handle = self._temporal.get_workflow_handle(run, result_type=str)
        await handle.execute_update(Waiting.answer, answer)
        ended: str = await handle.result()
        return ended

    async def inbox(self, *, is_filtered: bool) -> int | None:
        del is_filtered
        return None


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "parked.by_hand") as (temporal, processes):
        yield ByHand(temporal, processes)


def main() -> None:
    """Be the worker."""
    asyncio.run(serve(_QUEUE, [Waiting]))
