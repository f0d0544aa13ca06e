"""Pause, resume and cancel on a real server, from our client and from Temporal itself."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, create_model
from sample_graphs import Held, State, gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph, Refusal, commands
from abeyance.activities.heartbeat import HEARTBEAT_SECONDS
from abeyance.errors import Code
from abeyance.temporal.workarounds.heartbeat import THROTTLE_SECONDS

SOON = 15
"""In seconds, far more than it takes: on a machine that is busy, a second may be long. Where nobody sees
to it that code hears in time, it hears after 24 seconds at the earliest."""


async def test_a_paused_run_finishes_what_runs_and_starts_nothing(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        await site.client.run(run_id).control(commands.Pause(reason="audit", actor="ada"))
        paused = await site.client.run(run_id).view()
        held.release.set()

        async def is_idle() -> bool:
            return not (await site.client.run(run_id).view()).running

        await eventually(is_idle)
        idle = await site.client.run(run_id).view()
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

        assert (paused.status, paused.running) == ("paused", ["graph:held;node:hold"])
        assert paused.pause is not None
        assert (paused.pause.actor, paused.pause.reason) == ("ada", "audit")
        assert (idle.status, idle.values["log"]) == ("paused", ["held"])
        assert ended.values["log"] == ["held", "cleanup completed"]
        assert ended.metrics is not None
        assert (ended.metrics.pause_count, ended.metrics.resume_count) == (1, 1)
        await site.replays(run_id)


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_pause_now_stops_a_node_and_runs_it_again_as_the_same_visit(
    temporal: TemporalClient, how: Any
) -> None:
    held = Held(how)
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        began = time.monotonic()
        await site.client.run(run_id).pause(mode="now")
        await eventually(lambda: held.stopped)
        took = time.monotonic() - began
        held.release.set()
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

        assert took < SOON
        if how == "async":
            assert held.started == 2
            assert ended.values["log"] == ["held", "cleanup completed"]
        else:
            # A thread that stops in order has finished: what it returns counts.
            assert ended.values["log"] == ["stopped in order", "cleanup completed"]
        assert ended.metrics is not None
        assert ended.metrics.visits == 2


async def test_an_answer_to_a_paused_run_is_kept_until_it_resumes(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).pause()
        await site.client.run(run_id).respond(response={"approved": True}, principal=ANYBODY)
        paused = await site.client.run(run_id).view()
        await site.client.run(run_id).resume()
        ended = await site.ended(run_id)

        assert (paused.status, paused.interrupts) == ("paused", [])
        assert paused.values["log"] == ["before"]
        assert ended.values["log"][1] == "after {'approved': True}"


async def test_a_cancel_reaches_a_node_within_three_seconds_and_finally_nodes_run(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        began = time.monotonic()
        await site.client.run(run_id).control(commands.Cancel(reason="wrong file", actor="ada"))
        ending = await site.client.run(run_id).view()
        ended = await site.ended(run_id)

        assert time.monotonic() - began < SOON
        assert HEARTBEAT_SECONDS + THROTTLE_SECONDS < 3
        assert (ending.status, ending.outcome) == ("ending", "cancelled")
        assert held.stopped == 1
        assert (ended.status, ended.reason, ended.cancelled_by) == (
            "cancelled",
            "wrong file",
            "ada",
        )
        assert ended.values["log"] == ["cleanup cancelled"]
        await site.replays(run_id)


async def test_a_node_that_ignores_its_cancel_does_not_hold_the_run_beyond_its_grace(
    temporal: TemporalClient,
) -> None:
    held = Held("deaf")
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        began = time.monotonic()
        await site.client.run(run_id).cancel(grace=1.5)
        ended = await site.ended(run_id)
        took = time.monotonic() - began
        held.release.set()

        assert 1.4 < took < SOON
        assert ended.status == "cancelled"
        assert ended.values["log"] == ["cleanup cancelled"]


async def test_cancel_now_does_not_wait_and_escalates_a_graceful_one(
    temporal: TemporalClient,
) -> None:
    held = Held("deaf")
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        await site.client.run(run_id).cancel(grace=600)
        assert (await site.client.run(run_id).view()).status == "ending"
        await site.client.run(run_id).cancel(mode="now")
        ended = await site.ended(run_id)
        held.release.set()

        assert ended.status == "cancelled"
        assert ended.values["log"] == ["cleanup cancelled"]


async def test_temporals_own_cancel_means_the_same_and_closes_as_canceled(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        await temporal.get_workflow_handle(run_id).cancel()
        ended = await site.ended(run_id)
        described = await temporal.get_workflow_handle(run_id).describe()
        result = await site.client.run(run_id).result()

        assert (ended.status, ended.degraded) == ("cancelled", False)
        assert result.values["log"] == ["cleanup cancelled"]
        assert described.status is not None
        assert described.status.name == "CANCELED"
        await site.replays(run_id)


async def test_a_finally_node_that_takes_too_long_is_reported_with_its_timeout(
    temporal: TemporalClient,
) -> None:
    graph = Graph("slow", state=State)

    @graph.node
    async def work(state: State) -> None: ...

    @graph.node(retries=0, timeout=1)
    async def tidy(state: State) -> None:
        await asyncio.sleep(60)

    graph.edge(START, "work")
    graph.finally_("tidy")
    site = Site(temporal, graph)
    async with site.worker():
        ended = await site.ended(await site.start())

    told = [(failure.address, failure.message) for failure in ended.beside]
    assert told == [
        (
            "graph:slow;node:tidy",
            "'tidy' took longer than its timeout of 1 s. No retries are left (retries=0).",
        )
    ]


async def test_a_worker_that_shuts_down_costs_a_node_no_attempt(temporal: TemporalClient) -> None:
    held = Held(retries=0)
    site = Site(temporal, held.graph)
    run_id = await site.start()
    worker = asyncio.create_task(_work_until(site, held))
    await worker
    held.release.set()
    async with site.worker():
        ended = await site.ended(run_id)

    assert held.started == 2
    assert ended.status == "completed"


async def _work_until(site: Site, held: Held) -> None:
    async with site.worker():
        await eventually(lambda: held.started)


async def test_the_graph_of_a_handle_by_which_values_are_checked_is_that_of_the_run(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    other = Graph("other")
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        with pytest.raises(ValueError, match="is one of the graph 'gated', not of 'other'"):
            await site.client.run(run_id, other).edit_values({"amount": "x"}, principal=ANYBODY)


async def test_edited_values_are_kept_as_the_model_of_the_worker_writes_them(
    temporal: TemporalClient,
) -> None:
    def named(type_: Any) -> Graph:
        graph = Graph("named", state=create_model("Named", name=(type_, "")))
        graph.interrupt("ask", prompt="Who is {name}?")
        graph.edge(START, "ask")
        return graph

    site = Site(temporal, named(Annotated[str, AfterValidator(str.upper)]))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        run = site.client.run(run_id, named(str))
        await run.edit_values({"name": "ada"}, principal=ANYBODY)
        view = await run.view()

    assert view.values["name"] == "ADA"
    assert [each.prompt for each in view.interrupts] == ["Who is ADA?"]


async def test_edited_values_are_held_against_the_model_of_the_worker_and_not_of_who_sends_them(
    temporal: TemporalClient,
) -> None:
    def limited(most: int) -> Graph:
        state = create_model("Limited", amount=(Annotated[int, Field(le=most)], 1))
        graph = Graph("limited", state=state)
        graph.interrupt("ask", prompt="Well?")
        graph.edge(START, "ask")
        return graph

    site = Site(temporal, limited(50))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        behind = site.client.run(run_id, limited(10))
        await behind.edit_values({"amount": 40}, principal=ANYBODY)
        ahead = site.client.run(run_id, limited(100))
        with pytest.raises(Refusal, match="less than or equal to 50") as refused:
            await ahead.edit_values({"amount": 70}, principal=ANYBODY)
        view = await ahead.view()

    assert refused.value.code is Code.INVALID_INPUT
    assert refused.value.details["errors"][0]["pointer"] == "/amount"
    assert view.values["amount"] == 40
