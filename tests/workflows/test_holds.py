"""Votes and held answers on a real server: what its UI shows, and that no restart loses them."""

from __future__ import annotations

from typing import Any

from sample_graphs import gated
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.errors import Code, Refusal

YES = {"approved": True}
ADA, BOB = Principal(subject="ada"), Principal(subject="bob")


async def shown(temporal: TemporalClient, run_id: str) -> str:
    handle = temporal.get_workflow_handle(run_id)
    details: str = (await handle.query("__temporal_workflow_metadata")).current_details
    return details


async def test_temporals_ui_shows_the_votes_and_until_when_an_answer_is_held(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(quorum=2, hold="1h", timeout="2d"))
    async with site.worker():
        run_id = await site.start()
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        run = site.client.run(run_id)
        try:
            await run.respond(asked.id, YES)
        except Refusal as refusal:
            assert refusal.code is Code.NOT_ASSIGNED
        await run.respond(asked.id, YES, principal=ADA)
        voted = await shown(temporal, run_id)
        assert "1 of 2 approvals are missing (so far `ada` approves)" in voted
        assert f"POST /runs/{run_id}/respond" in voted

        await run.respond(asked.id, YES, principal=BOB)
        held = await shown(temporal, run_id)
        assert "approved by `bob`, which can be taken back until" in held
        await temporal.get_workflow_handle(run_id).execute_update(
            "take_back", {"interrupt_id": asked.id}
        )
        assert "2 of 2 approvals are missing" in await shown(temporal, run_id)


async def test_a_hold_that_ends_without_a_worker_is_carried_out_when_one_comes(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(hold="1s"))
    async with site.worker():
        run_id = await site.start()
        (asked,) = (await site.until(run_id, "awaiting-input")).interrupts
        (receipt,) = await site.client.run(run_id).respond(asked.id, YES, principal=ADA)
        assert receipt.status == "held"

    async def has_fired() -> Any:
        history = await site.history(run_id)
        return any(event.HasField("timer_fired_event_attributes") for event in history.events)

    await eventually(has_fired)
    async with site.worker():
        ended = await site.until(run_id, "completed")
    assert ended.values["log"] == ["before", "after {'approved': True}"]
