"""Delegations on a real server: how many there may be, however many are made at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from sample_graphs import gated
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import Principal
from abeyance.core.delegations import MOST
from abeyance.errors import Refusal

ADA = Principal(subject="ada", capabilities=("pay",))


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
