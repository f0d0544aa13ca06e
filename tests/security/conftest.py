"""A site that requires encryption, and an intruder without a key. Other files make sites of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from intruder import Intruder
from sealed_site import a_key, paying
from stored import connected
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.settings import Settings


@pytest.fixture
def sealed() -> Settings:
    return Settings(encryption_keys=a_key(), encryption_required=True)


@pytest_asyncio.fixture
async def site(temporal: TemporalClient, sealed: Settings) -> AsyncIterator[Site]:
    site = Site(connected(temporal, sealed), paying())
    async with site.worker():
        yield site


@pytest.fixture
def intruder(temporal: TemporalClient, site: Site) -> Intruder:
    return Intruder(temporal, site)
