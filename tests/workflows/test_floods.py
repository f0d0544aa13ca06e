"""A flood of signals to a run whose worker is away: the run goes on, and no accepted one is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest
from sample_graphs import gated
from temporal_site import ANYBODY, Site, begun, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Refusal, commands
from abeyance.core.state import Limits
from abeyance.errors import Code

WIDE = Limits(max_queue_size=1_000, max_message_length=100_000)


def message(number: int, text: str = "hello") -> commands.SteerMessage:
    return commands.SteerMessage(message_id=f"m{number}", text=text)


async def outcomes(send: Callable[[int], Awaitable[object]], count: int) -> Counter[str]:
    """Make so many calls, 50 at a time, and count those that were accepted and refused."""
    results: Counter[str] = Counter()
    room = asyncio.Semaphore(50)

    async def one(number: int) -> None:
        async with room:
            try:
                await send(number)
            except Refusal as refusal:
                assert refusal.code is Code.QUEUE_FULL, refusal
                results["refused"] += 1
            else:
                results["accepted"] += 1

    await asyncio.gather(*(one(number) for number in range(count)))
    return results


async def accepted(send: Callable[[], Awaitable[object]]) -> None:
    """Send again while the queue is told to be full: the client reads a history once a second at most."""
    async with asyncio.timeout(60):
        while (await outcomes(lambda _: send(), 1))["refused"]:
            await asyncio.sleep(0.2)


async def test_a_run_whose_worker_is_away_takes_300_signals_of_a_kind_and_loses_none(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    run_id = await site.start(limits=WIDE)
    run = site.client.run(run_id)

    sent = await outcomes(lambda number: run.signal_message(message(number)), 400)
    # Signals that Temporal stored while the client read the history may count twice until it reads again.
    assert 250 <= sent["accepted"] <= 300
    assert sent.total() == 400
    # A flood of messages cannot keep others from controlling the run.
    await run.pause()
    await run.resume()
    async with site.worker():
        await site.until(run_id, "awaiting-input")
        assert await run.queue_depth() == sent["accepted"]

        # Signals that the run has processed no longer count once the client has read its history again.
        await accepted(lambda: run.signal_message(message(1_000)))
        await run.respond(response={"approved": True}, principal=ANYBODY)
        view = await site.ended(run_id)

    assert view.status == "completed"
    assert len(view.undelivered) == 301


@pytest.mark.parametrize("text", ["x" * 10_000, "x" * 90_000], ids=["in-history", "large"])
async def test_a_run_whose_worker_is_away_takes_a_megabyte_of_signals(
    temporal: TemporalClient, text: str
) -> None:
    site = Site(temporal, gated())
    run_id = await site.start(limits=WIDE)
    run = site.client.run(run_id)

    sent = await outcomes(lambda number: run.signal_message(message(number, text)), 150)

    assert sent["accepted"] == 1_000_000 // (len(text) + 150)
    async with site.worker():
        await site.until(run_id, "awaiting-input")
        assert await run.queue_depth() == sent["accepted"]


async def test_a_run_outgrows_no_history_by_signals_that_it_ignores(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated(), limits=Limits(continue_as_new_after=6)) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        before = await site.executions(run.run_id)

        async def goes_on_in_another() -> bool:
            await temporal.get_workflow_handle(run.run_id).signal("visit_blocked", "no report")
            return await site.executions(run.run_id) > before

        await eventually(goes_on_in_another)


_RAW: Sequence[tuple[str, object]] = [
    ("steer", {"text": "hello"}),
    ("steer", ["no message"]),
    ("pause", {"reason": "?"}),
    ("pause", {"mode": "never"}),
    ("resume", {}),
    ("visit_blocked", {"visit": "graph:gated;node:no", "code": "key_missing", "message": "?"}),
    ("worker_started", {}),
    ("unheard", {}),
]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_run_that_9000_signals_of_temporal_wait_for_drops_most_of_them_and_goes_on(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    run_id = await site.start()
    handle, run = temporal.get_workflow_handle(run_id), site.client.run(run_id)
    await outcomes(lambda number: handle.signal(*_RAW[number % len(_RAW)]), 9_000)

    async with site.worker():
        await eventually(run.queue_depth, seconds=200)
        await run.resume()
        await site.until(run_id, "awaiting-input")
        assert await run.queue_depth() == 100
    # Another worker has to replay it all.
    async with site.worker():
        await run.respond(response={"approved": True}, principal=ANYBODY)
        view = await site.ended(run_id)

    assert view.status == "completed"
    refused = [each.data async for each in run.events() if each.type == "signal.refused"]
    dropped = [each["signal"] for each in refused if each["code"] == "queue_full"]
    # The run reports each kind once.
    assert sorted(dropped) == ["pause", "resume", "steer"]
