"""Followers of the records miss nothing. One thread serves them all, and ends with the last one."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack

import pytest
from postgres import Cluster
from recorded import Recorded, batch, fact, opened, run_view
from temporal_site import eventually

from abeyance.records import events
from abeyance.records.following import Changes, Following


def happened(recorded: Recorded, run_id: str, number: int = 1) -> None:
    recorded.write(batch(run_view(run_id), facts=[fact(number)], number=number))


async def was_woken(changes: Changes, within: float = 10.0) -> bool:
    began = time.monotonic()
    await changes.next(within)
    return time.monotonic() - began < within


async def quiet(following: Following, changes: Changes) -> None:
    """Wait until the thread has begun, which wakes every follower once."""
    await eventually(lambda: following.is_at_work)
    while await was_woken(changes, 0.5):
        pass


async def test_a_follower_of_a_run_is_woken_only_by_its_events(
    recorded: Recorded,
) -> None:
    following = Following(recorded.database)
    with ExitStack() as waiting:
        mine, other, all_ = (
            waiting.enter_context(following.changes(run_id)) for run_id in ("a", "b", None)
        )
        for each in (mine, other, all_):
            await quiet(following, each)
        happened(recorded, "a")

        assert await was_woken(mine)
        assert await was_woken(all_)
        assert not await was_woken(other, 0.3)
        happened(recorded, "b")
        assert await was_woken(other)
        assert not await was_woken(mine, 0.3)


async def test_a_follower_with_statuses_is_woken_once_the_run_has_one(recorded: Recorded) -> None:
    following = Following(recorded.database)
    with (
        following.changes("a", until=frozenset({"awaiting-input"})) as waiting,
        following.changes("a", until=frozenset({"completed"})) as completed,
    ):
        for each in (waiting, completed):
            await quiet(following, each)
        happened(recorded, "a")

        assert await was_woken(waiting)
        assert not await was_woken(completed, 0.3)


async def test_an_event_recorded_between_reading_and_waiting_wakes_the_follower(
    recorded: Recorded,
) -> None:
    following = Following(recorded.database)
    seen = 0
    with following.changes("a") as changes:
        for number in range(1, 8):
            happened(recorded, "a", number)
            # The follower must not miss an event whatever the moment of its recording.
            await asyncio.sleep(number % 3 * 0.02)
            while seen < number:
                assert await was_woken(changes)
                seen = max([seen, *(int(e.id) for e in recorded.read(events.of_run, "a"))])


async def test_the_thread_ends_with_the_last_who_waits_and_begins_anew(recorded: Recorded) -> None:
    following = Following(recorded.database)
    for number in (1, 2):
        with following.changes("a") as changes:
            await quiet(following, changes)
            happened(recorded, "a", number)
            assert await was_woken(changes)
        await eventually(lambda: not following.is_at_work)


async def test_a_lost_connection_is_made_anew_and_everybody_looks_once(cluster: Cluster) -> None:
    with cluster.database() as url, opened(url) as recorded:
        following = Following(recorded.database)
        with following.changes("a") as changes:
            await quiet(following, changes)
            cluster.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'abeyance'"
            )
            happened(recorded, "a")
            assert await was_woken(changes)
            await quiet(following, changes)
            happened(recorded, "a", 2)
            assert await was_woken(changes)


async def test_a_reader_whose_loop_is_over_keeps_nobody_from_being_woken(
    recorded: Recorded,
) -> None:
    following = Following(recorded.database)
    left = ExitStack()

    async def leave() -> None:
        left.enter_context(following.changes("a"))

    await asyncio.to_thread(asyncio.run, leave())
    with following.changes("a") as changes:
        await quiet(following, changes)
        happened(recorded, "a")
        assert await was_woken(changes)
    left.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_follower_stops_even_if_it_is_woken_at_once(turns: int) -> None:
    changes = Changes(None, None)
    await changes.next(0)
    waiting = asyncio.create_task(changes.next(60))
    await asyncio.sleep(0.01)
    changes.wake()
    for _ in range(turns):
        await asyncio.sleep(0)

    is_stopped = waiting.cancel()
    await asyncio.wait({waiting})

    assert waiting.cancelled() == is_stopped
