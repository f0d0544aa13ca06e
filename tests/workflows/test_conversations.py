"""Runs of one conversation, on a real server: when a new run takes the place of an earlier one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sample_graphs import gated
from temporal_site import Site, refused
from temporalio.client import Client as TemporalClient

from abeyance.client import claims
from abeyance.filters import RunFilter
from abeyance.records.claims import Claim


def new_conversation() -> str:
    return f"conversation {uuid.uuid4().hex[:12]}"


async def test_a_claim_without_a_run_holds_for_a_minute_and_no_longer(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(temporal, gated())
    talk = new_conversation()
    async with site.worker():
        crashed = Claim(
            run_id=f"never-{uuid.uuid4().hex}",
            session_type="agent",
            token=uuid.uuid4().hex,
            claimed_at=datetime.now(UTC),
        )
        await site.client.claims.claim(talk, crashed)
        assert await site.client.conversations.interrupt(talk) == []
        refusal = await refused(site.start(conversation_id=talk))
        assert refusal.details["run_id"] == crashed.run_id

        monkeypatch.setattr(claims, "_UNSTARTED", timedelta(0))
        run_id = await site.start(conversation_id=talk)
        assert await site.client.conversations.runs(talk) == [run_id]


async def test_the_start_after_a_run_that_was_terminated_records_its_end_and_takes_its_claim(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    talk = new_conversation()
    async with site.worker():
        first = await site.start(conversation_id=talk)
        await site.until(first, "awaiting-input")
        await temporal.get_workflow_handle(first).terminate()
        second = await site.start(conversation_id=talk)
        assert await site.client.conversations.runs(talk) == [second]
        found = await site.client.runs.page(RunFilter(conversation_id=talk))
        assert [view.ended_at is None for view in found.items] == [True, False]
