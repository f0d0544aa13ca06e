"""Editing values and deadlines on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sample_graphs import Held, gated
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Principal, Refusal, wire
from abeyance.errors import Code

BOB = Principal(subject="bob")


async def test_values_are_edited_while_the_run_waits_and_only_at_their_version(
    temporal: TemporalClient,
) -> None:
    graph = gated()
    site = Site(temporal, graph)
    async with site.worker():
        run_id = await site.start({"amount": 3})
        view = await site.until(run_id, "awaiting-input")
        await site.client.run(run_id, graph).edit_values(
            {"amount": "4.5"}, version=view.version, principal=ANYBODY
        )
        edited = await site.client.run(run_id).view()
        with pytest.raises(Refusal) as stale:
            await site.client.run(run_id, graph).edit_values(
                {"amount": 5}, version=view.version, principal=ANYBODY
            )
        with pytest.raises(Refusal) as invalid:
            await site.client.run(run_id, graph).edit_values(
                {"amount": "much"}, version=edited.version, principal=ANYBODY
            )

        assert edited.values["amount"] == 4.5
        assert edited.version == view.version + 1
        assert stale.value.code is Code.STALE
        assert invalid.value.code is Code.INVALID_INPUT
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        await site.replays(run_id)


async def test_values_of_a_working_run_stay_as_they_are(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        with pytest.raises(Refusal) as working:
            await site.client.run(run_id, held.graph).edit_values(
                {"amount": 1}, version=1, principal=ANYBODY
            )
        held.release.set()
        await site.ended(run_id)
        with pytest.raises(Refusal) as over:
            await site.client.run(run_id, held.graph).edit_values(
                {"amount": 1}, version=1, principal=ANYBODY
            )

        assert working.value.code is Code.NOT_STOPPED
        assert over.value.code is Code.NOT_RUNNING


async def test_a_deadline_is_moved_removed_and_guarded(temporal: TemporalClient) -> None:
    site = Site(temporal, gated(timeout="1h", capability="pay"))
    async with site.worker():
        run_id = await site.start()
        view = await site.until(run_id, "awaiting-input")
        (asked,) = view.interrupts
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        order = wire.EditDeadline(interrupt_id=asked.id, deadline=tomorrow, principal=ANYBODY)
        await site.client.run(run_id).edit(order)
        (moved,) = await site.client.run(run_id).interrupts()
        later = wire.EditDeadline(interrupt_id=asked.id, timeout="P9D", principal=BOB)
        with pytest.raises(Refusal) as guarded:
            await site.client.run(run_id).edit(later)
        free = wire.EditDeadline(interrupt_id=asked.id, deadline=None, principal=ANYBODY)
        await site.client.run(run_id).edit(free)
        (removed,) = await site.client.run(run_id).interrupts()

        assert moved.deadline == tomorrow
        assert guarded.value.code is Code.CAPABILITY_REQUIRED
        assert (removed.deadline, removed.status) == (None, "open")
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        await site.replays(run_id)
