"""Waiting for a run: callers are told at once, from the records, wherever the run goes meanwhile."""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path

import pytest
from rpc_counter import RpcCounter, counted
from sample_graphs import Held, gated, gates
from temporal_site import ANYBODY, Site, begun, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance import Refusal
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.records.database import Database

_WAITING = frozenset({"awaiting-input"})


def new_id() -> str:
    return f"run-{uuid.uuid4().hex[:12]}"


def counting(site: Site) -> tuple[Client, RpcCounter]:
    temporal, counter = counted(site.temporal)
    return Client(temporal, task_queue=site.settings.task_queue, patience=15), counter


def is_waiting(client: Client, run_id: str) -> bool:
    return run_id in client.records.following.followed


async def test_a_wait_for_the_end_returns_the_recorded_end(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    client, counter = counting(site)
    async with site.worker():
        run_id = await site.start()
        async with asyncio.timeout(15), asyncio.TaskGroup() as group:
            waiting = group.create_task(client.run(run_id).wait(timeout=15))
            await eventually(lambda: held.started and is_waiting(client, run_id))
            held.release.set()
        ended = waiting.result()

    assert ended.status == "completed"
    assert ended.values["log"] == ["held", "cleanup completed"]
    assert ended.ended_at is not None
    assert counter.calls["get_workflow_execution_history"] == counter.calls["query_workflow"] == 0


async def test_a_wait_for_a_question_returns_no_unrecorded_run(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = Site(temporal, gated())
    # No run has recorded anything there.
    behind = Client(
        temporal,
        task_queue=site.settings.task_queue,
        records=Database(f"sqlite:///{tmp_path / 'behind.db'}"),
    )
    async with site.worker():
        run_id = await site.start({"amount": 3})
        await site.asked(run_id)
        began = time.monotonic()
        view = await behind.run(run_id).wait(until=_WAITING, timeout=1.0)

    assert time.monotonic() - began > 0.9
    assert (view.degraded, view.status, view.interrupts) == (True, "awaiting-input", [])


async def test_a_wait_for_a_gate_returns_as_soon_as_a_worker_comes(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    client, _ = counting(site)
    run_id = await site.start({"amount": 3})
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = group.create_task(client.run(run_id).wait(until=_WAITING, timeout=25))
        await eventually(lambda: is_waiting(client, run_id))
        async with site.worker():
            view = await waiting

    assert (view.status, view.degraded) == ("awaiting-input", False)
    assert [entry.prompt for entry in view.interrupts] == ["Pay 3?"]


async def test_a_wait_goes_with_the_run_over_every_hand_over(temporal: TemporalClient) -> None:
    async with begun(temporal, gates(3), limits=Limits(continue_as_new_after=3)) as (site, run):
        view = await site.until(run.run_id, "awaiting-input")
        async with asyncio.TaskGroup() as group:
            end = group.create_task(run.wait(timeout=30))
            ending = frozenset({"ending", "completed"})
            either = group.create_task(run.wait(until=ending, timeout=30))
            for entry in view.interrupts:
                await run.respond({entry.id: 1}, principal=ANYBODY)
        begin = (
            (await site.history(run.run_id)).events[0].workflow_execution_started_event_attributes
        )

    assert begin.continued_execution_run_id
    assert end.result().status == "completed"
    assert either.result().status in ending


async def test_a_wait_for_a_run_that_is_not_there_is_refused_at_once(
    temporal: TemporalClient,
) -> None:
    with pytest.raises(Refusal, match="no run 'never-was'") as refused:
        await Client(temporal).run("never-was").wait(timeout=60)

    assert refused.value.code == "unknown_run"


@pytest.mark.usefixtures("deserted")
async def test_a_run_that_an_operator_terminates_ends_the_wait(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    client, _ = counting(site)
    run_id = await site.start()
    async with asyncio.timeout(15), asyncio.TaskGroup() as group:
        waiting = group.create_task(client.run(run_id).wait(until=_WAITING, timeout=15))
        await eventually(lambda: is_waiting(client, run_id))
        await temporal.get_workflow_handle(run_id).terminate("gone wrong")
    view = waiting.result()

    assert (view.status, view.reason) == ("terminated", "terminated through Temporal")
    assert view.ended_at is not None


async def test_the_same_start_again_waits_for_the_run_of_the_first(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    run_id = new_id()
    async with site.worker():
        first, second = [
            await site.client.runs.start(gated(), run_id=run_id, wait=30, until=_WAITING)
            for _ in range(2)
        ]
        refusal = await refused(
            site.client.runs.start(gated(), {"amount": 4}, run_id=run_id, wait=30, until=_WAITING)
        )

    assert (first.created, second.created) == (True, False)
    assert second.view is not None
    assert second.view.status == "awaiting-input"
    assert [entry.prompt for entry in second.view.interrupts] == ["Pay 0?"]
    assert refusal.code == "run_exists"
