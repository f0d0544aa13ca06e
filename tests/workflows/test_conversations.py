"""Runs of one conversation, on a real server: who may start, and what reaches them all."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sample_graphs import chain, gated
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import commands
from abeyance.client import claims
from abeyance.errors import Code, Refusal
from abeyance.filters import RunFilter
from abeyance.records.claims import Claim, of_conversation


def new_conversation() -> str:
    return f"conversation {uuid.uuid4().hex[:12]}"


async def claimed(site: Site, talk: str) -> list[Claim]:
    return await site.client.records.read(of_conversation, talk)


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as refusal:
        await call
    return refusal.value


async def test_the_next_run_may_start_the_moment_after_one_has_ended(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, chain(1, local=True))
    talk = new_conversation()
    async with site.worker():
        for _ in range(4):
            run_id = await site.start(conversation_id=talk)
            assert (await site.ended(run_id)).status == "completed"
        assert await site.client.conversations.runs(talk) == []


async def test_the_one_agent_is_steered_and_none_or_two_are_not(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    talk = new_conversation()
    message = commands.SteerMessage(text="hurry", message_id="m1", sender="ada")
    async with site.worker():
        assert (
            await refused(site.client.conversations.signal_message(talk, message))
        ).code is Code.NO_ACTIVE_RUN
        helper = await site.start(conversation_id=talk, session_type="helper")
        assert (
            await refused(site.client.conversations.signal_message(talk, message))
        ).code is Code.NO_ACTIVE_RUN
        agent = await site.start(conversation_id=talk)
        steered = await site.client.conversations.signal_message(talk, message)
        again = await site.client.conversations.signal_message(talk, message)
        other = await site.start(conversation_id=talk, allow_concurrent=True)
        ambiguous = await refused(site.client.conversations.signal_message(talk, message))

        assert steered == again
        assert (steered.run_id, steered.message_id) == (agent, "m1")
        assert [m.text for m in await site.client.run(agent).messages()] == ["hurry"]
        assert await site.client.run(helper).messages() == []
        assert ambiguous.code is Code.AMBIGUOUS_RUN
        assert ambiguous.details["runs"] == [agent, other]


async def test_the_same_start_again_is_the_same_run_and_leaves_no_claim(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    talk = new_conversation()
    async with site.worker():
        run_id = await site.start(conversation_id=talk)
        again = await site.client.runs.start(
            site.graphs["gated"], {}, run_id=run_id, conversation_id=talk
        )
        held = await claimed(site, talk)

        assert not again.created
        assert [claim.run_id for claim in held] == [run_id]
        other = await refused(site.start({"amount": 5}, run_id=run_id, conversation_id=talk))
        assert other.code is Code.RUN_EXISTS
        assert await claimed(site, talk) == held
        await site.client.run(run_id).cancel()
        await site.ended(run_id)
        reused = await site.start(run_id=run_id, conversation_id=talk, reuse=True)
        assert await site.client.conversations.runs(talk) == [reused]


async def test_a_run_that_is_cancelled_through_temporal_or_fails_leaves_its_conversation(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    talk = new_conversation()
    async with site.worker():
        run_id = await site.start(conversation_id=talk)
        await temporal.get_workflow_handle(run_id).cancel()
        assert (await site.ended(run_id)).status == "cancelled"
        assert await claimed(site, talk) == []
        await site.replays(run_id)


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
        await site.client._deployment.claims.claim(talk, crashed)
        assert await site.client.conversations.interrupt(talk) == []
        refusal = await refused(site.start(conversation_id=talk))
        assert refusal.details["run_id"] == crashed.run_id

        monkeypatch.setattr(claims, "_UNSTARTED", timedelta(0))
        run_id = await site.start(conversation_id=talk)
        assert await site.client.conversations.runs(talk) == [run_id]


async def test_a_conversation_costs_a_run_no_event(temporal: TemporalClient) -> None:
    site = Site(temporal, chain(1))
    async with site.worker():
        alone = await site.start()
        await site.ended(alone)
        grouped = await site.start(conversation_id=new_conversation())
        await site.ended(grouped)
        events = [len((await site.history(run_id)).events) for run_id in (alone, grouped)]
        assert events[0] == events[1]


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
