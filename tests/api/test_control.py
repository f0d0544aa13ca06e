"""Pausing, resuming and cancelling over HTTP."""

from __future__ import annotations

import pytest
from sample_graphs import gated, gates
from stack import Api, app_for, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance.errors import Code, Refusal


async def test_a_run_is_paused_and_goes_on(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    paused = await api.http.post(
        f"/runs/{run_id}/pause",
        json={"reason": "audit", "mode": "now", "timeout": "PT1H", "on_timeout": "halt"},
        headers={"X-Abeyance-Principal": "ada"},
        params={"wait": "30s"},
    )
    resumed = await api.http.post(f"/runs/{run_id}/resume", json={}, params={"wait": 30})

    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    pause = paused.json()["pause"]
    assert (pause["actor"], pause["reason"], pause["mode"]) == ("ada", "audit", "now")
    assert (pause["on_timeout"], bool(pause["deadline"])) == ("halt", True)
    assert (resumed.status_code, resumed.json()["status"]) == (200, "awaiting-input")


async def test_a_run_is_cancelled_by_either_name_with_and_without_waiting_for_its_end(
    api: Api,
) -> None:
    run_id, (gate,) = await api.waiting("gated")
    order = {"reason": "not needed", "mode": "graceful", "grace": "PT1S"}
    headers = {"X-Abeyance-Principal": "ada"}
    sent = await api.http.post(f"/runs/{run_id}/interrupt", json=order, headers=headers)
    ended = await api.until(run_id, "cancelled")
    other, _ = await api.waiting("gated")
    waited = await api.http.post(f"/runs/{other}/cancel", json={}, params={"wait": "30s"})

    assert (sent.status_code, sent.json()) == (202, {"run_id": run_id})
    assert (ended["reason"], ended["cancelled_by"]) == ("not needed", "ada")
    assert ended["result"]["log"] == ["before"]
    assert (await api.interrupt(gate))["status"] == "cancelled"
    assert (waited.status_code, waited.json()["status"]) == (200, "cancelled")


async def test_an_operation_needs_no_body(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    for operation, headers in (
        ("pause", {"X-Abeyance-Request": "1"}),
        (
            "resume",
            {"X-Abeyance-Request": "1", "Content-Type": "application/x-www-form-urlencoded"},
        ),
        ("interrupt", {"Content-Type": "application/json"}),
    ):
        response = await api.http.post(f"/runs/{run_id}/{operation}", headers=headers)
        assert response.status_code == 202, response.text


async def test_a_refusal_is_read_across_a_hand_over_and_another_one_is_not(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gates(2))
    async with site.worker(), served(app_for(site)) as api:
        run_id, (first, _) = await api.waiting("gates", limits={"continue_as_new_after": 3})
        run = site.client.run(run_id)

        async def has_rotated() -> bool:
            return await site.executions(run_id) > 1

        since = await run.present()
        assert since is not None
        await api.http.post(f"/interrupts/{first}/respond", json={"response": 1})
        await eventually(has_rotated)
        await run.pause(timeout=3600, on_timeout="goto:nowhere")
        with pytest.raises(Refusal) as refused:
            await run.is_processed(since, {"signal": "pause"}, seconds=10)
        assert await run.is_processed(since, {"signal": "cancel"}, seconds=10)
        now = await run.present()
        assert now is not None
        assert await run.is_processed(now, {"signal": "pause"}, seconds=10)

    assert refused.value.code is Code.UNKNOWN_NODE


async def test_waiting_for_a_run_without_a_worker_returns_it_as_it_is(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated(), patience=1)
    async with served(app_for(site)) as api:
        run_id = await api.start("gated", {})
        response = await api.http.post(f"/runs/{run_id}/pause", json={}, params={"wait": "1s"})

    assert (response.status_code, response.json()["degraded"]) == (200, True)
    assert response.json()["status"] == "running"


async def test_a_pause_that_would_lead_nowhere_is_refused_to_who_waits(
    api: Api, site: Site
) -> None:
    run_id, _ = await api.waiting("gated")
    path, nowhere = f"/runs/{run_id}/pause", {"timeout": "1h", "on_timeout": "goto:nowhere"}
    sent = await api.http.post(path, json=nowhere)
    waited = await api.http.post(path, json=nowhere, params={"wait": "30s"})
    later = await api.http.post(path, json={}, params={"wait": "30s"})
    refused = await site.events(run_id, "signal.refused")

    assert sent.status_code == 202
    assert "'nowhere'" in problem(waited, 404, "unknown_node")["detail"]
    assert [(each["signal"], each["code"]) for each in refused] == [("pause", "unknown_node")] * 2
    # The refusals of the calls before do not count against this one.
    assert (later.status_code, later.json()["status"]) == (200, "paused")
