"""Workers of two builds: with versions a run keeps to its own, or moves to the current one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph
from abeyance.settings import Settings
from abeyance.worker import make_worker


def graph_of(build: str) -> Graph:
    graph = Graph("g")
    graph.interrupt("ask", prompt="Go?")
    graph.node(name="tell")(lambda state: {"by": build})
    graph.edge(START, "ask")
    graph.edge("ask", "tell")
    return graph


@asynccontextmanager
async def worker_of(site: Site, build: str, versioning: str) -> AsyncIterator[None]:
    settings = Settings(
        task_queue=site.settings.task_queue,
        shutdown_grace=0.2,
        build_id=build,
        versioning=versioning,
    )
    graph = graph_of(build)
    async with make_worker(site.temporal, {graph.name: graph}, settings, blobs=site.blobs):
        yield


@pytest.mark.parametrize(("versioning", "by"), [("pinned", "one"), ("auto-upgrade", "two")])
async def test_a_run_that_waits_keeps_its_build_or_moves_to_the_current_one(
    temporal: TemporalClient, versioning: str, by: str
) -> None:
    site = Site(temporal, graph_of("any"))
    async with worker_of(site, "one", versioning), worker_of(site, "two", versioning):
        await site.make_current("one")
        run_id = await site.start()
        asked = await site.asked(run_id)
        await site.make_current("two")
        later = await site.start()
        other = await site.asked(later)
        for run, question in ((run_id, asked), (later, other)):
            await site.client.run(run).respond(question.id, True, principal=ANYBODY)
        ended = [await site.ended(run) for run in (run_id, later)]
        workers = await site.client.workers()

    assert [each.values["by"] for each in ended] == [by, "two"]
    assert workers, "versioned workers are found"


async def test_a_build_id_alone_is_shown_and_changes_nothing(temporal: TemporalClient) -> None:
    site = Site(temporal, graph_of("any"))
    async with worker_of(site, "one", "off"):
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        (worker,) = await site.client.workers()

    assert worker.build_id == "one"
