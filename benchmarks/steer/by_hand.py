"""The floor: a workflow with a bounded list; a signal and an update add to it, and another takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from stage import Processes, by_hand, serve
    from steer.workload import read


_QUEUE: Final = "by-hand"
_BOUND: Final = 100
_NODE_SECONDS: Final = timedelta(minutes=5)


@activity.defn
async def node(folder: str, messages: int) -> list[str]:
    """Read the messages of the run that it is a part of."""
    run = activity.info().workflow_id
    handle = activity.client().get_workflow_handle(run or "")

    async def take() -> str | None:
        try:
            return await handle.execute_update(Steered.take)
        except WorkflowUpdateFailedError as error:
            if not isinstance(error.cause, ApplicationError) or error.cause.type != "empty":
                raise
            return None

    return await read(folder, messages, take)


@workflow.defn
class Steered:
    """One activity, and what was said to it."""

    def __init__(self) -> None:
        self._queue: list[str] = []

    @workflow.run
    async def run(self, folder: str, messages: int) -> list[str]:
        return await workflow.execute_activity(
            node, args=[folder, messages], start_to_close_timeout=_NODE_SECONDS
        )

    @workflow.signal
    def steer(self, text: str) -> None:
        self._queue.append(text)

    @workflow.update
    def send(self, text: str) -> int:
        self._queue.append(text)
        return len(self._queue)

    @send.validator
    def _check_send(self, text: str) -> None:
        if len(self._queue) >= _BOUND:
            raise ApplicationError("the queue is full", type="full", non_retryable=True)

    @workflow.update
    def take(self) -> str:
        return self._queue.pop(0)

    @take.validator
    def _check_take(self) -> None:
        if not self._queue:
            raise ApplicationError("there is nothing to read", type="empty", non_retryable=True)


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes, *, by_signal: bool) -> None:
        self.processes = processes
        self._temporal = temporal
        self._by_signal = by_signal

    async def start(self, run: str, folder: str, messages: int) -> None:
        await self._temporal.start_workflow(
            Steered.run, args=[folder, messages], id=run, task_queue=_QUEUE
        )

    async def send(self, run: str, text: str) -> None:
        handle = self._temporal.get_workflow_handle(run)
        if self._by_signal:
            await handle.signal(Steered.steer, text)
        else:
            await handle.execute_update(Steered.send, text)

    async def end(self, run: str) -> list[str]:
        handle = self._temporal.get_workflow_handle(run, result_type=list[str])
        ended: list[str] = await handle.result()
        return ended

    async def events(self, run: str) -> int:
        return len((await self._temporal.get_workflow_handle(run).fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path, *, by_signal: bool = False) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "steer.by_hand") as (temporal, processes):
        yield ByHand(temporal, processes, by_signal=by_signal)


def main() -> None:
    """Be the worker."""
    asyncio.run(serve(_QUEUE, [Steered], [node]))
