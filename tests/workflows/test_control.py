"""Pause, resume and cancel on a real server, from our client and from Temporal itself."""

from __future__ import annotations

import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field, create_model
from sample_graphs import Held
from temporal_site import ANYBODY, Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Graph, Refusal, commands
from abeyance.activities.heartbeat import HEARTBEAT_SECONDS
from abeyance.errors import Code
from abeyance.temporal.workarounds.heartbeat import THROTTLE_SECONDS

SOON = 15
"""In seconds, far more than a stop takes: on a busy machine a second may be long. Without the worker's
own throttle of heartbeats, code hears of a stop after 24 seconds at the earliest."""


async def test_pause_now_stops_a_thread_in_order_and_what_it_returns_counts(
    temporal: TemporalClient,
) -> None:
    held = Held("thread")
    async with begun(temporal, held.graph) as (site, run):
        await eventually(lambda: held.started)
        began = time.monotonic()
        await run.pause(mode="now")
        await eventually(lambda: held.stopped)
        took = time.monotonic() - began
        await run.resume()
        ended = await site.ended(run.run_id)
        assert took < SOON
        assert ended.values["log"] == ["stopped in order", "cleanup completed"]
        assert ended.metrics is not None
        assert ended.metrics.visits == 2


async def test_a_cancel_reaches_a_node_within_three_seconds_and_finally_nodes_run(
    temporal: TemporalClient,
) -> None:
    held = Held()
    async with begun(temporal, held.graph) as (site, run):
        await eventually(lambda: held.started)
        began = time.monotonic()
        await run.control(commands.Cancel(reason="wrong file", actor="ada"))
        ending = await run.view()
        ended = await site.ended(run.run_id)

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
        await site.replays(run.run_id)


async def test_a_worker_that_shuts_down_costs_a_node_no_attempt(temporal: TemporalClient) -> None:
    held = Held(retries=0)
    site = Site(temporal, held.graph)
    run_id = await site.start()
    async with site.worker():
        await eventually(lambda: held.started)
    held.release.set()
    async with site.worker():
        ended = await site.ended(run_id)

    assert held.started == 2
    assert ended.status == "completed"


async def test_edited_values_are_held_against_the_model_of_the_worker_which_writes_them(
    temporal: TemporalClient,
) -> None:
    def limited(most: int, type_: Any = str) -> Graph:
        amount: Any = (Annotated[int, Field(le=most)], 1)
        graph = Graph("limited", state=create_model("Limited", name=(type_, ""), amount=amount))
        graph.interrupt("ask", prompt="Who is {name}?")
        graph.edge(START, "ask")
        return graph

    graph = limited(50, Annotated[str, AfterValidator(str.upper)])
    async with begun(temporal, graph) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        behind, ahead = (site.client.run(run.run_id, limited(most)) for most in (10, 100))
        await behind.edit_values({"amount": 40, "name": "ada"}, principal=ANYBODY)
        with pytest.raises(Refusal, match="less than or equal to 50") as refused:
            await ahead.edit_values({"amount": 70}, principal=ANYBODY)
        with pytest.raises(ValueError, match="is one of the graph 'limited', not of 'other'"):
            await site.client.run(run.run_id, Graph("other")).edit_values({}, principal=ANYBODY)
        view = await ahead.view()
    assert refused.value.code is Code.INVALID_INPUT
    assert refused.value.details["errors"][0]["pointer"] == "/amount"
    assert (view.values["amount"], view.values["name"]) == (40, "ADA")
    assert [each.prompt for each in view.interrupts] == ["Who is ADA?"]
