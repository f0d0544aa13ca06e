"""Migrating and retrying a run over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from changed_graphs import Payments
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.http import HttpClient

AS_OPERATOR = {"X-Abeyance-Principal": "olga", "X-Abeyance-Capabilities": "runs:control,runs:read"}
PAYMENTS = Payments()
CAPABILITY = "payments:approve"


@pytest_asyncio.fixture(scope="module")
async def place(temporal: TemporalClient) -> AsyncIterator[Site]:
    """Workers and an API that have today's graph; runs may have been started with an earlier one."""
    site = Site(temporal, PAYMENTS.graph(pay="payout", capability=CAPABILITY))
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def today(place: Site) -> AsyncIterator[Api]:
    async with served(app_for(place)) as api:
        yield api


async def earlier(place: Site, **options: Any) -> str:
    """Start a run of the graph as it was before a deploy, and wait for its question."""
    graph = PAYMENTS.graph(capability=CAPABILITY)
    run_id = await place.start({"amount": 3}, graph=graph, run_id=new_id(), **options)
    await place.until(run_id, "awaiting-input")
    return run_id


async def failed(api: Api, **options: Any) -> str:
    run_id, (gate,) = await api.waiting("payment", {"amount": 3}, **options)
    PAYMENTS.fails = 1
    answer = {"response": True}
    assert (await api.http.post(f"/interrupts/{gate}/respond", json=answer)).status_code == 200
    await api.until(run_id, "failed")
    return run_id


async def test_a_run_is_tried_then_migrated(place: Site, today: Api) -> None:
    run_id = await earlier(place)
    path = f"/runs/{run_id}/migrate"
    misfit = {"patch": {"amount": "much"}}
    reader = {**AS_OPERATOR, "X-Abeyance-Capabilities": "runs:read"}
    tried = await today.http.post(path, json={**misfit, "dry_run": True}, headers=reader)
    refused = problem(await today.http.post(path, json=misfit), 409, "cannot_migrate")
    renamed = {"map": {"pay": "payout"}, "pause": True}
    lacking = problem(
        await today.http.post(path, json=renamed, headers=AS_OPERATOR), 403, "capability_required"
    )
    key = {"Idempotency-Key": "m-1"}
    done = await today.http.post(path, json=renamed, headers=key)
    again = await today.http.post(path, json=renamed, headers=key)
    problem(await today.http.post(path, json={"map": {"pay": ""}}), 422, "invalid_body")
    problem(await today.http.post(path, json={}, headers=key), 409, "idempotency_conflict")

    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
    assert tried.json()["obstacles"] == refused["obstacles"]
    assert [each["name"] for each in refused["obstacles"]] == ["amount"]
    assert lacking["capabilities"] == [CAPABILITY]
    assert (done.status_code, again.status_code) == (200, 200)
    view = (await today.http.get(f"/runs/{run_id}")).json()
    assert view["graph_version"] == done.json()["after"] == again.json()["after"]
    problem(await today.http.post(f"/runs/{new_id('none')}/migrate", json={}), 404, "unknown_run")


async def test_an_api_with_another_version_than_the_worker_says_so(
    place: Site, temporal: TemporalClient
) -> None:
    run_id = await earlier(place)
    other = Site(temporal, PAYMENTS.graph(capability=CAPABILITY), beside=place)
    async with served(app_for(other)) as api:
        response = await api.http.post(f"/runs/{run_id}/migrate", json={"map": {"pay": "payout"}})
        found = problem(response, 409, "versions_differ")

    assert found["worker_version"] != found["sender_version"]
    assert (await place.client.run(run_id).view()).graph_version == found["sender_version"]


async def test_a_failed_run_is_retried_once_for_each_key(today: Api) -> None:
    run_id = await failed(today)
    path = f"/runs/{run_id}/retry"
    events = (await today.http.get(f"/runs/{run_id}/events", params={"limit": 1000})).json()
    PAYMENTS.fails = 1
    # It does again what the gate has allowed once.
    lacking = await today.http.post(path, json={}, headers=AS_OPERATOR)
    problem(lacking, 403, "capability_required")
    key = {"Idempotency-Key": "r-1", "X-Abeyance-Request": "1"}
    first = await today.http.post(path, headers=key)
    await today.until(run_id, "failed")
    again = await today.http.post(path, headers=key)
    patched = await today.http.post(path, json={"patch": {"amount": 4}, "graph": "today"})
    ended = await today.until(run_id, "completed")
    problem(await today.http.post(path, json={}), 409, "run_finished")

    assert [each.status_code for each in (first, again, patched)] == [200, 200, 200]
    assert again.json()["status"] == "failed"
    assert ended["values"]["log"] == ["check", "payout 4"]
    last = events["items"][-1]["id"]
    more = await today.http.get(f"/runs/{run_id}/events", params={"after": last, "limit": 1000})
    told = [each["type"] for each in more.json()["items"] if each["type"].startswith("run.")]
    assert told == ["run.retried", "run.failed", "run.retried", "run.completed"]
    async with HttpClient(today.url) as client:
        followed = [event.type async for event in client.run(run_id).events()]
    assert followed.count("run.retried") == 2
    assert followed[-1] == "run.completed"
