"""A graph of one node that runs until it is paused, by the public client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pause.workload import work
from pydantic import BaseModel
from stage import OURS, Processes, served

from abeyance import START, Graph
from abeyance.client import Client


class Job(BaseModel):
    """Where the node leaves its marks, and what it returned."""

    folder: str
    ended: str = ""


graph = Graph("stoppable", state=Job)


@graph.node
async def node(state: Job) -> dict[str, str]:
    return {"ended": await work(state.folder)}


graph.edge(START, "node")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, processes: Processes) -> None:
        self.processes = processes
        self._client = client

    async def start(self, run: str, folder: str) -> None:
        await self._client.runs.start(graph, {"folder": folder}, run_id=run)

    async def pause(self, run: str) -> None:
        await self._client.run(run).pause(mode="now")

    async def resume(self, run: str) -> None:
        await self._client.run(run).resume()

    async def end(self, run: str) -> str:
        ended: str = (await self._client.run(run).wait()).values["ended"]
        return ended

    async def events(self, run: str) -> int:
        handle = self._client.temporal.get_workflow_handle(run)
        return len((await handle.fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    async with served(folder, OURS, app="pause.on_abeyance:graph") as (server, processes):
        client = await Client.connect(server.address)
        yield OnAbeyance(client, processes)
