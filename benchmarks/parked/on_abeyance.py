"""Graphs of one gate each, parked and woken by the public client; the inbox over HTTP.

One run in a hundred is of the graph whose gate needs a capability.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from stage import OURS, Api, Processes, api, temporal_server, worker

from abeyance import START, Graph, Principal
from abeyance.client import Client

_PAGE: Final = 50
_APP: Final = "parked.on_abeyance:graphs"
_CAPABILITY: Final = "refunds:approve"
_RARE: Final = 100
_REVIEWER: Final = Principal(subject="reviewer", capabilities=(_CAPABILITY,))


class Refund(BaseModel):
    """What is decided about."""

    amount: int
    decision: str | None = None


def _graph(name: str, capability: str | None) -> Graph:
    graph = Graph(name, state=Refund)
    graph.interrupt(
        "approve",
        prompt="Refund {amount}?",
        answer_to="decision",
        requested_capability=capability,
        timeout="7d",
    )
    graph.edge(START, "approve")
    return graph


usual = _graph("parked", None)
rare = _graph("parked-rare", _CAPABILITY)
graphs = [usual, rare]


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, api: Api, processes: Processes) -> None:
        self.processes = processes
        self._client = client
        self._api = api
        self._parked = 0

    async def park(self, run: str) -> None:
        graph = rare if self._parked % _RARE == 1 else usual
        self._parked += 1
        started = await self._client.runs.start(
            graph,
            {"amount": 250},
            run_id=run,
            wait=60.0,
            until=frozenset({"awaiting-input"}),
        )
        if started.view is None or not started.view.interrupts:
            message = f"the run {run!r} does not wait at its gate: {started.view}"
            raise ValueError(message)

    async def wake(self, run: str, answer: str) -> str:
        await self._client.run(run).respond(response=answer, principal=_REVIEWER)
        view = await self._client.run(run).wait()
        ended: str = view.values["decision"]
        return ended

    async def inbox(self, *, is_filtered: bool) -> int | None:
        only = {"capability": _CAPABILITY} if is_filtered else {}
        answered = await self._api.http.get("/interrupts", params={"limit": _PAGE, **only})
        return len(answered.raise_for_status().json()["items"])


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server, its worker and its API."""
    async with temporal_server(folder) as server:
        with worker(server, OURS, folder, app=_APP) as pid:
            async with api(server, folder, app=_APP) as serving:
                processes = Processes(server=server.pid, worker=pid, api=serving.pid)
                client = await Client.connect(server.address)
                yield OnAbeyance(client, serving, processes)
