"""Migrations over HTTP: who may do them, and the refusal if the API and the worker differ in version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from changed_graphs import Payments
from stack import app_for, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

CAPABILITY = "payments:approve"
RENAMED = {"map": {"pay": "payout"}}
PAYMENTS = Payments()
BEFORE = PAYMENTS.graph(capability=CAPABILITY)


@pytest_asyncio.fixture(scope="module")
async def place(temporal: TemporalClient) -> AsyncIterator[Site]:
    """A site whose worker has today's graph."""
    site = Site(temporal, PAYMENTS.graph(pay="payout", capability=CAPABILITY))
    async with site.worker():
        yield site


async def test_a_migration_takes_what_guards_the_run_and_to_try_one_the_right_to_read(
    place: Site,
) -> None:
    run_id = await place.start({"amount": 3}, graph=BEFORE)
    await place.until(run_id, "awaiting-input")
    path, who = f"/runs/{run_id}/migrate", "X-Abeyance-Capabilities"
    async with served(app_for(place)) as api:
        operator = {who: "runs:control,runs:read"}
        lacking = await api.http.post(path, json=RENAMED, headers=operator)
        tried = await api.http.post(
            path, json={**RENAMED, "dry_run": True}, headers={who: "runs:read"}
        )

    found = problem(lacking, 403, "capability_required")
    assert found["capabilities"] == [CAPABILITY]
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)


async def test_an_api_with_another_version_than_the_worker_says_so(
    place: Site, temporal: TemporalClient
) -> None:
    run_id = await place.start({"amount": 3}, graph=BEFORE)
    await place.until(run_id, "awaiting-input")
    async with served(app_for(Site(temporal, BEFORE, beside=place))) as api:
        response = await api.http.post(f"/runs/{run_id}/migrate", json=RENAMED)
        found = problem(response, 409, "versions_differ")

    assert found["worker_version"] != found["sender_version"]
    assert (await place.client.run(run_id).view()).graph_version == found["sender_version"]
