from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from agent_graphs import teams
from changed_graphs import Payments
from sample_graphs import filed, gated, gates
from stack import Api, app_for, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.worker import make_worker


@pytest.fixture(scope="session")
def payments() -> Payments:
    """The payments of the graph `payment`, whose node was called `pay` before a deploy."""
    return Payments()


@pytest_asyncio.fixture(scope="session")
async def site(temporal: TemporalClient, payments: Payments) -> AsyncIterator[Site]:
    site = Site(
        temporal,
        gated(),
        gated("guarded", capability="payments:approve"),
        gated("held", hold="1h"),
        gated("dated", calendar="DE", timeout="2bd", remind=["3bh", "-1bd"]),
        gated("voted", quorum=2, hold="1h", assignees=["group:finance"], priority="high", risk=80),
        gated(
            "assigned",
            assignees=["ada", "group:finance"],
            assignees_only=True,
            priority="high",
            risk=70,
        ),
        gated("other-eyes", not_by="@starter"),
        gated("capable", capability="refunds:approve"),
        gates(2),
        filed(),
        teams(),
        payments.graph(pay="payout"),
    )
    async with make_worker(temporal, site.graphs, site.settings, blobs=site.blobs):
        yield site


@pytest_asyncio.fixture(scope="session")
async def api(site: Site) -> AsyncIterator[Api]:
    async with served(app_for(site)) as api:
        yield api


@pytest_asyncio.fixture(scope="session")
async def standing(api: Api) -> tuple[str, str]:
    """The ids of a run that awaits an answer and of its question, for calls that must not change it."""
    run_id, (gate,) = await api.waiting("gated")
    return run_id, gate
