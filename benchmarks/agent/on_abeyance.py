"""The same conversation as an agent of a graph of one node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agent.workload import Added, cut, found, script
from pydantic import BaseModel
from stage import OURS, Processes, served

from abeyance import START, Agent, Graph, tool
from abeyance.client import Client


class Talk(BaseModel):
    """What the model is asked, and its last word."""

    question: str
    report: str | None = None


@tool
async def read(number: int) -> str:
    """Read a page."""
    return found("read", number)


@tool
async def search(number: int) -> str:
    """Search for something."""
    return found("search", number)


graph = Graph("talk", state=Talk)
graph.agent(
    "clerk",
    Agent("clerk", model=script, tools=[read, search], max_turns=1_000),
    input="question",
    output="report",
)
graph.edge(START, "clerk")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, processes: Processes) -> None:
        self.processes = processes
        self._client = client

    async def talk(self, run: str, turns: int) -> str:
        await self._client.runs.start(graph, {"question": str(turns)}, run_id=run)
        view = await self._client.run(run).wait(timeout=300)
        return str(view.values["report"])

    async def turns(self, run: str) -> list[Added]:
        added: list[Added] = []
        execution: str | None = None
        # A long conversation is handed over, and is then in several histories, the newest first.
        while execution != "":
            handle = self._client.temporal.get_workflow_handle(run, run_id=execution)
            events = (await handle.fetch_history()).events
            names = [e.activity_task_scheduled_event_attributes.activity_type.name for e in events]
            added = [*cut(names, [e.ByteSize() for e in events], "talk.clerk.model"), *added]
            started = events[0].workflow_execution_started_event_attributes
            execution = started.continued_execution_run_id
        return added


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    app, storage = "agent.on_abeyance:graph", folder / "blobs"
    async with served(folder, OURS, app=app, storage=storage) as (server, processes):
        yield OnAbeyance(await Client.connect(server.address), processes)
