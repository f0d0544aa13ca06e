"""Two deployments in one namespace: for each, the runs of the other do not exist."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio
from sample_graphs import chain, gated
from stack import Api, app_for, new_id, problem, served
from temporal_site import ANYBODY, Site, eventually, refused
from temporalio.client import Client as TemporalClient
from temporalio.common import WorkflowIDReusePolicy

from abeyance import Refusal, commands
from abeyance.api.app import create_app
from abeyance.client.start import StartPlan
from abeyance.core.state import Limits
from abeyance.errors import Code
from abeyance.filters import InboxFilter, RunFilter

YES = {"approved": True}
CAPABILITY = "refunds:approve"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """One of the two deployments, reached by Python and by HTTP."""

    site: Site
    api: Api

    @property
    def http(self) -> httpx.AsyncClient:
        return self.api.http


@dataclass(frozen=True, kw_only=True)
class Two:
    ours: Deployment
    theirs: Deployment


@pytest_asyncio.fixture(scope="module")
async def two(temporal: TemporalClient) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:

        async def deployment() -> Deployment:
            # Both have the same graphs, so only the task queue tells one from the other.
            site = Site(temporal, gated(capability=CAPABILITY), chain(1))
            await stack.enter_async_context(site.worker())
            return Deployment(site=site, api=await stack.enter_async_context(served(app_for(site))))

        yield Two(ours=await deployment(), theirs=await deployment())


async def waiting(place: Deployment, **fields: Any) -> tuple[str, str]:
    """Start a run, and return its id and that of its question once it awaits input."""
    run_id, (gate,) = await place.api.waiting("gated", {"amount": 250}, **fields)
    return run_id, gate


async def ended(place: Deployment, **fields: Any) -> str:
    """Start a run, and return its id once it has ended."""
    run_id = await place.api.start("chain", {}, **fields)
    await place.api.until(run_id, "completed")
    return run_id


async def length(place: Deployment, run_id: str) -> int:
    return len((await place.site.history(run_id)).events)


async def listed(place: Deployment, **wanted: Any) -> set[str]:
    rows, _ = await place.site.client.runs.list(RunFilter(**wanted), limit=1_000)
    return {row.run_id for row in rows}


async def test_lists_and_the_inbox_show_each_deployment_its_own_runs_alone(two: Two) -> None:
    talk = new_id("talk")
    ours, gate = await waiting(two.ours, conversation_id=talk, labels={"team": "a"})
    theirs, other = await waiting(two.theirs, conversation_id=talk, labels={"team": "a"})

    async def shown(place: Deployment, path: str, name: str, **query: str) -> list[str]:
        page = (await place.http.get(path, params=query)).json()
        return [row[name] for row in page["items"]]

    for place, run_id, asked in ((two.ours, ours, gate), (two.theirs, theirs, other)):

        async def is_listed(place: Deployment = place, run_id: str = run_id) -> bool:
            return run_id in await listed(place)

        await eventually(is_listed)
        for query in (
            {"conversation_id": talk},
            {"conversation_id": talk, "status": "awaiting-input"},
            {"conversation_id": talk, "label": "team=a", "graph": "gated"},
        ):
            assert await shown(place, "/runs", "run_id", **query) == [run_id]
        for query in ({}, {"capability": CAPABILITY}):
            found = await shown(place, "/interrupts", "id", conversation_id=talk, **query)
            assert found == [asked]
        assert [run.run_id for run in await place.site.client.runs.active()].count(run_id) == 1
    everything = {run.run_id for run in await two.theirs.site.client.runs.active()}
    assert ours not in everything | await listed(two.theirs)
    inbox, _ = await two.theirs.site.client.inbox.list(InboxFilter(), limit=1_000)
    assert ours not in {entry.run_id for entry in inbox}


READS = [
    "/runs/{run}",
    "/runs/{run}?wait=PT5S",
    "/runs/{run}?wait=PT5S&until=awaiting-input",
    "/runs/{run}/result",
    "/runs/{run}/interrupts?status=all",
    "/interrupts/{gate}",
    "/runs/{run}/messages",
    "/runs/{run}/transcript",
    "/runs/{run}/events",
    "/runs/{run}/events?after={cursor}",
]
CHANGES = [
    ("POST", "/runs/{run}/respond", {"response": YES}),
    ("POST", "/interrupts/{gate}/respond", {"response": YES}),
    ("PATCH", "/interrupts/{gate}", {"timeout": "PT1S", "on_timeout": "halt"}),
    ("PATCH", "/runs/{run}/values", {"patch": {"amount": 1}, "version": 1}),
    ("POST", "/runs/{run}/pause", {}),
    ("POST", "/runs/{run}/pause", {"timeout": "PT1S", "on_timeout": "goto:late"}),
    ("POST", "/runs/{run}/resume", {}),
    ("POST", "/runs/{run}/cancel", {}),
    ("POST", "/runs/{run}/steer", {"text": "hello"}),
    ("POST", "/runs/{run}/messages", {"text": "hello"}),
    ("DELETE", "/runs/{run}/messages", None),
    ("POST", "/runs/{run}/pause-and-send", {"text": "hello"}),
]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_run_of_another_deployment_is_answered_like_one_that_is_not_there(
    two: Two, key: str | None
) -> None:
    run_id, gate = await waiting(two.ours)
    cursor = (await two.ours.http.get(f"/runs/{run_id}/events")).json()["items"][0]["id"]
    headers = {"X-Abeyance-Request": "1"} | ({} if key is None else {"Idempotency-Key": key})
    if key is not None:
        # The API must not tell another caller with this key what the key's owner did.
        sent = await two.ours.http.post(
            f"/runs/{run_id}/messages", json={"text": "hello"}, headers=headers
        )
        assert sent.status_code == 201
    before = await length(two.ours, run_id)

    async def told(method: str, path: str, body: Any, run: str) -> dict[str, Any]:
        url = path.format(run=run, gate=gate.replace(run_id, run), cursor=cursor)
        response = await two.theirs.http.request(method, url, json=body, headers=headers)
        found = problem(response, 404, "unknown_run")
        return json.loads(json.dumps(found).replace(run, "..."))  # type: ignore[no-any-return]

    absent = run_id.replace("run-", "ran-")
    for method, path, body in [*(("GET", read, None) for read in READS), *CHANGES]:
        found = await told(method, path, body, run_id)
        # A cursor belongs to one run, so there is no answer to compare with.
        if "{cursor}" not in path:
            assert found == await told(method, path, body, absent)
    stream = await two.theirs.http.get(
        f"/runs/{run_id}/events", headers={"Accept": "text/event-stream"}
    )
    problem(stream, 404, "unknown_run")

    assert await length(two.ours, run_id) == before
    view = await two.ours.site.client.run(run_id).view()
    assert (view.status, view.paused) == ("awaiting-input", False)


async def test_an_ended_run_of_another_deployment_is_unknown_too(two: Two) -> None:
    run_id = await ended(two.ours)
    for path in READS[:4]:
        problem(await two.theirs.http.get(path.format(run=run_id)), 404, "unknown_run")
    for work in ("pause", "cancel"):
        response = await two.theirs.http.post(f"/runs/{run_id}/{work}", json={})
        problem(response, 404, "unknown_run")
    with pytest.raises(Refusal, match="no run"):
        await two.theirs.site.client.feed.page(run_id, None, 10)


async def test_a_batch_reaches_the_runs_of_its_own_deployment_alone(two: Two) -> None:
    label = {"batch": new_id()}
    ours, _ = await waiting(two.ours, labels=label)
    theirs, _ = await waiting(two.theirs, labels=label)
    before = await length(two.ours, ours)
    label_text = f"batch={label['batch']}"

    async def is_listed() -> bool:
        return await listed(two.theirs, labels=(label_text,)) == {theirs} and await listed(
            two.ours, labels=(label_text,)
        ) == {ours}

    await eventually(is_listed)
    url, chosen = "/batch/cancel", {"filter": {"label": label_text}}
    named = (await two.theirs.http.post(url, json={"run_ids": [ours]})).json()
    found = (await two.theirs.http.post(url, json=chosen)).json()

    assert [(row["ok"], row["code"]) for row in named["results"]] == [(False, "unknown_run")]
    assert [(row["run_id"], row["ok"]) for row in found["results"]] == [(theirs, True)]
    assert await length(two.ours, ours) == before


async def test_conversations_of_one_id_are_two(two: Two) -> None:
    talk = new_id("talk")
    ours, _ = await waiting(two.ours, conversation_id=talk)
    # In the same conversation the API would refuse a second run of an agent.
    theirs, _ = await waiting(two.theirs, conversation_id=talk)

    assert await two.theirs.site.client.conversations.runs(talk) == [theirs]
    steered = await two.theirs.http.post(
        f"/conversations/{talk}/steer", json={"text": "for theirs"}
    )
    assert steered.json()["runs"] == [theirs]
    halted = await two.theirs.http.post(f"/conversations/{talk}/interrupt", json={})
    assert halted.json()["runs"] == [theirs]
    assert await two.ours.site.client.conversations.runs(talk) == [ours]
    assert (await two.ours.site.client.run(ours).view()).status == "awaiting-input"


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("is_over", [False, True])
async def test_a_run_id_of_another_deployment_tells_only_that_it_is_taken(
    two: Two, *, reuse: bool, is_over: bool
) -> None:
    run_id = await ended(two.ours) if is_over else (await waiting(two.ours))[0]
    body = {"graph": "chain", "input": {}, "run_id": run_id, "reuse": reuse}

    found = problem(await two.theirs.http.post("/runs", json=body), 409, "run_exists")

    assert found.keys() <= {"type", "title", "status", "detail", "code", "run_id"}
    assert found["detail"] == (
        f"The id '{run_id}' belongs to a workflow in Temporal that is not a run. Choose another id."
    )
    view = await two.ours.site.client.run(run_id).view()
    assert view.status == ("completed" if is_over else "awaiting-input")
    problem(await two.theirs.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_eviction_and_the_bound_of_active_runs_look_at_own_runs_alone(
    temporal: TemporalClient,
) -> None:
    ours, theirs = Site(temporal, gated()), Site(temporal, gated())
    async with ours.worker(), theirs.worker():
        kept = [await ours.start() for _ in range(3)]
        for run_id in kept:
            await ours.until(run_id, "awaiting-input")
        mine = await theirs.start(max_active_runs=1, max_active_runs_policy="reject")
        await theirs.until(mine, "awaiting-input")

        async def is_listed() -> bool:
            active = [run.run_id for run in await theirs.client.runs.active()]
            return active == [mine]

        await eventually(is_listed)
        refusal = await refused(theirs.start(max_active_runs=1, max_active_runs_policy="reject"))
        evicted = await theirs.client.runs.evict(inactive_for=0, keep=0)

        assert refusal.details["actual"] == 1
        assert evicted == [mine]
        for run_id in kept:
            assert (await ours.client.run(run_id).view()).status == "awaiting-input"


async def test_a_run_of_another_deployment_is_not_erased_and_keeps_its_blobs(
    temporal: TemporalClient,
) -> None:
    ours = Site(temporal, chain(1))
    theirs = Site(temporal, chain(1), blobs=ours.blobs)
    async with ours.worker():
        run_id = await ours.start()
        await ours.ended(run_id)
    ref = await ours.blobs.put(run_id, b"a transcript")

    refusal = await refused(theirs.client.runs.erase(run_id))

    assert refusal.code is Code.UNKNOWN_RUN
    assert await ours.blobs.get(ref) == b"a transcript"
    assert (await ours.client.run(run_id).view()).status == "completed"


async def test_an_id_that_has_passed_to_another_deployment_leads_to_no_run_of_theirs(
    temporal: TemporalClient,
) -> None:
    ours, theirs = Site(temporal, gated()), Site(temporal, gated())
    async with ours.worker(), theirs.worker():
        run_id = await ours.start()
        view = await ours.until(run_id, "awaiting-input")
        gate = {view.interrupts[0].id: YES}
        await ours.client.run(run_id).respond(gate, principal=ANYBODY, key="k")
        await ours.ended(run_id)
        # This stands for Temporal having forgotten the run, which takes a day.
        launch = StartPlan.of(
            gated(),
            {},
            run_id=run_id,
            conversation_id=None,
            session_type="agent",
            labels={},
            limits=Limits(),
            started_by="eve",
        )
        await theirs.client.executions.send(launch, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        asked = (await theirs.until(run_id, "awaiting-input")).interrupts[0]
        before = await theirs.history(run_id)
        order = commands.Respond(responses={asked.id: YES}, principal=ANYBODY)

        # Our run can still be read, and each signal and update names the execution that it is for.
        assert (await ours.client.run(run_id).view()).status == "completed"
        assert (await refused(ours.client.run(run_id).respond_to(order))).code is Code.GONE
        assert (await refused(ours.client.run(run_id).clear_messages())).code is Code.GONE
        assert (await refused(ours.client.run(run_id).pause())).code is Code.GONE
        assert len((await theirs.history(run_id)).events) == len(before.events)
        assert await ours.client.runs.erase(run_id) == "erased"
        assert len((await theirs.history(run_id)).events) == len(before.events)
        await theirs.client.run(run_id).respond_to(order)
        await theirs.ended(run_id)


async def test_a_service_that_could_reach_other_deployments_says_so_once(
    two: Two,
    temporal: TemporalClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await waiting(two.ours)
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal.service_client.config.target_host)
    settings = two.theirs.site.settings

    def told() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        return [text for text in texts if "other task queues" in text]

    with caplog.at_level(logging.WARNING, logger="abeyance.api"):
        app = create_app(settings, two.theirs.site.graphs)
        async with served(app) as api:
            await eventually(told)
            for _ in range(3):
                assert (await api.http.get("/runs")).status_code == 200

    (text,) = told()
    assert settings.task_queue in text
