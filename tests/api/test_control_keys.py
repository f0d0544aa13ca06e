"""A control that is repeated under its Idempotency-Key has one effect, whatever came between."""

from __future__ import annotations

from typing import Any

from sample_graphs import gated
from stack import Api, app_for, new_id, openapi_document, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance.api.app import create_app
from abeyance.client import Client


async def post(api: Api, path: str, key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.http.post(path, json=body, headers=headers)


async def seen(api: Api, path: str, key: str | None = None, **body: Any) -> Any:
    """Make the call, and wait until the run has processed the signal."""
    return await post(api, f"{path}?wait=30s", key, **body)


async def status(api: Api, run_id: str) -> str:
    return str((await api.http.get(f"/runs/{run_id}")).json()["status"])


async def test_a_key_that_another_process_has_sent_is_refused_by_the_run(
    api: Api, site: Site
) -> None:
    run_id, _ = await api.waiting("gated")
    await post(api, f"/runs/{run_id}/pause", "k1")
    async with served(create_app(site.settings, site.graphs, _client(site))) as elsewhere:
        taken = await post(elsewhere, f"/runs/{run_id}/cancel", "k1")
        view = await elsewhere.until(run_id, "paused")
    async with served(create_app(site.settings, site.graphs, _client(site))) as elsewhere:
        waited = await seen(elsewhere, f"/runs/{run_id}/cancel", "k1")
    refused = await site.events(run_id, "signal.refused")

    assert (taken.status_code, view["metrics"]["cancel_count"]) == (202, 0)
    problem(waited, 409, "idempotency_conflict")
    whats = [(each["signal"], each["code"]) for each in refused]
    assert whats == [("cancel", "idempotency_conflict")] * 2


def _client(site: Site) -> Client:
    return Client(site.temporal, task_queue=site.settings.task_queue)


async def test_a_key_of_a_run_that_has_ended_is_known_without_a_worker(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with served(app_for(site)) as api:
        async with site.worker():
            run_id, _ = await api.waiting("gated")
            await post(api, f"/runs/{run_id}/cancel", "k1", reason="over")
            await api.until(run_id, "cancelled")
        again = await post(api, f"/runs/{run_id}/cancel", "k1", reason="over")
        other = await post(api, f"/runs/{run_id}/cancel", "k1", reason="else")
        new = await post(api, f"/runs/{run_id}/cancel", "k2", reason="over")
        result = (await api.http.get(f"/runs/{run_id}/result")).json()

    assert (again.status_code, again.json()) == (202, {"run_id": run_id})
    problem(other, 409, "idempotency_conflict")
    problem(new, 404, "not_running")
    assert "keys" not in result


async def test_a_conversations_runs_each_know_the_key(api: Api) -> None:
    talk = new_id("talk")
    runs = [
        (await api.waiting("gated", conversation_id=talk, allow_concurrent=True))[0] for _ in "12"
    ]
    await post(api, f"/conversations/{talk}/pause", "k1")
    await post(api, f"/conversations/{talk}/resume")
    again = await post(api, f"/conversations/{talk}/pause", "k1")
    conflict = await post(api, f"/conversations/{talk}/interrupt", "k1")

    assert again.json() == {"count": 2, "runs": runs}
    assert [await status(api, run_id) for run_id in runs] == ["awaiting-input"] * 2
    problem(conflict, 409, "idempotency_conflict")


async def test_each_run_of_a_batch_knows_the_key(api: Api) -> None:
    runs = [(await api.waiting("gated"))[0] for _ in "12"]
    await post(api, "/batch/pause", "k1", run_ids=runs)
    await post(api, "/batch/resume", "k2", run_ids=runs)
    again = await post(api, "/batch/pause", "k1", run_ids=runs)
    (taken,) = (await post(api, "/batch/cancel", "k1", run_ids=runs[:1])).json()["results"]

    assert again.json()["succeeded"] == 2
    assert (taken["ok"], taken["code"]) == (False, "idempotency_conflict")
    assert [await status(api, run_id) for run_id in runs] == ["awaiting-input"] * 2


KEYLESS = {
    # Doing it twice is the same as doing it once.
    "POST /signin",
    "POST /signout",
    # The protocol has its own ids for a message and for the question that it answers.
    "POST /agui/{graph}",
    "POST /chat/{graph}",
}


def test_every_call_that_changes_something_says_that_it_takes_a_key() -> None:
    paths = openapi_document()["paths"]
    without = {
        f"{method.upper()} {path}"
        for path, calls in paths.items()
        for method, call in calls.items()
        if method != "get"
        and not any(p["name"] == "Idempotency-Key" for p in call.get("parameters", []))
    }

    assert without == KEYLESS
