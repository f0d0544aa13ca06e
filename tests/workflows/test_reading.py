"""Reading a run: callers see what was done to it before, and no worker has to be up."""

from __future__ import annotations

from sample_graphs import chain, gated, gates
from temporal_site import ANYBODY, Site, begun
from temporalio.client import Client as TemporalClient

from abeyance import commands

_ROUNDS = 10


async def test_a_caller_reads_the_effect_of_its_signal_at_once(temporal: TemporalClient) -> None:
    async with begun(temporal, gated()) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        seen = []
        for number in range(_ROUNDS):
            await run.pause()
            seen.append((await run.view()).status)
            await run.resume()
            seen.append((await run.view()).status)
            await run.steer(f"note {number}", message_id=f"m{number}", principal=ANYBODY)
            unread = [message.message_id for message in await run.messages()]
            assert unread == [f"m{each}" for each in range(number + 1)]

    assert seen == ["paused", "awaiting-input"] * _ROUNDS


async def test_a_run_without_a_worker_is_shown_whole_and_as_old_only_if_something_came_since(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gates(2)) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        told = commands.SteerMessage(message_id="m1", text="mind the VAT")
        await run.send_message(told)
    view, unread = await run.view(), await run.messages()
    await run.pause()
    later = await run.view()

    assert (view.status, view.degraded, len(view.interrupts)) == ("awaiting-input", False, 2)
    assert [message.text for message in unread] == ["mind the VAT"]
    assert (later.status, later.degraded) == ("awaiting-input", True)


async def test_a_retried_run_that_no_worker_has_yet_is_not_shown_as_it_had_ended(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated()) as (site, run):
        await site.until(run.run_id, "awaiting-input")
        await run.cancel()
        assert (await site.ended(run.run_id)).status == "cancelled"
    await run.retry(principal=ANYBODY)
    before = await run.view()
    async with site.worker():
        after = await site.until(run.run_id, "awaiting-input")

    assert (before.status, before.ended_at, before.degraded) == ("running", None, True)
    assert (after.status, after.degraded) == ("awaiting-input", False)


async def test_a_run_that_uses_an_id_again_is_never_shown_as_the_one_before(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(), chain(1))
    async with site.worker():
        run_id = await site.start()
        asked = await site.asked(run_id)
        run = site.client.run(run_id)
        await run.cancel()
        await site.ended(run_id)
    await site.client.runs.start(chain(1), run_id=run_id, reuse=True)
    view, listed = await run.view(), await run.interrupts(status="all")

    assert (view.graph, view.status) == ("chain", "running")
    assert listed == []
    assert await run.interrupt(asked.id) is None
