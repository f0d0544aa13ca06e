"""A graph that is one gate, parked and woken by the public client; the inbox over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from stage import Api, Processes, api, temporal_server, worker

from abeyance import START, Graph, Principal
from abeyance.client import Client

_PAGE: Final = 50
_APP: Final = "parked.on_abeyance:graph"


class Refund(BaseModel):
    """What is decided about."""

    amount: int
    decision: str | None = None


graph = Graph("parked", state=Refund)
graph.interrupt("approve", prompt="Refund {amount}?", answer_to="decision", timeout="7d")
graph.edge(START, "approve")


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, api: Api, processes: Processes) -> None:
        self.processes = processes
        self._client = client
        self._api = api

    async def park(self, run: str) -> None:
        await self._client.runs.start(graph, {"amount": 250}, run_id=run)
        view = await self._client.run(run).wait(until=frozenset({"awaiting-input"}))
        if not view.interrupts:
            message = f"the run {run!r} does not wait at its gate: {view}"
            raise ValueError(message)

    async def wake(self, run: str, answer: str) -> str:
        await self._client.run(run).respond(
            response=answer, principal=Principal(subject="reviewer")
        )
        view = await self._client.run(run).wait()
        ended: str = view.values["decision"]
        return ended

    async def inbox(self) -> int | None:
        answered = await self._api.http.get("/interrupts", params={"limit": _PAGE})
        return len(answered.raise_for_status().json()["items"])


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server, its worker and its API."""
    program = "from abeyance.worker import main; main()"
    async with temporal_server(folder) as server:
        with worker(server, program, folder, app=_APP) as pid:
            async with api(server, folder, app=_APP) as serving:
                processes = Processes(server=server.pid, worker=pid, api=serving.pid)
                yield OnAbeyance(await Client.connect(server.address), serving, processes)
