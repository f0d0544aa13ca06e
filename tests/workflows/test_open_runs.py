"""Reading open runs without a worker, to compare them with the code of a deploy."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from stored import LARGE, State, connected, letters
from temporal_site import Site, begun, eventually
from temporalio import workflow
from temporalio.client import Client as TemporalClient
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from abeyance import START, Graph
from abeyance.check import RunsReport, check_runs
from abeyance.core.state import Limits
from abeyance.settings import Settings


class Stricter(State):
    text: int  # type: ignore[assignment]


class Counted(BaseModel):
    number: int = 0


class Bounded(BaseModel):
    number: Any = 0
    rate: float


def loop(state: type[BaseModel] = Counted) -> Graph:
    """Return a graph that asks again and again, and counts."""
    graph = Graph("loop", state=state)
    graph.interrupt("ask", prompt="Go on?")
    graph.node(name="count")(lambda state: {"number": state.number + 1})
    graph.edge(START, "ask")
    graph.edge("ask", "count")
    graph.edge("count", "ask")
    return graph


async def report(
    temporal: TemporalClient, site: Site, *graphs: Graph, open_runs: int, every: bool = False
) -> RunsReport:
    """Return the report once visibility knows so many open runs."""

    async def found() -> RunsReport | None:
        served = {graph.name: graph for graph in graphs}
        made = await check_runs(temporal, site.settings.task_queue, served, every=every)
        return made if made.open == open_runs else None

    made: RunsReport = await eventually(found)
    return made


async def test_a_run_counts_as_it_is_now_also_after_a_continue_as_new(
    temporal: TemporalClient,
) -> None:
    before = loop()
    async with begun(temporal, before, limits=Limits(continue_as_new_after=6)) as (site, run):
        first = (await temporal.get_workflow_handle(run.run_id).describe()).run_id
        for number in range(6):
            await site.answer(run.run_id, number)
        await site.until(run.run_id, "awaiting-input")
        assert (await temporal.get_workflow_handle(run.run_id).describe()).run_id != first

    same = await report(temporal, site, before, open_runs=1)
    (block,) = (await report(temporal, site, loop(Bounded), open_runs=1)).blocks

    assert not same.blocks
    assert block.code == "values_incompatible"
    assert "Bounded: /rate: Field required" in block.text


async def test_a_run_that_no_worker_has_begun_counts_and_one_that_has_ended_does_not(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, loop())
    async with site.worker():
        ended = await site.start()
        await site.until(ended, "awaiting-input")
        await site.client.run(ended).cancel()
        await site.ended(ended)
    waiting = await site.start()

    # Visibility may still list the ended run, and not yet the waiting one.
    async def is_only_the_waiting_one() -> bool:
        found = await report(temporal, site, open_runs=1)
        return [*found.blocks.values()] == [[waiting]]

    await eventually(is_only_the_waiting_one)


async def test_one_run_of_each_pinned_graph_is_replayed(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, loop())
    other = loop(Bounded)
    runs = {
        await site.start(),
        await site.start(),
        await site.start(graph=other, input={"rate": 1}),
    }
    one_of_each = await report(temporal, site, open_runs=3)
    every = await report(temporal, site, open_runs=3, every=True)

    assert (one_of_each.replayed, every.replayed) == (2, 3)
    for found in (one_of_each, every):
        ((block, run_ids),) = found.blocks.items()
        assert (block.code, {*run_ids}) == ("code_missing", runs)


async def test_encrypted_values_in_storage_are_compared_and_without_the_key_the_run_is_listed(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    keys = f"k:{base64.b64encode(os.urandom(32)).decode()}"
    settings = Settings(encryption_keys=keys, storage=str(tmp_path), max_payload=1_024)
    sealed = connected(temporal, settings)
    site = Site(sealed, letters())
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        assert view.values["text"] == LARGE
    changed = letters()
    changed.states = Graph("letters", state=Stricter).states

    same = await report(sealed, site, letters(), open_runs=1)
    (stricter,) = (await report(sealed, site, changed, open_runs=1)).blocks
    keyless = connected(temporal, Settings(storage=str(tmp_path), max_payload=1_024))
    without = await report(keyless, site, letters(), open_runs=1)

    assert not same.blocks
    assert stricter.code == "values_incompatible"
    ((unreadable, run_ids),) = without.blocks.items()
    assert (unreadable.node, unreadable.code, run_ids) == ("letters", "key_missing", [run_id])


@workflow.defn(name="loop")
class OtherVersion:
    """A run as another version would write its history: it waits for a timer."""

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        await workflow.sleep(3_600)


async def test_a_run_whose_history_cannot_be_replayed_is_listed(temporal: TemporalClient) -> None:
    site = Site(temporal, loop())
    run_id = await site.start()
    runner = UnsandboxedWorkflowRunner()
    queue = site.settings.task_queue
    async with Worker(temporal, task_queue=queue, workflows=[OtherVersion], workflow_runner=runner):

        async def has_begun() -> bool:
            return len((await site.history(run_id)).events) > 3

        await eventually(has_begun)
    found = await report(temporal, site, loop(), open_runs=1)

    ((block, run_ids),) = found.blocks.items()
    assert (block.code, run_ids) == ("cannot_replay", [run_id])
