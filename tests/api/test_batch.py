"""One call that does the same to many runs, and the bound of active runs."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sample_graphs import gated
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site, eventually

from abeyance.util import gather_limited


async def post(api: Api, path: str, body: dict[str, Any] | None = None, **options: Any) -> Any:
    return await api.http.post(path, json=body or {}, **options)


async def done(api: Api, operation: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    answer = await post(api, f"/batch/{operation}", body, **options)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    results = found["results"]
    assert found["succeeded"] == sum(result["ok"] for result in results)
    assert found["failed"] == len(results) - found["succeeded"]
    return found


async def started(api: Api, count: int, **fields: Any) -> list[str]:
    async def start(_: int) -> str:
        run_id, _gates = await api.waiting("gated", **fields)
        return run_id

    return await gather_limited(range(count), start, at_once=8)


async def test_each_run_has_its_result_in_the_order_of_the_call(api: Api) -> None:
    good, ended, other = await started(api, 3)
    await post(api, f"/runs/{ended}/cancel")
    await api.until(ended, "cancelled")
    asked = [other, "never-was", ended, "no run", good, other]
    found = await done(api, "pause", {"run_ids": asked, "body": {"reason": "audit"}})

    assert [(result["run_id"], result["code"]) for result in found["results"]] == [
        (other, None),
        ("never-was", "unknown_run"),
        (ended, "not_running"),
        ("no run", "invalid_run_id"),
        (good, None),
    ]
    assert (found["succeeded"], found["failed"], found["next_cursor"]) == (2, 3, None)
    assert all(result["detail"] for result in found["results"] if not result["ok"])
    for run_id in (good, other):
        await api.until(run_id, "paused")
    await done(api, "resume", {"run_ids": [good, other]})
    for run_id in (good, other):
        await api.until(run_id, "awaiting-input")


async def test_a_filter_reaches_what_a_list_shows_page_by_page(api: Api) -> None:
    team = new_id("team")
    runs = await started(api, 3, labels={"team": team})
    # One label may be a plain string, and statuses one with commas.
    filter_ = {"label": f"team={team}", "status": "awaiting-input,paused"}

    async def listed() -> bool:
        query = {"label": f"team={team}", "status": "awaiting-input"}
        return len((await api.http.get("/runs", params=query)).json()["items"]) == 3

    await eventually(listed)
    first = await done(api, "cancel", {"filter": filter_, "limit": 2})
    rest = await done(
        api, "cancel", {"filter": filter_, "limit": 2, "cursor": first["next_cursor"]}
    )

    reached = [result["run_id"] for page in (first, rest) for result in page["results"]]
    assert (len(first["results"]), rest["next_cursor"]) == (2, None)
    assert sorted(reached) == sorted(runs)
    for run_id in runs:
        await api.until(run_id, "cancelled")


async def test_many_are_steered_once_and_answered_once(api: Api) -> None:
    runs = await started(api, 2)
    steer = {"run_ids": runs, "body": {"text": "hurry", "message_id": new_id("note")}}
    answer = {"run_ids": runs, "body": {"response": {"approved": True}}}
    for _ in "12":
        assert (await done(api, "steer", steer))["succeeded"] == 2
    messages = [(await api.http.get(f"/runs/{run_id}")).json() for run_id in runs]
    first = await done(api, "respond", answer)
    again = await done(api, "respond", answer)

    assert [view["queue_depth"] for view in messages] == [1] * 2
    assert first["succeeded"] == 2
    assert {result["code"] for result in again["results"]} <= {
        "run_finished",
        "nothing_open",
    }
    for run_id in runs:
        await api.until(run_id, "completed")


async def test_answers_by_id_go_to_the_runs_that_they_name(api: Api) -> None:
    (one, (gate,)), (two, (other,)) = [await api.waiting("gated") for _ in "12"]
    digests = {id_: (await api.interrupt(id_))["digest"] for id_ in (gate, other)}
    answers = {"responses": {gate: {"approved": True}}, "digests": digests}
    body = {"run_ids": [one, two], "body": answers}
    found = await done(api, "respond", body)

    assert [result["code"] for result in found["results"]] == [None, "unknown_interrupt"]
    await api.until(one, "completed")
    assert (await api.http.get(f"/runs/{two}")).json()["status"] == "awaiting-input"


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_thousand_runs_in_one_call(api: Api, site: Site) -> None:
    team = new_id("many")
    runs = [new_id() for _ in range(1_000)]
    graph = site.graphs["gated"]

    async def start(run_id: str) -> None:
        await site.client.runs.start(graph, {}, run_id=run_id, labels={"team": team})

    await gather_limited(runs, start, at_once=8)
    began = time.monotonic()
    order = {"run_ids": runs, "body": {"mode": "now"}}
    found = await done(api, "cancel", order, timeout=150)
    took = time.monotonic() - began

    assert (found["succeeded"], found["failed"]) == (1_000, 0)
    query = {"label": f"team={team}", "status": "cancelled"}

    async def listed(limit: int) -> Any:
        return (await api.http.get("/runs", params={**query, "limit": str(limit)})).json()

    async def ended() -> bool:
        return bool((await listed(1))["total"] == 1_000)

    await eventually(ended, seconds=220)
    print(f"all had ended after {time.monotonic() - began:.1f} s")
    assert {item["run_id"] for item in (await listed(1_000))["items"]} == set(runs)
    print(f"1,000 runs were told to cancel in {took:.1f} s")


async def test_a_service_that_is_full_takes_no_other_run_if_it_is_set_to_reject(
    temporal: Any,
) -> None:
    site = Site(temporal, gated())
    full = app_for(site, max_active_runs=1, max_active_runs_policy="reject")
    async with site.worker(), served(full) as api:
        first = await api.start("gated", {})
        body = {"graph": "gated", "input": {}, "run_id": first}
        other = await post(api, "/runs", {**body, "run_id": new_id()})
        again = await post(api, "/runs", body)
    async with served(app_for(site)) as api:
        nothing = problem(await post(api, "/admin/evict"), 422, "invalid_body")

    told = problem(other, 429, "too_many_runs")
    assert (told["limit"], told["actual"], again.status_code) == (1, 1, 200)
    assert "ABEYANCE_MAX_ACTIVE_RUNS" in nothing["detail"]
