"""Runs of a graph that is one gate, whose events are followed as server-sent events of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
from pydantic import BaseModel
from stage import OURS, Api, Processes, api, temporal_server, worker

from abeyance import START, Graph, Principal
from abeyance.api.auth import SUBJECT_HEADER
from abeyance.client import Client

_APP: Final = "viewers.on_abeyance:graph"
_AT_ONCE: Final = 20
_RUN: Final = "watched-0"
_AS_STREAM: Final = {"Accept": "text/event-stream"}


class Refund(BaseModel):
    """What is decided about."""

    decision: str | None = None


graph = Graph("watched", state=Refund)
graph.interrupt("approve", prompt="Refund?", answer_to="decision", timeout="7d")
graph.edge(START, "approve")


class Stream:
    """The events of one run, as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def until(self, event: str) -> float:
        """Read until an event of this type; return when it came, by `time.perf_counter`."""
        async for line in self._lines:
            if line == f"event: {event}":
                return time.perf_counter()
        message = f"the stream has ended without {event}"
        raise ValueError(message)


class OnAbeyance:
    """What the driver asks of Abeyance."""

    def __init__(
        self,
        client: Client,
        http: httpx.AsyncClient,
        streams: AsyncExitStack,
        processes: Processes,
        *,
        many: bool,
    ) -> None:
        self.processes = processes
        self._many = many
        self._client = client
        self._http = http
        self._streams = streams
        self._viewers: Sequence[Stream] = ()

    async def watch(self, viewers: int) -> Sequence[Stream]:
        runs = [f"watched-{n}" if self._many else _RUN for n in range(viewers)]
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def start(run: str) -> None:
            async with at_once:
                await self._client.runs.start(graph, run_id=run)
                await self._client.run(run).wait(until=frozenset({"awaiting-input"}))

        await asyncio.gather(*(start(run) for run in dict.fromkeys(runs)))
        self._viewers = [await self._viewer(run, f"viewer-{n}") for n, run in enumerate(runs)]
        await asyncio.gather(*(viewer.until("run.awaiting_input") for viewer in self._viewers))
        return self._viewers

    async def _viewer(self, run: str, who: str) -> Stream:
        # The API keeps some twenty streams open for one caller.
        headers = {**_AS_STREAM, SUBJECT_HEADER: who}
        asked = self._http.stream("GET", f"/runs/{run}/events", headers=headers)
        response = await self._streams.enter_async_context(asked)
        return Stream(response.raise_for_status())

    async def answer(self) -> Sequence[Stream]:
        reviewer = Principal(subject="reviewer")
        await self._client.run(_RUN).respond(response="yes", principal=reviewer)
        return self._viewers[:1] if self._many else self._viewers


@asynccontextmanager
async def opened(folder: Path, *, many: bool = False) -> AsyncIterator[OnAbeyance]:
    """Abeyance, with its server, its worker and its API."""
    async with temporal_server(folder) as server:
        with worker(server, OURS, folder, app=_APP) as pid:
            async with api(server, folder, app=_APP) as serving, _unlimited(serving) as http:
                processes = Processes(server=server.pid, worker=pid, api=serving.pid)
                client = await Client.connect(server.address)
                async with AsyncExitStack() as streams:
                    yield OnAbeyance(client, http, streams, processes, many=many)


def _unlimited(serving: Api) -> httpx.AsyncClient:
    """A client of the API that opens as many connections as there are viewers, and waits for events."""
    limits = httpx.Limits(max_connections=None)
    timeout = httpx.Timeout(30, read=None)
    return httpx.AsyncClient(
        base_url=serving.http.base_url, timeout=timeout, limits=limits, trust_env=False
    )
