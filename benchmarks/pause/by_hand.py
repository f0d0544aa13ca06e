"""The floor: a workflow whose signal cancels its activity, and starts it again after another signal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from pause.workload import BEAT_SECONDS, work
    from stage import Processes, by_hand, serve


_QUEUE: Final = "by-hand"
_LOST_AFTER: Final = timedelta(seconds=5)
_NODE_SECONDS: Final = timedelta(minutes=5)
_THROTTLE: Final = timedelta(seconds=BEAT_SECONDS / 2)


@activity.defn
async def node(folder: str) -> str:
    """Work, and say so once a second."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            activity.heartbeat()

    beating = asyncio.create_task(beat())
    try:
        return await work(folder)
    finally:
        beating.cancel()


@workflow.defn
class Stoppable:
    """One activity that can be stopped, and started again."""

    def __init__(self) -> None:
        self._is_paused = False
        self._running: workflow.ActivityHandle[Any] | None = None

    @workflow.run
    async def run(self, folder: str) -> str:
        while True:
            await workflow.wait_condition(lambda: not self._is_paused)
            self._running = workflow.start_activity(
                node,
                folder,
                start_to_close_timeout=_NODE_SECONDS,
                heartbeat_timeout=_LOST_AFTER,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            try:
                ended: str = await self._running
            except ActivityError as error:
                if not is_cancelled_exception(error):
                    raise
            else:
                return ended

    @workflow.signal
    def pause(self) -> None:
        self._is_paused = True
        if self._running is not None:
            self._running.cancel()

    @workflow.signal
    def resume(self) -> None:
        self._is_paused = False


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes) -> None:
        self.processes = processes
        self._temporal = temporal

    async def start(self, run: str, folder: str) -> None:
        await self._temporal.start_workflow(Stoppable.run, folder, id=run, task_queue=_QUEUE)

    async def pause(self, run: str) -> None:
        await self._temporal.get_workflow_handle(run).signal(Stoppable.pause)

    async def resume(self, run: str) -> None:
        await self._temporal.get_workflow_handle(run).signal(Stoppable.resume)

    async def end(self, run: str) -> str:
        ended: str = await self._temporal.get_workflow_handle(run, result_type=str).result()
        return ended

    async def events(self, run: str) -> int:
        return len((await self._temporal.get_workflow_handle(run).fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "pause.by_hand") as (temporal, processes):
        yield ByHand(temporal, processes)


def main() -> None:
    """Be the worker."""
    beats = {
        "max_heartbeat_throttle_interval": _THROTTLE,
        "default_heartbeat_throttle_interval": _THROTTLE,
    }
    asyncio.run(serve(_QUEUE, [Stoppable], [node], **beats))
