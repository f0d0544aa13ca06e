"""Following a run: from any place in it, over hand-overs, to its end, with nothing missed or repeated."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from sample_graphs import Held, chain, gated, gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient

from abeyance import Refusal, views
from abeyance.core.state import Limits
from abeyance.history.feed import Feed

# Each hand-over takes about a second.
SMALL = Limits(continue_as_new_after=12)


async def followed(feed: Feed, run_id: str, after: str | None = None) -> list[views.Event]:
    """Everything until the end."""
    return [event async for event in feed.follow(run_id, after)]


async def whole(feed: Feed, run_id: str) -> list[views.Event]:
    """All events so far."""
    events, _ = await feed.page(run_id, None, 10_000)
    return events


async def rotated(site: Site) -> str:
    """A run that waits at its gates, and was handed over at least once on its way."""
    run_id = await site.start(limits=SMALL)
    await site.until(run_id, "awaiting-input")
    for _ in range(20):
        if await is_rotated(site.temporal, run_id):
            return run_id
        await site.pause_and_resume(run_id)
    raise AssertionError("twenty pauses, and no hand-over")


async def is_rotated(temporal: TemporalClient, run_id: str) -> bool:
    described = await temporal.get_workflow_handle(run_id).describe()
    return await first_execution(temporal, run_id) != described.run_id


async def first_execution(temporal: TemporalClient, run_id: str) -> str:
    described = await temporal.get_workflow_handle(run_id).describe()
    return described.raw_description.workflow_execution_info.first_run_id


async def test_an_ended_run_is_read_again_from_any_of_its_events_over_its_hand_overs(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, chain(4))
    async with site.worker():
        run_id = await site.start(limits=SMALL)
        await site.ended(run_id)
        assert await is_rotated(temporal, run_id)
    feed = Feed(temporal, site.settings.task_queue)
    events = await followed(feed, run_id)
    ids = [event.id for event in events]

    assert [event.type for event in events] == [
        "run.started",
        *(["node.started", "node.finished"] * 4),
        "run.completed",
    ]
    assert ids == sorted(set(ids))
    for number, id_ in enumerate(ids, 1):
        assert await followed(feed, run_id, id_) == events[number:]
        assert await feed.page(run_id, id_, 100) == (events[number:], None)


async def test_pages_of_any_size_put_together_are_the_whole(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(3))
    async with site.worker():
        run_id = await rotated(site)
        feed = Feed(temporal, site.settings.task_queue)
        events = await whole(feed, run_id)
        for size in (1, 2, 7, len(events), 100):
            read: list[views.Event] = []
            cursor: str | None = None
            while len(read) < len(events):
                page, cursor = await feed.page(run_id, cursor, size)
                assert len(page) == min(size, len(events) - len(read))
                read += page
            assert read == events
            assert cursor == events[-1].id
            assert await feed.page(run_id, cursor, size) == ([], cursor)
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        last, cursor = await feed.page(run_id, events[-1].id, 100)

    assert last[-1].type == "run.cancelled"
    assert cursor is None
    assert await feed.page(run_id, last[-1].id, 1) == ([], None)
    with pytest.raises(ValueError, match="limit=0"):
        await feed.page(run_id, None, 0)


async def test_a_reader_who_reconnects_after_every_event_misses_and_repeats_nothing(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(4))
    feed = Feed(temporal, site.settings.task_queue)

    async def reconnecting(run_id: str) -> list[views.Event]:
        read: list[views.Event] = []
        while not read or read[-1].type not in views.TERMINAL_EVENTS:
            async with aclosing(feed.follow(run_id, read[-1].id if read else None)) as events:
                read.append(await anext(events))
        return read

    async with site.worker():
        run_id = await site.start(limits=SMALL)
        readers = [asyncio.create_task(reconnecting(run_id)) for _ in range(3)]
        steady = asyncio.create_task(followed(feed, run_id))
        view = await site.until(run_id, "awaiting-input")
        for entry in view.interrupts:
            await site.client.run(run_id).respond({entry.id: True}, principal=ANYBODY)
        await site.ended(run_id)
        read = await asyncio.gather(*readers, steady)

    events = await whole(feed, run_id)
    assert await is_rotated(temporal, run_id)
    assert len(events) > 16
    assert read == [events] * 4


async def test_what_is_to_come_is_told_when_it_comes_and_the_last_event_is_the_end(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        events = await Feed(temporal, site.settings.task_queue).opened(run_id, None)
        before = [await asyncio.wait_for(anext(events), 30) for _ in range(5)]
        coming = asyncio.create_task(anext(events))
        await asyncio.wait({coming}, timeout=0.3)
        assert not coming.done()
        await site.client.run(run_id).respond(response={"approved": True}, principal=ANYBODY)
        answered = await asyncio.wait_for(coming, 30)
        rest = [event async for event in events]

    assert before[-1].type == "run.awaiting_input"
    assert answered.type == "interrupt.answered"
    assert [event.type for event in rest] == ["node.started", "node.finished", "run.completed"]


async def test_a_start_is_told_at_once_while_the_node_still_runs(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        events = Feed(temporal, site.settings.task_queue).follow(run_id, None)
        types = [(await asyncio.wait_for(anext(events), 30)).type for _ in range(2)]
        assert types == ["run.started", "node.started"]
        held.release.set()
        assert [event.type async for event in events][-1] == "run.completed"


async def test_what_no_run_or_no_cursor_is_gets_refused_before_the_first_event(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    stranger = await temporal.start_workflow(
        "Another", id="not-a-run-of-ours", task_queue="nobody-serves-this"
    )
    run_id, other = await site.start(), await site.start()
    feed = Feed(temporal, site.settings.task_queue)
    (mine,) = await whole(feed, run_id)
    expected = [
        ("nobody", None, "unknown_run", "nobody"),
        (stranger.id, None, "unknown_run", stranger.id),
        (run_id, "17", "invalid_body", "'17' is not a cursor"),
        (other, mine.id, "invalid_body", mine.id),
    ]
    for name, after, code, text in expected:
        with pytest.raises(Refusal, match=text) as paged:
            await feed.page(name, after, 1)
        with pytest.raises(Refusal, match=text) as opened:
            await feed.opened(name, after)
        assert (paged.value.code, opened.value.code) == (code, code)
    assert feed.tails == 0
    await stranger.terminate()


async def test_a_cursor_whose_history_is_no_longer_kept_is_refused_with_the_oldest(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    async with site.worker():
        run_id = await rotated(site)
        # Something that is told in the newest history.
        await site.client.run(run_id).pause()
        await site.until(run_id, "paused")
        first = await first_execution(temporal, run_id)
        before = await whole(Feed(temporal, site.settings.task_queue), run_id)
        await temporal.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=temporal.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=first),
            )
        )

        async def refused() -> Any:
            try:
                await Feed(temporal, site.settings.task_queue).page(run_id, before[0].id, 1)
            except Refusal as refusal:
                return refusal
            return None

        gone = await eventually(refused)
        with pytest.raises(Refusal, match="no longer kept") as opened:
            await Feed(temporal, site.settings.task_queue).opened(run_id, before[0].id)
        kept, _ = await Feed(temporal, site.settings.task_queue).page(
            run_id, gone.details["oldest"], 1_000
        )
        rest = await whole(Feed(temporal, site.settings.task_queue), run_id)
        follower = Feed(temporal, site.settings.task_queue).follow(run_id, gone.details["oldest"])
        assert await asyncio.wait_for(anext(follower), 30) == kept[0]
        await follower.aclose()

    assert (gone.code, opened.value.code) == ("gone", "gone")
    assert 0 < len(kept) < len(before)
    assert kept == rest == before[-len(kept) :]


async def test_an_id_that_is_used_again_is_another_feed_and_old_cursors_end_with_the_old_run(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    feed = Feed(temporal, site.settings.task_queue)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        old = await whole(feed, run_id)
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        await site.start(run_id=run_id, reuse=True)
        await site.until(run_id, "awaiting-input")
        new = feed.follow(run_id, None)
        first = await anext(new)
        rest = await followed(feed, run_id, old[-1].id)
        await new.aclose()

    assert (first.type, first.id in {event.id for event in old}) == ("run.started", False)
    assert [event.type for event in rest] == ["interrupt.cancelled", "run.cancelled"]


async def test_reading_needs_no_worker_and_leaves_no_trace(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    # No worker ever sees this run, so nothing but a reader could add to its history.
    run_id = await site.start()
    before = list((await site.history(run_id)).events)
    feed = Feed(temporal, site.settings.task_queue)
    followers = [feed.follow(run_id, None) for _ in range(20)]
    read = await asyncio.gather(*(anext(events) for events in followers))
    coming = [asyncio.create_task(anext(events)) for events in followers]
    await asyncio.wait(coming, timeout=0.3)
    for task in coming:
        task.cancel()
    await asyncio.wait(coming)

    assert [event.type for event in read] == ["run.started"] * 20
    assert await whole(feed, run_id) == read[:1]
    assert list((await site.history(run_id)).events) == before
    assert feed.tails == 0
