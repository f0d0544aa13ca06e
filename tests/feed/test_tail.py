"""One long poll for all who follow a run: shared, bounded, and gone with its last follower."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from rpc_counter import counted
from sample_graphs import chain, gates
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Refusal, Unavailable, views
from abeyance.history.feed import Feed


async def test_many_followers_share_one_long_poll(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(20))
    client, counter = counted(temporal)
    feed = Feed(client, site.settings.task_queue)

    async def follow(run_id: str) -> list[str]:
        return [event.id async for event in feed.follow(run_id, None)]

    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        followers = [asyncio.create_task(follow(run_id)) for _ in range(40)]
        await eventually(lambda: counter.polls[run_id] == 1)
        to_join = counter.calls["get_workflow_execution_history"]
        assert feed.tails == 1
        for entry in view.interrupts:
            await site.client.run(run_id).respond({entry.id: True}, principal=ANYBODY)
        await site.ended(run_id)
        read = await asyncio.wait_for(asyncio.gather(*followers), 20)
        events, _ = await Feed(temporal, site.settings.task_queue).page(run_id, None, 1_000)

    assert len(events) > 80
    assert read == [[event.id for event in events]] * 40
    assert counter.most_polls[run_id] == 1
    assert to_join <= 5
    assert sum(counter.calls.values()) < 100
    assert feed.tails == 0


async def test_followers_from_anywhere_in_a_history_share_its_reading_too(
    temporal: TemporalClient,
) -> None:
    # Short enough that the run does not continue as new when it falls idle.
    graph = chain(7)
    graph.interrupt("ask", prompt="Enough?")
    graph.edge("n6", "ask")
    site = Site(temporal, graph)
    client, counter = counted(temporal)
    feed = Feed(client, site.settings.task_queue)

    async def follow(run_id: str, after: str | None) -> list[views.Event]:
        return [event async for event in feed.follow(run_id, after)]

    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        past, _ = await Feed(temporal, site.settings.task_queue).page(run_id, None, 1_000)
        assert len(past) == 17
        places = [None, *(event.id for event in past[::2])]
        followers = [asyncio.create_task(follow(run_id, place)) for place in places]
        await eventually(lambda: counter.polls[run_id] == 1)
        to_join = counter.calls["get_workflow_execution_history"]
        await site.client.run(run_id).pause()
        await site.client.run(run_id).resume()
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)
        await site.ended(run_id)
        read = await asyncio.wait_for(asyncio.gather(*followers), 20)
        everything, _ = await Feed(temporal, site.settings.task_queue).page(run_id, None, 1_000)

    assert to_join < 6
    assert len(everything) > len(past)
    assert read[0] == everything
    for number, rest in enumerate(read[1:]):
        assert rest == everything[2 * number + 1 :]
    assert counter.most_polls[run_id] == 1


async def test_a_reader_who_has_heard_of_more_than_the_tail_hears_none_of_it_twice(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    client, counter = counted(temporal)
    feed = Feed(client, site.settings.task_queue)

    async def follow(run_id: str, after: str) -> list[str]:
        return [event.type async for event in feed.follow(run_id, after)]

    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        first = await feed.opened(run_id, None)
        before = [await anext(first) for _ in range(3)]
        counter.lets_through.clear()
        await site.client.run(run_id).pause()
        await site.until(run_id, "paused")
        # Through another process, say.
        (paused,), _ = await Feed(temporal, site.settings.task_queue).page(
            run_id, before[-1].id, 10
        )
        ahead = asyncio.create_task(follow(run_id, paused.id))
        level = asyncio.create_task(follow(run_id, before[-1].id))
        await site.client.run(run_id).resume()
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        counter.lets_through.set()
        heard = await asyncio.wait_for(asyncio.gather(ahead, level), 30)
        await first.aclose()

    assert heard[0][:1] == ["run.resumed"]
    assert heard[0][-1:] == ["run.cancelled"]
    assert heard[1] == ["run.paused", *heard[0]]


async def test_a_tail_stops_with_its_last_follower_and_leaves_no_task(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    client, counter = counted(temporal)
    feed = Feed(client, site.settings.task_queue)
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        before = asyncio.all_tasks()
        follows = asyncio.Event()

        async def until_the_end() -> None:
            async for _ in feed.follow(run_id, None):
                follows.set()

        closed = feed.follow(run_id, None)
        await anext(closed)
        cancelled = asyncio.create_task(until_the_end())
        await follows.wait()
        await closed.aclose()
        assert feed.tails == 1
        await eventually(lambda: counter.polls[run_id] == 1)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert feed.tails == 0

        dropped = await feed.opened(run_id, None)
        assert feed.tails == 1
        del dropped
        await eventually(lambda: feed.tails == 0)
        await eventually(lambda: counter.polls[run_id] == 0)
        await eventually(lambda: asyncio.all_tasks() <= before)


async def test_of_more_than_a_tail_keeps_only_who_does_not_read_loses_their_place(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(30))
    feed, idle = (
        Feed(temporal, site.settings.task_queue, kept=20),
        Feed(temporal, site.settings.task_queue, kept=20),
    )

    async def follow(run_id: str) -> list[views.Event]:
        return [event async for event in feed.follow(run_id, None)]

    run_id = await site.start()
    quick = asyncio.create_task(follow(run_id))
    slow = feed.follow(run_id, None)
    alone = idle.follow(run_id, None)
    read = [await anext(slow)]
    assert [await anext(alone)] == read
    coming = [asyncio.create_task(anext(slow)), asyncio.create_task(anext(alone))]
    async with site.worker():
        await site.until(run_id, "awaiting-input")
        read.append((await asyncio.gather(*coming))[0])
        late = await feed.opened(run_id, None)
        past = [await asyncio.wait_for(anext(late), 30) for _ in range(30)]
        await site.client.run(run_id).pause()
        # Nobody reads there any more, though the reader has not gone.
        await eventually(lambda: idle.tails == 0)
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
    everything = await asyncio.wait_for(quick, 20)
    with pytest.raises(Unavailable, match=r"too slow.*more than 20 events behind.*last id"):
        await anext(slow)

    assert len(everything) == 1 + 31 + 1 + 30 + 1
    assert everything[-1].type == "run.cancelled"
    assert [*past, *[event async for event in late]] == everything
    assert read + [event async for event in feed.follow(run_id, read[-1].id)] == everything
    assert feed.tails == 0


async def test_no_more_runs_are_followed_at_a_time_than_may_be(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    feed = Feed(temporal, site.settings.task_queue, most_tails=2)
    async with site.worker():
        ids = [await site.start() for _ in range(4)]
        for run_id in ids:
            await site.until(run_id, "awaiting-input")
        over = ids.pop()
        await site.client.run(over).cancel()
        await site.ended(over)
        one, two = [await feed.opened(run_id, None) for run_id in ids[:2]]
        with pytest.raises(Refusal, match="2 runs are followed") as refused:
            await feed.opened(ids[2], None)
        assert (refused.value.code, refused.value.details["limit"]) == ("too_many_runs", 2)

        # Neither a second follower of the same run nor an ended run takes a place.
        async with aclosing(feed.follow(ids[0], None)) as again:
            assert (await anext(again)).type == "run.started"
        assert [event.type async for event in feed.follow(over, None)][-1] == "run.cancelled"
        assert (await feed.page(ids[2], None, 1))[0][0].type == "run.started"

        await one.aclose()
        three = await feed.opened(ids[2], None)
        assert (await anext(three)).run_id == ids[2]
        assert feed.tails == 2
        await two.aclose()
        await three.aclose()
    assert feed.tails == 0
