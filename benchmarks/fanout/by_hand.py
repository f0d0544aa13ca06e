"""The floor: the same run written by hand with Temporal's SDK, and nothing beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from temporalio import activity, workflow
from temporalio.client import Client

with workflow.unsafe.imports_passed_through():
    from fanout.workload import work
    from stage import Processes, by_hand, serve


_QUEUE: Final = "by-hand"
_NODE_SECONDS: Final = timedelta(seconds=30)


@activity.defn
async def split(items: list[int]) -> list[int]:
    """Say what there is to do."""
    return items


@activity.defn
async def one(item: int) -> str:
    """Work on one item."""
    return work(item)


@activity.defn
async def collect(results: list[str]) -> list[str]:
    """Put the results together."""
    return results


@workflow.defn
class Spread:
    """A list on its way."""

    @workflow.run
    async def run(self, items: list[int]) -> list[str]:
        bound: Any = {"start_to_close_timeout": _NODE_SECONDS}
        todo = await workflow.execute_activity(split, items, **bound)
        results = await asyncio.gather(
            *(workflow.execute_activity(one, item, **bound) for item in todo)
        )
        collected: list[str] = await workflow.execute_activity(collect, list(results), **bound)
        return collected


class ByHand:
    """What the driver asks of the floor."""

    def __init__(self, temporal: Client, processes: Processes) -> None:
        self.processes = processes
        self._temporal = temporal

    async def spread(self, run: str, items: list[int]) -> list[str]:
        return await self._temporal.execute_workflow(Spread.run, items, id=run, task_queue=_QUEUE)

    async def events(self, run: str) -> int | None:
        return len((await self._temporal.get_workflow_handle(run).fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[ByHand]:
    """The floor, with its server and its worker."""
    async with by_hand(folder, "fanout.by_hand") as (temporal, processes):
        yield ByHand(temporal, processes)


def main() -> None:
    """Be the worker."""
    asyncio.run(serve(_QUEUE, [Spread], [split, one, collect]))
