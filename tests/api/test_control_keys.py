"""A control that is repeated under its Idempotency-Key has one effect, whatever came in between."""

from __future__ import annotations

from typing import Any

import pytest
from sample_graphs import gated, gates
from stack import Api, app_for, new_id, openapi_document, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.api.app import create_app
from abeyance.client import Client


async def post(api: Api, path: str, key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.http.post(path, json=body, headers=headers)


async def seen(api: Api, path: str, key: str | None = None, **body: Any) -> Any:
    """The same, answered with the run once it has the signal."""
    return await post(api, f"{path}?wait=30s", key, **body)


async def status(api: Api, run_id: str) -> str:
    return str((await api.http.get(f"/runs/{run_id}")).json()["status"])


async def test_a_pause_that_is_repeated_after_the_resume_does_not_pause_again(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    paused = await seen(api, f"/runs/{run_id}/pause", "k1", reason="audit")
    resumed = await seen(api, f"/runs/{run_id}/resume", "k2")
    again = await seen(api, f"/runs/{run_id}/pause", "k1", reason="audit")
    third = await seen(api, f"/runs/{run_id}/pause", "k3")
    late = await seen(api, f"/runs/{run_id}/resume", "k2")

    views = [answer.json() for answer in (paused, resumed, again, third, late)]
    assert [answer.status_code for answer in (paused, resumed, again, third, late)] == [200] * 5
    assert [view["status"] for view in views] == [
        "paused",
        "awaiting-input",
        "awaiting-input",
        "paused",
        "paused",
    ]
    assert views[-1]["metrics"]["pause_count"] == 2


async def test_a_pause_to_a_node_may_be_repeated_after_the_resume(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    body = {"timeout": "1h", "on_timeout": "goto:after"}
    first = await seen(api, f"/runs/{run_id}/pause", "k1", **body)
    await post(api, f"/runs/{run_id}/resume")
    again = await seen(api, f"/runs/{run_id}/pause", "k1", **body)

    assert (first.json()["status"], again.status_code) == ("paused", 200), again.text
    assert again.json()["status"] == "awaiting-input"


@pytest.mark.parametrize("operation", ["cancel", "interrupt"])
async def test_a_cancel_that_is_repeated_after_the_end_is_no_error(
    api: Api, operation: str
) -> None:
    run_id, _ = await api.waiting("gated")
    await post(api, f"/runs/{run_id}/{operation}", "k1")
    await api.until(run_id, "cancelled")
    again = await post(api, f"/runs/{run_id}/{operation}", "k1")
    other = await post(api, f"/runs/{run_id}/{operation}", "k2")

    assert (again.status_code, again.json()) == (202, {"run_id": run_id})
    problem(other, 404, "not_running")


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
        result = (await api.http.get(f"/runs/{run_id}/result")).json()

    assert again.status_code == 202
    problem(other, 409, "idempotency_conflict")
    assert "keys" not in result


@pytest.mark.parametrize("change", ["body", "operation", "principal"])
async def test_a_key_that_comes_with_something_else_is_refused(api: Api, change: str) -> None:
    run_id, _ = await api.waiting("gated")
    await post(api, f"/runs/{run_id}/pause", "k1", reason="audit")
    headers = {"Idempotency-Key": "k1"}
    operation, body = "pause", {"reason": "audit"}
    match change:
        case "body":
            body = {"reason": "another"}
        case "operation":
            operation = "resume"
        case _:
            headers["X-Abeyance-Principal"] = "grace"
    answer = await api.http.post(f"/runs/{run_id}/{operation}", json=body, headers=headers)

    assert "'k1'" in problem(answer, 409, "idempotency_conflict")["detail"]
    assert await status(api, run_id) == "paused"


async def test_a_key_is_known_after_the_history_was_handed_over(temporal: TemporalClient) -> None:
    site = Site(temporal, gates(3))
    async with site.worker(), served(app_for(site)) as api:
        run_id, ids = await api.waiting("gates", limits={"continue_as_new_after": 3})
        before = (await site.history(run_id)).run_id
        await post(api, f"/runs/{run_id}/pause", "k1")
        await post(api, f"/runs/{run_id}/resume")
        await post(api, f"/interrupts/{ids[0]}/respond", response=1)
        await eventually(lambda: is_other(site, run_id, before))
        again = await seen(api, f"/runs/{run_id}/pause", "k1")
        assert again.status_code == 200
        # The node after the gate may only start in the new history.
        view = await site.until(run_id, "awaiting-input", "paused")

    assert view.status == "awaiting-input"


async def is_other(site: Site, run_id: str, execution: str) -> bool:
    return (await site.history(run_id)).run_id != execution


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

    assert again.json()["succeeded"] == 2
    assert [await status(api, run_id) for run_id in runs] == ["awaiting-input"] * 2


async def test_a_batch_with_the_key_of_another_call_is_refused(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    await post(api, f"/runs/{run_id}/pause", "k1")
    (taken,) = (await post(api, "/batch/cancel", "k1", run_ids=[run_id])).json()["results"]

    assert (taken["ok"], taken["code"]) == (False, "idempotency_conflict")
    assert (await api.until(run_id, "paused"))["metrics"]["cancel_count"] == 0


@pytest.mark.parametrize("named", ["key", "message_id"])
async def test_to_pause_and_send_again_pauses_and_sends_once(api: Api, named: str) -> None:
    run_id, _ = await api.waiting("gated")
    key, body = ("m1", {}) if named == "key" else (None, {"message_id": "m1"})
    first = await post(api, f"/runs/{run_id}/pause-and-send", key, text="wait", **body)
    await post(api, f"/runs/{run_id}/resume")
    again = await post(api, f"/runs/{run_id}/pause-and-send", key, text="wait", **body)

    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert await status(api, run_id) == "awaiting-input"


async def test_an_eviction_takes_a_key_and_refuses_what_is_none(api: Api) -> None:
    evicted = await post(api, "/admin/evict", "k1", inactive_for="36500d")
    refused = await post(api, "/admin/evict", "a b", inactive_for="36500d")

    assert (evicted.status_code, evicted.json()["runs"]) == (200, [])
    problem(refused, 422, "invalid_body")


KEYLESS = {
    # Twice is the same as once.
    "POST /signin",
    "POST /signout",
    # The protocol has ids of its own: of a message, and of the question that is answered.
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
