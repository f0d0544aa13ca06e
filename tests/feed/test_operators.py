"""What an operator does through Temporal itself: the feed still ends, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sample_graphs import gates
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.client.feed import Feed
from abeyance.client.start import StartPlan
from abeyance.core.state import Limits


async def followed(feed: Feed, run_id: str, after: str | None = None) -> list[views.Event]:
    return [event async for event in feed.follow(run_id, after)]


def ends(events: list[views.Event]) -> list[str]:
    return [event.type for event in events if event.type in views.TERMINAL_EVENTS]


async def test_a_run_that_is_terminated_ends_so(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        following = asyncio.create_task(followed(site.client.feed, run_id))
        await temporal.get_workflow_handle(run_id).terminate(reason="enough")
        await eventually(site.client.janitor.round)
        live = await asyncio.wait_for(following, 30)

    assert ends(live) == ["run.terminated"]
    assert live[-1].actor == "temporal"
    assert "terminated through Temporal" in live[-1].data["reason"]
    assert await followed(site.client.feed, run_id) == live


async def test_a_run_that_is_cancelled_natively_ends_with_what_it_left_in_its_memo(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await temporal.get_workflow_handle(run_id).cancel(reason="wrong customer")
        ended = await site.ended(run_id)
        events = await followed(site.client.feed, run_id)

    assert ends(events) == ["run.cancelled"]
    assert (events[-1].actor, events[-1].data["reason"]) == ("temporal", ended.reason)
    assert "wrong customer" in (ended.reason or "")


async def test_a_run_that_timed_out_in_temporal_ends_so(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    launch = StartPlan.of(
        site.graphs["gates"],
        {},
        run_id="timed-out",
        conversation_id=None,
        session_type="agent",
        labels={},
        limits=Limits(),
        started_by="ada",
    )
    async with site.worker():
        await temporal.start_workflow(
            launch.spec.name,
            args=launch.arguments,
            id="timed-out",
            search_attributes=launch.search_attributes,
            task_queue=site.settings.task_queue,
            execution_timeout=timedelta(seconds=3),
        )
        await site.until("timed-out", "awaiting-input")
    await site.ended("timed-out")
    events = await followed(site.client.feed, "timed-out")

    assert ends(events) == ["run.timed_out"]
    assert events[-1].data == {"reason": "timed out in Temporal"}
