"""A graph that visits one node again and again, then asks; started and answered by the public client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from marks import leave
from pydantic import BaseModel
from stage import OURS, Server, temporal_server, worker

from abeyance import START, Graph, Principal
from abeyance.client import Client


class Job(BaseModel):
    """How often the node is to be visited, and where the code behind the gate leaves its mark."""

    run: str
    folder: str
    steps: int
    done: int = 0
    more: bool = True
    answer: str = ""


graph = Graph("waking", state=Job)


@graph.node
async def step(state: Job) -> dict[str, Any]:
    return {"done": state.done + 1, "more": state.done + 1 < state.steps}


@graph.node
async def after(state: Job) -> None:
    leave(state.folder, state.run)


graph.interrupt("approve", prompt="Go on?", answer_to="answer", timeout="7d")
graph.edge(START, "step")
graph.edge("step", "step", when={"more": True})
graph.edge("step", "approve", when="else")
graph.edge("approve", "after")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, server: Server, folder: Path) -> None:
        self._client = client
        self._server = server
        self._folder = folder

    def worker(self) -> AbstractContextManager[int]:
        return worker(self._server, OURS, self._folder, app="waking.on_abeyance:graph")

    async def until_gate(self, run: str, steps: int, folder: str) -> None:
        values = {"run": run, "folder": folder, "steps": steps}
        await self._client.runs.start(graph, values, run_id=run)
        await self._client.run(run).wait(until=frozenset({"awaiting-input"}))

    async def answer(self, run: str) -> None:
        reviewer = Principal(subject="reviewer")
        await self._client.run(run).respond(response="yes", principal=reviewer)

    async def events(self, run: str) -> int:
        handle = self._client.temporal.get_workflow_handle(run)
        return len((await handle.fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server; workers come and go."""
    async with temporal_server(folder) as server:
        yield OnAbeyance(await Client.connect(server.address), server, folder)
