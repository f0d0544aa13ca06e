"""Editing values and deadlines over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site

from abeyance.api.app import create_app
from abeyance.settings import Settings


async def version_of(api: Api, run_id: str) -> int:
    return int((await api.http.get(f"/runs/{run_id}")).json()["version"])


async def test_values_of_a_waiting_run_are_set_at_their_version_only(api: Api) -> None:
    run_id, _ = await api.waiting("gated", {"amount": 3})
    version = await version_of(api, run_id)
    path, body = f"/runs/{run_id}/values", {"patch": {"amount": "4.5"}, "version": version}
    edited = await api.http.patch(path, json=body)
    stale = await api.http.patch(path, json=body)
    wrong = await api.http.patch(path, json={"patch": {"amount": "much"}, "version": version + 1})
    unknown = await api.http.patch(path, json={"patch": {"colour": 1}, "version": version + 1})

    assert edited.status_code == 200
    assert edited.json()["values"]["amount"] == 4.5
    assert edited.json()["version"] == version + 1
    assert problem(stale, 409, "stale")["version"] == version + 1
    assert problem(wrong, 422, "invalid_input")["errors"][0]["pointer"] == "/amount"
    assert problem(unknown, 422, "invalid_input")["errors"][0]["pointer"] == "/colour"
    assert await version_of(api, run_id) == version + 1


async def test_an_edit_between_an_answer_and_its_code_has_the_question_asked_again(
    api: Api,
) -> None:
    run_id, (first,) = await api.waiting("gated", {"amount": 250})
    await api.http.post(f"/runs/{run_id}/pause", json={})
    await api.until(run_id, "paused")
    yes = {"response": {"approved": True}}
    accepted = await api.http.post(f"/interrupts/{first}/respond", json=yes)
    body = {"patch": {"amount": 999_999}, "version": await version_of(api, run_id)}
    edited = await api.http.patch(f"/runs/{run_id}/values", json=body)
    await api.http.post(f"/runs/{run_id}/resume", json={})

    assert (accepted.status_code, edited.status_code) == (200, 200)
    (asked,) = (await api.until(run_id, "awaiting-input"))["interrupts"]
    assert (asked["prompt"], asked["id"] == first) == ("Pay 999999?", False)
    await api.http.post(f"/interrupts/{asked['id']}/respond", json=yes)
    view = await api.until(run_id, "completed")
    assert view["values"]["log"] == ["before", "after {'approved': True}"]


async def test_an_ended_run_is_edited_no_more(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated")
    await api.http.post(f"/runs/{run_id}/cancel", json={})
    await api.until(run_id, "cancelled")
    for patch in ({"amount": 1}, {"amount": "much"}):
        response = await api.http.patch(
            f"/runs/{run_id}/values", json={"patch": patch, "version": 2}
        )
        assert problem(response, 404, "not_running")["run_status"] == "cancelled"
    moved = await api.http.patch(f"/interrupts/{gate}", json={"deadline": None})
    found = problem(moved, 409, "withdrawn")
    assert (found["run_status"], found["interrupt_status"]) == ("cancelled", "cancelled")
    strange = await api.http.patch(f"/interrupts/{gate[:-1]}x", json={"deadline": None})
    problem(strange, 404, "unknown_interrupt")


async def test_what_there_is_not_cannot_be_edited(
    api: Api, site: Site, standing: tuple[str, str]
) -> None:
    run_id, _ = standing
    body = {"patch": {"amount": 1}, "version": 2}
    problem(await api.http.patch(f"/runs/{new_id()}/values", json=body), 404, "unknown_run")
    free = {"deadline": None}
    for unknown in (f"{run_id}.{'0' * 16}", "nothing"):
        problem(await api.http.patch(f"/interrupts/{unknown}", json=free), 404, "unknown_interrupt")
    elsewhere = create_app(Settings(task_queue=site.settings.task_queue), {}, site.client)
    async with served(elsewhere) as other:
        problem(await other.http.patch(f"/runs/{run_id}/values", json=body), 404, "unknown_graph")


async def test_a_deadline_is_moved_and_removed(api: Api) -> None:
    _, (gate,) = await api.waiting("gated")
    path = f"/interrupts/{gate}"
    tomorrow = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    moved = await api.http.patch(path, json={"deadline": tomorrow.isoformat()})
    later = await api.http.patch(path, json={"timeout": "P2D", "on_timeout": "goto:late"})
    removed = await api.http.patch(path, json={"deadline": None})

    assert moved.status_code == 200
    assert (moved.json()["id"], moved.json()["status"]) == (gate, "open")
    assert datetime.fromisoformat(moved.json()["deadline"]) == tomorrow
    assert datetime.fromisoformat(later.json()["deadline"]) > tomorrow
    assert later.json()["on_timeout"] == "goto:late"
    assert (removed.json()["deadline"], removed.json()["status"]) == (None, "open")


async def test_a_deadline_of_a_settled_interrupt_means_nothing(api: Api) -> None:
    _, (gate, _) = await api.waiting("gates")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": 1})

    response = await api.http.patch(f"/interrupts/{gate}", json={"timeout": "1h"})
    assert problem(response, 409, "already_answered")["interrupt_status"] == "answered"


async def test_a_deadline_that_has_passed_is_moved_no_more(api: Api) -> None:
    run_id = await api.start("brief", {})
    await api.until(run_id, "halted")
    (gate,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=expired")).json()["items"]

    response = await api.http.patch(f"/interrupts/{gate['id']}", json={"timeout": "1h"})
    found = problem(response, 409, "withdrawn")
    assert (found["interrupt_status"], found["run_status"]) == ("expired", "halted")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"deadline": None, "timeout": None}, ""),
        ({"on_timeout": None}, ""),
        ({"deadline": "2020-01-01T00:00:00Z"}, "/deadline"),
        ({"deadline": "2999-01-01T00:00:00Z"}, "/deadline"),
        ({"deadline": "2099-01-01T00:00:00"}, "/deadline"),
        ({"deadline": 1_999_999_999}, "/deadline"),
        ({"deadline": "1999999999"}, "/deadline"),
        ({"deadline": "soon"}, "/deadline"),
        ({"timeout": 0}, "/timeout"),
        ({"timeout": "0bd"}, "/timeout"),
        ({"timeout": "2bd"}, "/timeout"),
        ({"timeout": "1h", "on_timeout": "resume"}, "/on_timeout"),
        ({"deadline": None, "on_timeout": "halt"}, "/deadline"),
        ({"timeout": "1h", "principal": {"subject": "root"}}, "/principal"),
    ],
)
async def test_a_deadline_of_another_form_is_refused(
    api: Api, standing: tuple[str, str], body: dict[str, Any], pointer: str
) -> None:
    _, gate = standing
    found = problem(await api.http.patch(f"/interrupts/{gate}", json=body), 422, "invalid_body")
    assert pointer in [entry["pointer"] for entry in found["errors"]]
    assert (await api.interrupt(gate))["deadline"] is None


async def test_a_deadline_leads_to_nodes_that_there_are(
    api: Api, standing: tuple[str, str]
) -> None:
    body = {"timeout": "1h", "on_timeout": "goto:nowhere"}
    problem(await api.http.patch(f"/interrupts/{standing[1]}", json=body), 404, "unknown_node")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"patch": {"amount": 1}}, "/version"),
        ({"patch": {"amount": 1}, "version": True}, "/version"),
        ({"patch": {"amount": 1}, "version": "2"}, "/version"),
        ({"patch": {}, "version": 2}, "/patch"),
        ({"patch": [], "version": 2}, "/patch"),
        ({"version": 2}, "/patch"),
        ({"patch": {"amount": 1}, "version": 2, "graph": "x"}, "/graph"),
    ],
)
async def test_an_edit_of_values_of_another_form_is_refused(
    api: Api, standing: tuple[str, str], body: dict[str, Any], pointer: str
) -> None:
    response = await api.http.patch(f"/runs/{standing[0]}/values", json=body)
    found = problem(response, 422, "invalid_body")
    assert pointer in [entry["pointer"] for entry in found["errors"]]


async def test_an_edit_under_a_key_is_made_once(api: Api, site: Site) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    path, headers = f"/runs/{run_id}/values", {"Idempotency-Key": "edit-1"}
    body: dict[str, Any] = {"patch": {"amount": 5}, "version": await version_of(api, run_id)}
    first = await api.http.patch(path, json=body, headers=headers)
    async with served(app_for(site)) as replica:
        again = await replica.http.patch(path, json=body, headers=headers)

    assert first.json()["version"] == again.json()["version"] == body["version"] + 1
    other = {**body, "patch": {"amount": 6}}
    problem(await api.http.patch(path, json=other, headers=headers), 409, "idempotency_conflict")
    stranger = {**headers, "X-Abeyance-Principal": "eve"}
    problem(await api.http.patch(path, json=body, headers=stranger), 409, "idempotency_conflict")
    moved = await api.http.patch(f"/interrupts/{gate}", json={"timeout": "1h"}, headers=headers)
    problem(moved, 409, "idempotency_conflict")
    assert (await api.interrupt(gate))["deadline"] is None
