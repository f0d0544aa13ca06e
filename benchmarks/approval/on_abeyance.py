"""The same run as a graph, started, awaited and answered by the public client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final

from approval.workload import (
    AFTER,
    BEFORE,
    CAPABILITY,
    GATE_STAYS_OPEN,
    Claim,
    Decision,
    Trace,
    visit,
)
from pydantic import Field
from stage import OURS, Processes, served

from abeyance import END, START, Graph, Principal, append
from abeyance.client import Client

_GATE: Final = "approve"
_REVIEWER: Final = Principal(subject="reviewer", capabilities=(CAPABILITY,))


class ClaimState(Claim):
    """The claim; what a node adds to its log comes after what is there."""

    log: Annotated[list[str], append] = Field(default_factory=list)


def _graph(name: str, *, local: bool) -> Graph:
    graph = Graph(name, state=ClaimState)

    def declare(node: str) -> None:
        @graph.node(name=node, local=local)
        async def code(state: ClaimState) -> dict[str, Any]:
            return visit(node, state.claim_id)

    for node in (*BEFORE, *AFTER):
        declare(node)
    graph.interrupt(
        _GATE,
        prompt="Pay {amount} for the claim {claim_id}?",
        answer_to="decision",
        requested_capability=CAPABILITY,
        timeout=GATE_STAYS_OPEN,
    )
    for source, target in pairwise((START, *BEFORE, _GATE, *AFTER, END)):
        graph.edge(source, target)
    return graph


ordinary = _graph("claim", local=False)
quick = _graph("claim-local", local=True)
graphs = [ordinary, quick]


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(self, client: Client, graph: Graph, processes: Processes) -> None:
        self.processes = processes
        self._client = client
        self._graph = graph

    async def until_gate(self, run: str, claim: Claim) -> None:
        started = await self._client.runs.start(
            self._graph,
            claim.model_dump(),
            run_id=run,
            wait=60.0,
            until=frozenset({"awaiting-input"}),
        )
        if started.view is None or not started.view.interrupts:
            message = f"the run {run!r} does not wait at its gate: {started.view}"
            raise ValueError(message)

    async def answer(self, run: str, decision: Decision) -> Claim:
        await self._client.run(run).respond(response=decision.model_dump(), principal=_REVIEWER)
        view = await self._client.run(run).wait()
        return Claim.model_validate(view.values)

    async def trace(self, run: str) -> Trace | None:
        history = await self._client.temporal.get_workflow_handle(run).fetch_history()
        size = sum(event.ByteSize() for event in history.events)
        return Trace(events=len(history.events), bytes=size)


@asynccontextmanager
async def opened(folder: Path, *, local: bool = False) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server and its worker."""
    graph = quick if local else ordinary
    async with served(folder, OURS, app="approval.on_abeyance:graphs") as (server, processes):
        client = await Client.connect(server.address)
        yield OnAbeyance(client, graph, processes)
