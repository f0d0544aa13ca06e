"""A follower reads a run from any place to its end, over hand-overs, and misses or repeats nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from contextlib import aclosing
from pathlib import Path

from sample_graphs import Held, gates
from sqlalchemy import event, select
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import views
from abeyance.client import Client
from abeyance.client.feed import Feed
from abeyance.core.state import Limits
from abeyance.records import events
from abeyance.records.batch import Batch, Fact
from abeyance.records.database import Database
from abeyance.records.documents import Transaction
from abeyance.records.tables import runs
from abeyance.records.writing import write
from abeyance.settings import load_settings

# Each hand-over takes about a second.
SMALL = Limits(continue_as_new_after=12)


async def followed(feed: Feed, run_id: str, after: str | None = None) -> list[views.Event]:
    """Return all events until the end of the run."""
    return [event async for event in await feed.opened(run_id, after)]


async def whole(feed: Feed, run_id: str) -> list[views.Event]:
    """Return all events so far."""
    events, _ = await feed.page(run_id, None, 10_000)
    return events


async def test_a_reader_who_reconnects_after_every_event_misses_and_repeats_nothing(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(4))
    feed = site.client.feed

    async def reconnecting(run_id: str) -> list[views.Event]:
        read: list[views.Event] = []
        while not read or read[-1].type not in views.TERMINAL_EVENTS:
            async with aclosing(await feed.opened(run_id, read[-1].id if read else None)) as events:
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
    assert await site.executions(run_id) > 1
    assert len(events) > 16
    assert read == [events] * 4


async def test_a_start_is_streamed_at_once(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        events = await site.client.feed.opened(run_id, None)
        types = [(await asyncio.wait_for(anext(events), 30)).type for _ in range(2)]
        assert types == ["run.started", "node.started"]
        held.release.set()
        assert [event.type async for event in events][-1] == "run.completed"


async def test_a_follower_reads_the_end_of_a_terminated_run_once(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        following = asyncio.create_task(followed(site.client.feed, run_id))
        await temporal.get_workflow_handle(run_id).terminate(reason="enough")
        await eventually(site.client.janitor.round)
        live = await asyncio.wait_for(following, 30)

    ends = [each for each in live if each.type in views.TERMINAL_EVENTS]
    assert [(each.type, each.actor) for each in ends] == [("run.terminated", "temporal")]
    assert "terminated through Temporal" in live[-1].data["reason"]
    assert await followed(site.client.feed, run_id) == live


async def test_a_run_of_which_nothing_is_recorded_yet_is_followed_from_its_first_event(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    site = Site(temporal, gates(1))
    # The client that starts the run has another database.
    elsewhere = Database(f"sqlite:///{tmp_path}/elsewhere.db")
    starter = Client(temporal, task_queue=site.settings.task_queue, records=elsewhere)
    run_id = f"run-{uuid.uuid4().hex[:12]}"
    await starter.runs.start(site.graphs["gates"], {}, run_id=run_id)
    assert await site.client.feed.page(run_id, None, 10) == ([], "000000000000")
    events = await site.client.feed.opened(run_id, None)
    first = asyncio.create_task(anext(events))
    async with site.worker():
        assert (await asyncio.wait_for(first, 30)).type == "run.started"
    await events.aclose()
    elsewhere.close()


async def test_a_follower_reads_the_replacement_of_a_taken_back_event(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
        events = await site.client.feed.opened(run_id, None)
        read = [await asyncio.wait_for(anext(events), 30) for _ in range(3)]
        # This event is of a worker that was killed before Temporal had heard of its task.
        await site.client.records.write(ghost, run_id)
        lost = await asyncio.wait_for(anext(events), 30)
        await site.client.run(run_id).respond(response=1, principal=ANYBODY)
        rest = [event async for event in events]

    assert (lost.type, rest[0].type, rest[0].id) == ("run.paused", "interrupt.answered", lost.id)
    assert [*read, *rest] == await whole(site.client.feed, run_id)


def ghost(tx: Transaction, run_id: str) -> None:
    """Record an event that the run does not know."""
    query = select(runs.c.origin, runs.c.batch, runs.c.view).where(
        runs.c.deployment == tx.deployment, runs.c.run_id == run_id
    )
    origin, number, view = tx.connection.execute(query).one()
    (*_, last) = events.of_run(tx, run_id)
    fact = Fact(number=int(last.id) + 1, time=last.time, type="run.paused")
    batch = Batch(
        number=number + 1,
        after=number,
        origin=origin,
        view=views.RunView.model_validate(tx.documents.read(view)),
        active_at=last.time,
        facts_before=int(last.id),
        facts=[fact],
    )
    write(tx, [batch])


async def test_many_followers_of_a_run_share_what_is_read(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(10))
    database = Database(load_settings().database_url)
    client = Client(temporal, task_queue=site.settings.task_queue, records=database)
    reads = Counter[str]()
    event.listen(database._engine, "begin", lambda _: reads.update(["all"]))
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        followers = [asyncio.create_task(followed(client.feed, run_id)) for _ in range(100)]
        await eventually(lambda: client.records.following.is_at_work)
        for entry in view.interrupts:
            await site.client.run(run_id).respond({entry.id: True}, principal=ANYBODY)
        await site.ended(run_id)
        read = await asyncio.wait_for(asyncio.gather(*followers), 30)

    assert read == [await whole(client.feed, run_id)] * 100
    assert reads["all"] < 300
    await eventually(lambda: not client.records.following.is_at_work)
    database.close()


async def test_reading_needs_no_worker_and_leaves_no_trace(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(1))
    async with site.worker():
        run_id = await site.start()
        await site.until(run_id, "awaiting-input")
    before = list((await site.history(run_id)).events)
    feed = site.client.feed
    followers = [await feed.opened(run_id, None) for _ in range(20)]
    read = await asyncio.gather(*(anext(events) for events in followers))
    for each in followers:
        await each.aclose()

    assert [event.type for event in read] == ["run.started"] * 20
    assert (await whole(feed, run_id))[:1] == read[:1]
    assert list((await site.history(run_id)).events) == before
    await eventually(lambda: run_id not in site.client.records.following.followed)
