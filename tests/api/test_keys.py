"""Calls that are repeated under one Idempotency-Key have the effect of one call."""

from __future__ import annotations

import asyncio

import pytest
from stack import Api, new_id, problem
from temporal_site import Site

YES = {"approved": True}


async def test_a_key_starts_one_run_for_good(api: Api) -> None:
    headers = {"Idempotency-Key": new_id("key")}
    body = {"graph": "gated", "input": {"amount": 3}}
    first = await api.http.post("/runs", json=body, headers=headers)
    again = await api.http.post("/runs", json=body, headers=headers)
    run_id = first.json()["run_id"]
    await api.http.post(f"/runs/{run_id}/cancel", json={})
    await api.until(run_id, "cancelled")
    after_the_end = await api.http.post("/runs", json={**body, "reuse": False}, headers=headers)
    relabelled = {**body, "labels": {"team": "support"}}
    other = await api.http.post("/runs", json=relabelled, headers=headers)
    for_somebody = {**body, "on_behalf_of": "carol"}
    for_carol = await api.http.post("/runs", json=for_somebody, headers=headers)
    somebody = {**headers, "X-Abeyance-Principal": "grace"}
    of_another = await api.http.post("/runs", json=body, headers=somebody)

    assert [r.status_code for r in (first, again, after_the_end, of_another)] == [
        201,
        200,
        200,
        201,
    ]
    assert run_id.startswith("run-")
    assert again.json()["run_id"] == after_the_end.json()["run_id"] == run_id
    assert of_another.json()["run_id"] != run_id
    for conflict in (other, for_carol):
        assert problem(conflict, 409, "idempotency_conflict")["run_id"] == run_id


async def test_a_key_starts_one_run_also_where_its_id_is_given_and_may_be_used_again(
    api: Api,
) -> None:
    headers = {"Idempotency-Key": new_id("key")}
    run_id = new_id()
    body = {"graph": "gated", "input": {}, "run_id": run_id, "reuse": True}
    first = await api.http.post("/runs", json=body, headers=headers)
    await api.http.post(f"/runs/{run_id}/cancel", json={})
    await api.until(run_id, "cancelled")
    again = await api.http.post("/runs", json=body, headers=headers)
    other = await api.http.post("/runs", json={**body, "input": {"amount": 2}}, headers=headers)
    anew = await api.http.post("/runs", json=body, headers={"Idempotency-Key": new_id("key")})

    assert [answer.status_code for answer in (first, again, anew)] == [201, 200, 201]
    assert again.json()["status"] == "cancelled"
    assert problem(other, 409, "idempotency_conflict")["run_id"] == run_id
    assert anew.json()["created_at"] > first.json()["created_at"]


async def test_a_key_is_known_after_the_history_was_handed_over(api: Api, site: Site) -> None:
    headers = {"Idempotency-Key": new_id("key")}
    body = {"graph": "gates", "input": {}, "limits": {"continue_as_new_after": 3}}
    first = await api.http.post("/runs", json=body, headers=headers)
    run_id = first.json()["run_id"]
    await api.until(run_id, "awaiting-input")
    for gate in (await api.http.get(f"/runs/{run_id}")).json()["interrupts"]:
        answered = await api.http.post(f"/interrupts/{gate['id']}/respond", json={"response": 1})
        assert answered.status_code == 200, answered.text
    await api.until(run_id, "completed")
    again = await api.http.post("/runs", json=body, headers=headers)
    begin = (await site.history(run_id)).events[0].workflow_execution_started_event_attributes

    assert begin.continued_execution_run_id
    assert (again.status_code, again.json()["run_id"]) == (200, run_id)


async def test_one_key_sent_twice_at_once_with_two_answers_is_one_answer(api: Api) -> None:
    run_id, (gate, _) = await api.waiting("gates")
    calls = [
        api.http.post(
            f"/runs/{run_id}/respond",
            json={"interrupt_id": gate, "response": answer},
            headers={"Idempotency-Key": "both"},
        )
        for answer in (1, 2)
    ]
    codes = sorted(response.status_code for response in await asyncio.gather(*calls))

    assert codes == [200, 409]


@pytest.mark.parametrize("key", ["", "x" * 201, "a b", "a\u00e4"])
async def test_a_key_that_cannot_be_one_is_refused(
    api: Api, standing: tuple[str, str], key: str
) -> None:
    _, gate = standing
    response = await api.http.post(
        f"/interrupts/{gate}/respond",
        json={"response": YES},
        headers={b"Idempotency-Key": key.encode()},
    )

    problem(response, 422, "invalid_body")
    assert (await api.interrupt(gate))["status"] == "open"
