"""A graph of one node that reads messages with `ctx.check_interrupt()`, sent by the public client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from stage import OURS, Processes, served
from steer.workload import read

from abeyance import START, Context, Graph, commands
from abeyance.client import Client
from abeyance.core.state import Limits

_ONE_HISTORY: Final = 40_000
"""So many events that no run is handed over: what is counted stands in one history."""


class Job(BaseModel):
    """How many messages the node reads, and what it has read."""

    folder: str
    messages: int
    had: list[str] = []


graph = Graph("steered", state=Job)


@graph.node
async def node(state: Job, ctx: Context) -> dict[str, list[str]]:
    async def take() -> str | None:
        message = await ctx.check_interrupt()
        return None if message is None else message.text

    return {"had": await read(state.folder, state.messages, take)}


graph.edge(START, "node")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, processes: Processes, *, by_signal: bool) -> None:
        self.processes = processes
        self._client = client
        self._by_signal = by_signal

    async def start(self, run: str, folder: str, messages: int) -> None:
        await self._client.runs.start(
            graph,
            {"folder": folder, "messages": messages},
            run_id=run,
            limits=Limits(continue_as_new_after=_ONE_HISTORY),
        )

    async def send(self, run: str, text: str) -> None:
        message = commands.SteerMessage(text=text, sender="reviewer")
        if self._by_signal:
            await self._client.run(run).signal_message(message)
        else:
            await self._client.run(run).send_message(message)

    async def end(self, run: str) -> list[str]:
        had: list[str] = (await self._client.run(run).wait(timeout=60)).values["had"]
        return had

    async def events(self, run: str) -> int:
        handle = self._client.temporal.get_workflow_handle(run)
        return len((await handle.fetch_history()).events)


@asynccontextmanager
async def opened(folder: Path, *, by_signal: bool = False) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    async with served(folder, OURS, app="steer.on_abeyance:graph") as (server, processes):
        client = await Client.connect(server.address)
        yield OnAbeyance(client, processes, by_signal=by_signal)
