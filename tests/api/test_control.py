"""Pausing, resuming and cancelling over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Api, new_id, problem

OPERATIONS = ("pause", "resume", "cancel", "interrupt")


async def test_a_run_is_paused_and_goes_on(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    headers = {"X-Abeyance-Principal": "ada"}
    paused = await api.http.post(
        f"/runs/{run_id}/pause",
        json={"reason": "audit", "mode": "now", "timeout": "PT1H", "on_timeout": "halt"},
        headers=headers,
    )
    again = await api.http.post(f"/runs/{run_id}/pause", json={}, headers=headers)
    resumed = await api.http.post(f"/runs/{run_id}/resume", json={"reason": "passed"})

    assert (paused.status_code, paused.json()["status"]) == (202, "paused")
    pause = paused.json()["pause"]
    assert (pause["actor"], pause["reason"], pause["mode"]) == ("ada", "audit", "now")
    assert (pause["on_timeout"], bool(pause["deadline"])) == ("halt", True)
    assert (again.status_code, again.json()["pause"]) == (202, pause)
    assert (resumed.status_code, resumed.json()["status"]) == (202, "awaiting-input")
    assert resumed.json()["metrics"]["pause_count"] >= 1


@pytest.mark.parametrize("operation", ["cancel", "interrupt"])
async def test_a_run_is_cancelled_by_either_name(api: Api, operation: str) -> None:
    run_id, (gate,) = await api.waiting("gated")
    response = await api.http.post(
        f"/runs/{run_id}/{operation}",
        json={"reason": "not needed", "mode": "graceful", "grace": "PT1S"},
        headers={"X-Abeyance-Principal": "ada"},
    )
    ended = await api.until(run_id, "cancelled")

    assert response.status_code == 202
    assert response.json()["interrupts"] == []
    assert (ended["reason"], ended["cancelled_by"]) == ("not needed", "ada")
    assert ended["result"]["log"] == ["before"]
    assert (await api.interrupt(gate))["status"] == "cancelled"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Abeyance-Request": "1"},
        {"X-Abeyance-Request": "1", "Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json"},
    ],
)
async def test_an_operation_needs_no_body(api: Api, headers: dict[str, str]) -> None:
    run_id, _ = await api.waiting("gated")
    for operation in ("pause", "resume", "interrupt"):
        response = await api.http.post(f"/runs/{run_id}/{operation}", headers=headers)
        assert response.status_code == 202, response.text


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_nothing_can_be_done_to_a_run_that_there_is_not(api: Api, operation: str) -> None:
    for run_id in (new_id("nobody"), "no%20id"):
        problem(await api.http.post(f"/runs/{run_id}/{operation}", json={}), 404, "unknown_run")


async def test_nothing_can_be_done_to_a_run_that_has_ended(api: Api) -> None:
    run_id = await api.start("brief", {})
    await api.until(run_id, "halted")
    for operation in OPERATIONS:
        response = await api.http.post(f"/runs/{run_id}/{operation}", json={})
        found = problem(response, 404, "not_running")
        assert found["run_status"] == "halted"
        assert found["ended_at"]


async def test_a_pause_that_would_lead_nowhere_is_refused(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    response = await api.http.post(
        f"/runs/{run_id}/pause", json={"timeout": "1h", "on_timeout": "goto:nowhere"}
    )

    problem(response, 404, "unknown_node")
    assert (await api.http.get(f"/runs/{run_id}")).json()["paused"] is False


async def test_a_pause_leads_past_a_gate_only_for_those_who_could_open_it(api: Api) -> None:
    run_id, _ = await api.waiting("guarded")
    body = {"timeout": "1h", "on_timeout": "goto:after"}
    headers = {"X-Abeyance-Capabilities": "runs:control"}
    refused = await api.http.post(f"/runs/{run_id}/pause", json=body, headers=headers)
    untouched = (await api.http.get(f"/runs/{run_id}")).json()
    headers["X-Abeyance-Capabilities"] += ",runs:read,payments:approve"
    accepted = await api.http.post(f"/runs/{run_id}/pause", json=body, headers=headers)

    assert problem(refused, 403, "capability_required")["capability"] == "payments:approve"
    assert untouched["paused"] is False
    assert accepted.json()["pause"]["on_timeout"] == "goto:after"


@pytest.mark.parametrize(
    ("operation", "body", "pointer"),
    [
        ("pause", {"mode": "later"}, "/mode"),
        ("pause", {"timeout": "soon"}, "/timeout"),
        ("pause", {"timeout": 0}, "/timeout"),
        ("pause", {"on_timeout": "explode"}, "/on_timeout"),
        ("pause", {"actor": "root"}, "/actor"),
        ("pause", {"grace": 1}, "/grace"),
        ("pause", {"reason": "x" * 2001}, "/reason"),
        ("resume", {"mode": "now"}, "/mode"),
        ("cancel", {"grace": -1}, "/grace"),
        ("cancel", {"mode": "after-node"}, "/mode"),
        ("interrupt", {"actor": "root"}, "/actor"),
        ("cancel", [], ""),
    ],
)
async def test_an_operation_with_a_body_of_another_form_does_nothing(
    api: Api, standing: tuple[str, str], operation: str, body: Any, pointer: str
) -> None:
    run_id, _ = standing
    response = await api.http.post(f"/runs/{run_id}/{operation}", json=body)

    found = problem(response, 422, "invalid_body")
    assert pointer in [entry["pointer"] for entry in found["errors"]]
    view = (await api.http.get(f"/runs/{run_id}")).json()
    assert (view["status"], view["metrics"]["pause_count"]) == ("awaiting-input", 0)
