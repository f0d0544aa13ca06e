"""A graph with one node that asks as many questions as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel
from questions.workload import Growth
from stage import OURS, Processes, served

from abeyance import START, Context, Graph, Interrupt, Principal
from abeyance.client import Client


class Plan(BaseModel):
    """How many questions are asked."""

    questions: int


graph = Graph("questions", state=Plan)


@graph.node
async def ask(state: Plan, ctx: Context) -> None:
    await ctx.interrupts([Interrupt(f"question-{n}", timeout="7d") for n in range(state.questions)])


graph.edge(START, "ask")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, processes: Processes, *, many: bool) -> None:
        self.processes = processes
        self.many = many
        self._client = client

    async def ask(self, run: str, questions: int) -> list[str]:
        await self._client.runs.start(graph, {"questions": questions}, run_id=run)
        view = await self._client.run(run).wait(until=frozenset({"awaiting-input"}))
        return [entry.id for entry in view.interrupts]

    async def answer(self, run: str, question: str) -> None:
        reviewer = Principal(subject="reviewer")
        await self._client.run(run).respond({question: "yes"}, principal=reviewer)

    async def history(self, run: str) -> Growth:
        handle = self._client.temporal.get_workflow_handle(run)
        events = (await handle.fetch_history()).events
        return Growth(events=len(events), bytes=sum(event.ByteSize() for event in events))


@asynccontextmanager
async def opened(folder: Path, *, many: bool = False) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    async with served(folder, OURS, app="questions.on_abeyance:graph") as (server, processes):
        client = await Client.connect(server.address)
        yield OnAbeyance(client, processes, many=many)
