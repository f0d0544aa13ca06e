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
        edited = await site.client.edit_values(
            run_id, {"amount": "4.5"}, graph=graph, version=view.version, principal=ANYBODY
        )
        with pytest.raises(Refusal) as stale:
            await site.client.edit_values(
                run_id, {"amount": 5}, graph=graph, version=view.version, principal=ANYBODY
            )
        with pytest.raises(Refusal) as invalid:
            await site.client.edit_values(
                run_id, {"amount": "much"}, graph=graph, version=edited.version, principal=ANYBODY
            )

        assert edited.values["amount"] == 4.5
        assert edited.version == view.version + 1
        assert stale.value.code is Code.STALE
        assert invalid.value.code is Code.INVALID_INPUT
        await site.client.cancel(run_id)
        await site.ended(run_id)
        await site.replays(run_id)


async def test_values_of_a_working_run_stay_as_they_are(temporal: TemporalClient) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        with pytest.raises(Refusal) as working:
            await site.client.edit_values(
                run_id, {"amount": 1}, graph=held.graph, version=1, principal=ANYBODY
            )
        held.release.set()
        await site.ended(run_id)
        with pytest.raises(Refusal) as over:
            await site.client.edit_values(
                run_id, {"amount": 1}, graph=held.graph, version=1, principal=ANYBODY
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
        moved = await site.client.edit_deadline(run_id, order)
        later = wire.EditDeadline(interrupt_id=asked.id, timeout="P9D", principal=BOB)
        with pytest.raises(Refusal) as guarded:
            await site.client.edit_deadline(run_id, later)
        free = wire.EditDeadline(interrupt_id=asked.id, deadline=None, principal=ANYBODY)
        removed = await site.client.edit_deadline(run_id, free)

        assert moved.deadline == tomorrow
        assert guarded.value.code is Code.CAPABILITY_REQUIRED
        assert (removed.deadline, removed.status) == (None, "open")
        await site.client.cancel(run_id)
        await site.ended(run_id)
        await site.replays(run_id)
