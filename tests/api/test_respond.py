"""Answering questions, and editing values and deadlines, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from stack import Api, app_for, problem, served
from temporal_site import Site

from abeyance.api.app import create_app
from abeyance.settings import Settings


async def test_an_answer_may_be_nothing_name_no_question_and_show_the_run_it_leads_to(
    api: Api,
) -> None:
    run_id, (first, second) = await api.waiting("gates")
    path = f"/interrupts/{first}/respond"
    missing = [
        await api.http.post(path, content=body, headers={"Content-Type": "application/json"})
        for body in ("{}", '{"responses": {"x": 1}}', "null", "")
    ]
    by_path = await api.http.post(path, params={"view": "true"}, json={"response": None})
    alone = await api.http.post(f"/runs/{run_id}/respond", json={"response": 0})

    for response in missing:
        problem(response, 422, "invalid_body")
    assert set(by_path.json()) == {"receipts", "run"}
    assert [entry["id"] for entry in by_path.json()["run"]["interrupts"]] == [second]
    assert [entry["interrupt_id"] for entry in alone.json()["receipts"]] == [second]
    settled = await api.interrupt(first)
    assert (settled["status"], settled["answer"]) == ("answered", None)


@pytest.mark.parametrize(
    "id_", ["nope", "a.b", f"a.{'A' * 16}", "no%20run.0123456789abcdef", "{run}.0000000000000000"]
)
async def test_an_id_that_no_interrupt_has_is_unknown(
    api: Api, standing: tuple[str, str], id_: str
) -> None:
    id_ = id_.format(run=standing[0])
    problem(await api.http.get(f"/interrupts/{id_}"), 404, "unknown_interrupt")
    response = await api.http.post(f"/interrupts/{id_}/respond", json={"response": 1})
    problem(response, 404, "unknown_interrupt")


async def test_an_edit_under_a_key_is_made_once_and_only_where_the_graph_is_served(
    api: Api, site: Site
) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    path, headers = f"/runs/{run_id}/values", {"Idempotency-Key": "edit-1"}
    version = (await api.http.get(f"/runs/{run_id}")).json()["version"]
    body: dict[str, Any] = {"patch": {"amount": 5}, "version": version}
    elsewhere = create_app(Settings(task_queue=site.settings.task_queue), {}, site.client)
    async with served(elsewhere) as other:
        problem(await other.http.patch(path, json=body), 404, "unknown_graph")
    first = await api.http.patch(path, json=body, headers=headers)
    async with served(app_for(site)) as replica:
        again = await replica.http.patch(path, json=body, headers=headers)

    assert first.json()["version"] == again.json()["version"] == version + 1
    assert again.json()["values"]["amount"] == 5
    changed = {**body, "patch": {"amount": 6}}
    problem(await api.http.patch(path, json=changed, headers=headers), 409, "idempotency_conflict")
    stranger = {**headers, "X-Abeyance-Principal": "eve"}
    problem(await api.http.patch(path, json=body, headers=stranger), 409, "idempotency_conflict")
    moved = await api.http.patch(f"/interrupts/{gate}", json={"timeout": "1h"}, headers=headers)
    problem(moved, 409, "idempotency_conflict")
    assert (await api.interrupt(gate))["deadline"] is None
