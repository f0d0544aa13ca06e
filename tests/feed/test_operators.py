"""What an operator does through Temporal itself: the feed still ends, once, and goes on after a reset."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from sample_graphs import chain, gates
from temporal_site import ANYBODY, Site
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient

from abeyance import names, views
from abeyance.client.start import StartPlan
from abeyance.core.state import Limits
from abeyance.history.feed import Feed


async def followed(feed: Feed, run_id: str, after: str | None = None) -> list[views.Event]:
    return [event async for event in feed.follow(run_id, after)]


async def newest(temporal: TemporalClient, run_id: str) -> str:
    execution = (await temporal.get_workflow_handle(run_id).describe()).run_id
    assert execution is not None
    return execution


async def reset(temporal: TemporalClient, run_id: str, execution: str, to: int = 4) -> None:
    """Back to before a workflow task of an execution was completed, the first unless told."""
    await temporal.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
            workflow_task_finish_event_id=to,
            reason="a bad deploy",
            request_id=execution,
        )
    )


async def rotate(site: Site, run_id: str) -> None:
    """Give the run something to do until it is handed over."""
    before = await newest(site.temporal, run_id)
    for _ in range(20):
        await site.pause_and_resume(run_id)
        if await newest(site.temporal, run_id) != before:
            return
    raise AssertionError("twenty pauses, and no hand-over")


def ends(events: list[views.Event]) -> list[str]:
    return [event.type for event in events if event.type in views.TERMINAL_EVENTS]


async def test_a_run_that_is_terminated_ends_so(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        following = asyncio.create_task(followed(Feed(temporal, site.settings.task_queue), run_id))
        await temporal.get_workflow_handle(run_id).terminate(reason="enough")
        live = await asyncio.wait_for(following, 30)

    assert ends(live) == ["run.terminated"]
    assert live[-1].actor == "temporal"
    assert live[-1].data == {"reason": "terminated through Temporal: enough"}
    assert await followed(Feed(temporal, site.settings.task_queue), run_id) == live


async def test_a_run_that_is_cancelled_natively_ends_with_what_it_left_in_its_memo(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        await temporal.get_workflow_handle(run_id).cancel(reason="wrong customer")
        ended = await site.ended(run_id)
        events = await followed(Feed(temporal, site.settings.task_queue), run_id)

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
    await temporal.start_workflow(
        names.WORKFLOW,
        args=launch.arguments,
        id="timed-out",
        task_queue=site.settings.task_queue,
        execution_timeout=timedelta(seconds=1),
    )
    events = await asyncio.wait_for(
        followed(Feed(temporal, site.settings.task_queue), "timed-out"), 30
    )

    assert [event.type for event in events] == ["run.started", "run.timed_out"]
    assert events[-1].data == {"reason": "timed out in Temporal"}


async def test_a_follower_of_a_run_that_is_reset_goes_on_with_what_replaced_it(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    feed = Feed(temporal, site.settings.task_queue)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        live = await feed.opened(run_id, None)
        before = [await anext(live) for _ in range(3)]
        for _ in range(2):
            await reset(temporal, run_id, await newest(temporal, run_id))
            before += [await asyncio.wait_for(anext(live), 30) for _ in range(2)]
        view = await site.until(run_id, "awaiting-input")
        await site.client.run(run_id).respond({view.interrupts[0].id: 1}, principal=ANYBODY)
        events = before + [event async for event in live]

    opened = ["interrupt.opened", "run.awaiting_input"]
    assert [event.type for event in events] == [
        "run.started",
        *(opened * 3),
        "interrupt.answered",
        "node.started",
        "node.finished",
        "run.completed",
    ]
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert await followed(Feed(temporal, site.settings.task_queue), run_id) == events
    for number, id_ in enumerate(ids, 1):
        assert (
            await followed(Feed(temporal, site.settings.task_queue), run_id, id_) == events[number:]
        )


async def test_what_a_reset_leaves_as_it_was_is_not_told_again(temporal: TemporalClient) -> None:
    site = Site(temporal, chain(3))
    async with site.worker():
        run_id = await site.start()
        await site.ended(run_id)
        first = await followed(Feed(temporal, site.settings.task_queue), run_id)
        history = (await site.history(run_id)).events
        *_, last = (
            event.event_id
            for event in history
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        )
        for _ in range(3):
            await reset(temporal, run_id, await newest(temporal, run_id), last)
            await site.ended(run_id)
        everything = await followed(Feed(temporal, site.settings.task_queue), run_id)

    assert [event.type for event in everything] == [event.type for event in first]
    assert everything[:-1] == first[:-1]
    assert everything[-1].id > first[-1].id


async def test_a_run_that_had_ended_and_was_reset_ends_once_more_and_only_then(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, chain(1))
    async with site.worker():
        run_id = await site.start()
        await site.ended(run_id)
        first = await followed(Feed(temporal, site.settings.task_queue), run_id)
        await reset(temporal, run_id, await newest(temporal, run_id))
        again = await followed(Feed(temporal, site.settings.task_queue), run_id, first[-1].id)
        everything = await followed(Feed(temporal, site.settings.task_queue), run_id)

    assert ends(first) == ["run.completed"]
    assert [event.type for event in again] == ["node.started", "node.finished", "run.completed"]
    assert everything == [*first[:-1], *again]


async def test_a_reset_to_before_a_hand_over_is_followed_and_cursors_still_grow(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    feed = Feed(temporal, site.settings.task_queue)
    async with site.worker():
        run_id = await site.start(limits=Limits(continue_as_new_after=10))
        await site.until(run_id, "awaiting-input")
        first = await newest(temporal, run_id)
        await rotate(site, run_id)
        before, cursor = await feed.page(run_id, None, 1_000)
        following = asyncio.create_task(followed(feed, run_id, cursor))
        await reset(temporal, run_id, first)
        await rotate(site, run_id)
        view = await site.until(run_id, "awaiting-input")
        for entry in view.interrupts:
            await site.client.run(run_id).respond({entry.id: 2}, principal=ANYBODY)
        await site.ended(run_id)
        after = await asyncio.wait_for(following, 30)

    ids = [event.id for event in (*before, *after)]
    assert ids == sorted(set(ids))
    assert ends([*before, *after]) == ["run.completed"]
    assert await followed(Feed(temporal, site.settings.task_queue), run_id, before[0].id) == [
        *before[1:],
        *after,
    ]
