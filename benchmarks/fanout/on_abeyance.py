"""The same run as a graph: `Send` for each item, a join that collects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fanout.workload import work
from pydantic import BaseModel
from stage import OURS, Processes, served

from abeyance import START, Context, Graph, Send, append
from abeyance.client import Client


class Items(BaseModel):
    """What is to be done, and what was."""

    items: list[int]
    done: Annotated[list[str], append] = []


graph = Graph("spread", state=Items)


@graph.node(to=["one"])
async def split(state: Items) -> list[Send]:
    return [Send("one", item) for item in state.items]


@graph.node
async def one(state: Items, ctx: Context) -> dict[str, Any]:
    return {"done": [work(ctx.item)]}


@graph.node
async def collect(state: Items) -> None:
    """Everything has come together already."""


graph.edge(START, "split")
graph.edge(["one"], "collect")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, processes: Processes) -> None:
        self.processes = processes
        self._client = client

    async def spread(self, run: str, items: list[int]) -> list[str]:
        await self._client.runs.start(graph, {"items": items}, run_id=run)
        view = await self._client.run(run).wait(timeout=120)
        done: list[str] = view.values["done"]
        return done

    async def events(self, run: str) -> int | None:
        handle = self._client.temporal.get_workflow_handle(run)
        return len((await handle.fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    async with served(folder, OURS, app="fanout.on_abeyance:graph") as (server, processes):
        client = await Client.connect(server.address)
        yield OnAbeyance(client, processes)
