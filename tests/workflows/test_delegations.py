"""Delegations on a real server: who may answer in whose place, while no worker is up too."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from sample_graphs import gated
from temporal_site import ANYBODY, Site
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.core.delegations import MOST
from abeyance.errors import Refusal

ADA = Principal(subject="ada", capabilities=("pay",))


async def test_a_delegate_answers_with_what_was_lent_without_a_worker(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(capability="pay"))
    until = datetime.now(UTC) + timedelta(days=1)
    kept = await site.client.delegations.make("bob", until=until, principal=ADA)
    gone = await site.client.delegations.make("eve", until=until, principal=ADA)
    await site.client.delegations.delete(gone.id, principal=ADA)
    listed = await site.client.delegations.list(ANYBODY)
    async with site.worker():
        run_id = await site.start()
        (question,) = (await site.until(run_id, "awaiting-input")).interrupts
        (receipt,) = await site.client.run(run_id).respond(
            question.id, {"approved": True}, principal=Principal(subject="bob")
        )

    assert [each.id for each in listed] == [kept.id]
    assert (receipt.answered_by, receipt.on_behalf_of) == ("bob", "ada")


async def test_however_many_are_made_at_once_no_more_than_fit_are(temporal: TemporalClient) -> None:
    site = Site(temporal, gated())
    until = datetime.now(UTC) + timedelta(days=1)
    made = await asyncio.gather(
        *(
            site.client.delegations.make(f"bob {number}", until=until, principal=ADA)
            for number in range(MOST + 5)
        ),
        return_exceptions=True,
    )
    refused = [each for each in made if isinstance(each, Refusal)]

    assert (len(made) - len(refused), len(refused)) == (MOST, 5)
    assert len(await site.client.delegations.list(ADA)) == MOST
