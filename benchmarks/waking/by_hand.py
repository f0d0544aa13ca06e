"""The floor: a workflow of as many activities, one update, and one activity behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio import activity, workflow
from temporalio.client import Client

with workflow.unsafe.imports_passed_through():
    from marks import leave
    from stage import Server, connected, serve, temporal_server, worker


_QUEUE: Final = "by-hand"
_STAYS_OPEN: Final = timedelta(days=7)
_NODE_SECONDS: Final = timedelta(seconds=30)


@activity.defn
async def step(done: int) -> int:
    """One visit."""
    return done + 1


@activity.defn
async def after(folder: str, run: str) -> None:
    """What is behind the gate."""
    leave(folder, run)


@workflow.defn
class Waking:
    """Visits, and a gate."""

    def __init__(self) -> None:
        self._answer: str | None = None

    @workflow.run
    async def run(self, run: str, steps: int, folder: str) -> None:
        done = 0
        while done < steps:
            done = await workflow.execute_activity(step, done, start_to_close_timeout=_NODE_SECONDS)
        await workflow.wait_condition(lambda: self._answer is not None, timeout=_STAYS_OPEN)
        await workflow.execute_activity(
            after, args=[folder, run], start_to_close_timeout=_NODE_SECONDS
        )

    @workflow.update
    def answer(self, answer: str) -> None:
        self._answer = answer


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, server: Server, folder: Path) -> None:
        self._temporal = temporal
        self._server = server
        self._folder = folder

    def worker(self) -> AbstractContextManager[int]:
        program = "from waking.by_hand import main; main()"
        return worker(self._server, program, self._folder)

    async def until_gate(self, run: str, steps: int, folder: str) -> None:
        arguments = [run, steps, folder]
        handle = await self._temporal.start_workflow(
            Waking.run, args=arguments, id=run, task_queue=_QUEUE
        )
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_started_event_attributes"):
                return

    async def answer(self, run: str) -> None:
        handle = self._temporal.get_workflow_handle(run)
        await handle.execute_update(Waking.answer, "yes")

    async def events(self, run: str) -> int:
        return len((await self._temporal.get_workflow_handle(run).fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ByHand]:
    """The floor, with its server; workers come and go."""
    async with temporal_server(folder) as server:
        temporal = await connected(server.address)
        yield ByHand(temporal, server, folder)


def main() -> None:
    """Be the worker."""
    asyncio.run(serve(_QUEUE, [Waking], [step, after]))
