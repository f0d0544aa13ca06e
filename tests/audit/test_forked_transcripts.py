"""A fork of an agent's run reads what its origin has stored, until that is erased."""

from __future__ import annotations

import pytest
from agent_graphs import payments
from audited_site import AuditedSite
from temporal_site import ANYBODY, eventually
from temporalio.client import Client as TemporalClient

from abeyance.agents import transcript
from abeyance.errors import Unavailable

MUCH = {"task": "pay ada much"}


async def test_a_fork_reads_the_transcript_of_its_origin_and_goes_on_with_it(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, payments(), audit=None)
    async with site.worker():
        run_id = await site.start(MUCH)
        await site.until(run_id, "awaiting-input")
        origin = site.client.run(run_id)
        fork = (await origin.fork(principal=ANYBODY)).run
        said = await origin.transcript()
        await origin.cancel(mode="now")
        await site.ended(run_id)
        transcript.forget()
        read = await fork.transcript()
        await fork.respond(response={"approved": True}, principal=ANYBODY)
        ended = await site.ended(fork.run_id)

    assert read == said
    assert ended.values["report"] == "Done: {'of': 'ada', 'euros': 70}, sent 5000 to ada"


async def test_a_fork_whose_origin_is_erased_is_blocked_where_it_needs_the_transcript(
    temporal: TemporalClient,
) -> None:
    site = AuditedSite(temporal, payments(), audit=None)
    async with site.worker():
        run_id = await site.start(MUCH)
        await site.until(run_id, "awaiting-input")
        origin = site.client.run(run_id)
        fork = (await origin.fork(principal=ANYBODY)).run
        await origin.cancel(mode="now")
        await site.ended(run_id)

        async def is_erased() -> bool:
            return await site.client.runs.erase(run_id) == "erased"

        await eventually(is_erased)
        transcript.forget()
        with pytest.raises(Unavailable, match="it was deleted"):
            await fork.transcript()
        await fork.respond(response={"approved": True}, principal=ANYBODY)
        view = await site.until_blocked(fork.run_id)
        await fork.cancel(mode="now")
        ended = await site.ended(fork.run_id)

    (why,) = view.blocked
    assert why.code == "storage_unavailable"
    assert run_id in why.message
    assert ended.status == "cancelled"
