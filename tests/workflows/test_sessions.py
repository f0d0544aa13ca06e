"""Runs as sessions, on a real server: how many may be active, and which ones are evicted."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from sample_graphs import gated
from temporal_site import Site, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance import commands
from abeyance.errors import Code, Refusal
from abeyance.worker import tend


async def seen(site: Site, count: int, *, seconds: float = 30) -> None:
    """Wait until so many active runs are recorded."""

    async def known() -> bool:
        return len(await site.client.runs.active()) == count

    await eventually(known, seconds=seconds)


async def test_a_start_beyond_the_bound_is_rejected_and_the_same_start_again_is_not(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    bound: dict[str, Any] = {"max_active_runs": 2, "max_active_runs_policy": "reject"}
    async with site.worker():
        runs = [await site.start(**bound) for _ in "12"]
        await seen(site, 2)
        refusal = await refused(site.start(**bound, conversation_id=f"c-{runs[0]}"))
        again = await site.client.runs.start(site.graphs["gated"], {}, run_id=runs[0], **bound)

        assert refusal.code is Code.TOO_MANY_RUNS
        assert (refusal.details["limit"], refusal.details["actual"]) == (2, 2)
        assert not again.created
        # Its place in the conversation was given back.
        assert await site.client.conversations.runs(f"c-{runs[0]}") == []
        await site.client.run(runs[0]).cancel()
        await site.ended(runs[0])
        await seen(site, 1)
        await site.start(**bound, conversation_id=f"c-{runs[0]}")


async def test_a_burst_of_starts_fills_the_room_and_no_more(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())

    async def is_started() -> bool:
        try:
            await site.start(max_active_runs=3, max_active_runs_policy="reject")
        except Refusal as refusal:
            assert refusal.code is Code.TOO_MANY_RUNS
            return False
        return True

    async with site.worker():
        started = await asyncio.gather(*(is_started() for _ in range(8)))

    assert sum(started) == 3


async def test_the_run_longest_without_activity_is_halted_for_a_new_one(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        oldest, *others = [await site.start(max_active_runs=3) for _ in "123"]
        for run_id in (oldest, *others):
            await site.until(run_id, "awaiting-input")
        message = commands.SteerMessage(text="still there?", message_id="m1")
        for run_id in (oldest, *others):
            await site.client.run(run_id).send_message(message)
        newest = await site.start(max_active_runs=3)
        halted = await site.ended(oldest)

        assert (halted.status, halted.reason) == ("halted", "evicted")
        assert [(left.message_id, left.reason) for left in halted.undelivered] == [("m1", "halted")]
        assert halted.interrupts == []
        for run_id in (*others, newest):
            assert (await site.client.run(run_id).view()).status != "halted"
        await site.replays(oldest)


async def test_inactive_runs_are_evicted_unless_they_have_a_deadline(
    temporal: TemporalClient,
) -> None:
    patient, timed = gated(), gated("timed", timeout="1h")
    site = Site(temporal, patient, timed)
    async with site.worker():
        idle = await site.start()
        waiting = await site.start(graph=timed)
        for run_id in (idle, waiting):
            await site.until(run_id, "awaiting-input")
        await seen(site, 2)

        assert await site.client.runs.evict(inactive_for=3_600) == []
        assert await site.client.runs.evict(inactive_for=0) == [idle]
        assert (await site.ended(idle)).reason == "evicted"
        assert (await site.client.run(waiting).view()).status == "awaiting-input"
        assert await site.client.runs.evict(inactive_for=0) == []


async def test_all_but_the_most_recent_can_be_evicted_and_a_worker_evicts_as_its_settings_say(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    client = site.client
    async with site.worker():
        runs = []
        for _ in range(3):
            runs.append(await site.start())
            await site.until(runs[-1], "awaiting-input")

        assert [run.run_id for run in await client.runs.active()] == runs[::-1]
        assert await client.runs.evict(keep=2) == runs[:1]
        assert await client.runs.evict(keep=9) == []
        for timeout, left in ((0.0, runs[:0:-1]), (3_600.0, runs[:0:-1]), (0.001, [])):
            update = {"session_inactive_timeout": timeout}
            await tend(client, site.settings.model_copy(update=update))
            assert [run.run_id for run in await client.runs.active()] == left
        for run_id in runs:
            assert (await site.ended(run_id)).reason == "evicted"


async def test_a_session_is_cancelled_at_its_end_also_by_an_error_which_goes_on(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    graph = site.graphs["gated"]
    well, failing = (f"run-{uuid.uuid4().hex}" for _ in "12")
    async with site.worker():
        async with site.client.runs.session(graph, {"amount": 3}, run_id=well) as started:
            assert started.created
            await site.until(well, "awaiting-input")
        with pytest.raises(LookupError, match="lost it"):
            async with site.client.runs.session(graph, run_id=failing):
                raise LookupError("lost it")
        ended = [await site.ended(run_id) for run_id in (well, failing)]
    assert [view.status for view in ended] == ["cancelled"] * 2
    assert ended[0].reason == "its session is over"
    assert "lost it" in (ended[1].reason or "")
