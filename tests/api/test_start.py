"""Starting runs and reading them, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from stack import Api, new_id, problem
from temporal_site import eventually

from abeyance.util import RUN_ID_RULE


async def test_a_started_run_is_told_with_its_place(api: Api) -> None:
    run_id = new_id()
    response = await api.http.post(
        "/runs",
        json={
            "graph": "gated",
            "input": {"amount": 3},
            "run_id": run_id,
            "conversation_id": "slack:C1/167.22",
            "session_type": "batch",
            "labels": {"team": "support"},
        },
    )
    view = response.json()

    assert response.status_code == 201
    assert response.headers["location"] == f"/runs/{run_id}"
    assert (view["run_id"], view["graph"]) == (run_id, "gated")
    assert (view["conversation_id"], view["session_type"]) == ("slack:C1/167.22", "batch")
    assert (view["labels"], view["started_by"]) == ({"team": "support"}, "local")
    assert (await api.http.get(response.headers["location"])).json()["run_id"] == run_id


async def test_a_run_without_an_id_gets_one_that_names_its_graph(api: Api) -> None:
    response = await api.http.post("/runs", json={"graph": "gated", "input": {}})

    assert response.status_code == 201
    assert response.json()["run_id"].startswith("gated-")


async def test_starting_the_same_again_is_the_same_run(api: Api) -> None:
    body = {"graph": "gated", "input": {"amount": 3}, "run_id": new_id()}
    first = await api.http.post("/runs", json=body)
    again = await api.http.post("/runs", json=body)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run_id"] == first.json()["run_id"]


async def test_a_start_that_waits_is_answered_with_the_run_as_it_is_then(api: Api) -> None:
    query = {"wait": "PT30S", "until": "awaiting-input"}
    started = await api.http.post("/runs", json={"graph": "gated", "input": {}}, params=query)

    view = started.json()
    assert (started.status_code, view["status"]) == (201, "awaiting-input")
    assert [entry["name"] for entry in view["interrupts"]] == ["approve"]


async def test_a_running_id_is_not_given_to_another_run(api: Api) -> None:
    run_id = await api.start("gated", {"amount": 3})
    response = await api.http.post(
        "/runs", json={"graph": "gated", "input": {"amount": 4}, "run_id": run_id}
    )

    found = problem(response, 409, "run_exists")
    assert found["run_id"] == run_id
    assert found["run_status"] in ("running", "awaiting-input")


async def test_the_id_of_an_ended_run_is_given_away_only_on_demand(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    await api.http.post(f"/runs/{run_id}/cancel", json={})
    await api.until(run_id, "cancelled")
    body = {"graph": "gated", "input": {}, "run_id": run_id}
    refused = await api.http.post("/runs", json=body)
    reused = await api.http.post("/runs", json={**body, "reuse": True})

    assert problem(refused, 409, "run_exists")["run_status"] == "cancelled"
    assert reused.status_code == 201
    assert reused.json()["status"] != "cancelled"


async def test_a_service_starts_the_run_of_a_person_who_is_its_starter(api: Api) -> None:
    body = {"graph": "other-eyes", "input": {"amount": 3}, "on_behalf_of": "carol"}
    body["run_id"] = run_id = new_id()
    svc = caller("svc", "runs:start", "runs:start-for", "runs:read")
    first = await api.http.post("/runs", json=body, headers=svc)
    again = await api.http.post("/runs", json=body, headers=svc)
    other = await api.http.post("/runs", json={**body, "on_behalf_of": "dan"}, headers=svc)
    own = await api.http.post("/runs", json={**body, "on_behalf_of": "svc"}, headers=svc)

    assert (first.status_code, again.status_code) == (201, 200)
    problem(other, 409, "run_exists")
    problem(own, 409, "run_exists")
    view = await api.until(run_id, "awaiting-input")
    assert (view["started_by"], view["sent_by"]) == ("carol", "svc")
    assert view["interrupts"][0]["barred"] == {"carol": "@starter"}
    listed = (await api.http.get("/runs", params={"graph": "other-eyes"})).json()["items"]
    assert ("carol", "svc") in [(each["started_by"], each["sent_by"]) for each in listed]
    (begun, *_) = (await api.http.get(f"/runs/{run_id}/events")).json()["items"]
    assert (begun["actor"], begun["data"]["on_behalf_of"]) == ("svc", "carol")
    audit = (await api.http.get(f"/runs/{run_id}/audit")).text
    assert '"on_behalf_of":"carol"' in audit.splitlines()[0]


async def test_one_key_starts_the_run_of_one_person(api: Api) -> None:
    body = {"graph": "gated", "input": {}, "on_behalf_of": "carol"}
    keyed = {"Idempotency-Key": new_id()}
    first = await api.http.post("/runs", json=body, headers=keyed)
    again = await api.http.post("/runs", json=body, headers=keyed)
    other = await api.http.post("/runs", json={**body, "on_behalf_of": "dan"}, headers=keyed)

    assert (first.status_code, again.status_code) == (201, 200)
    problem(other, 409, "idempotency_conflict")


async def test_nobody_starts_runs_for_others_without_its_own_capability(api: Api) -> None:
    body = {"graph": "gated", "input": {}, "on_behalf_of": "carol"}
    able = caller("svc", "runs:start", "admin", "runs:control", "runs:read", "runs:respond")
    refused = problem(
        await api.http.post("/runs", json=body, headers=able), 403, "capability_required"
    )

    assert (refused["capability"], refused["capabilities"]) == (
        "runs:start-for",
        ["runs:start-for"],
    )
    assert "'svc' may not start a run on behalf of 'carol'" in refused["detail"]
    assert "Leave out `on_behalf_of`, or have 'runs:start-for' added" in refused["detail"]
    own = {**body, "on_behalf_of": "svc"}
    started = await api.http.post("/runs", json=own, headers=able)
    assert (started.json()["started_by"], started.json()["sent_by"]) == ("svc", None)


@pytest.mark.parametrize("name", ["temporal", "timeout", "group:finance", " carol", ""])
async def test_a_run_is_started_for_nobody_who_can_be_no_person(api: Api, name: str) -> None:
    body = {"graph": "gated", "input": {}, "on_behalf_of": name}
    found = problem(await api.http.post("/runs", json=body), 422, "invalid_body")

    assert found["errors"][0]["pointer"] == "/on_behalf_of"


def caller(who: str, *capabilities: str) -> dict[str, str]:
    return {
        "X-Abeyance-Principal": who,
        "X-Abeyance-Capabilities": ",".join(capabilities),
    }


async def test_a_start_without_input_has_an_empty_one(api: Api) -> None:
    response = await api.http.post("/runs", json={"graph": "gated"})

    assert response.status_code == 201


@pytest.mark.parametrize(
    ("change", "status", "code", "pointers"),
    [
        ({"graph": "nope"}, 404, "unknown_graph", None),
        ({"run_id": "a b"}, 422, "invalid_run_id", None),
        ({"run_id": ""}, 422, "invalid_run_id", None),
        ({"run_id": "x" * 201}, 422, "invalid_run_id", None),
        ({"input": {"amount": "much"}}, 422, "invalid_input", ["/amount"]),
        ({"input": {"colour": 1}}, 422, "invalid_input", ["/colour"]),
        ({"input": []}, 422, "invalid_input", [""]),
        ({"input": None}, 422, "invalid_input", [""]),
        ({"colour": 1}, 422, "invalid_body", ["/colour"]),
        ({"interrupt_before": [7]}, 422, "invalid_body", ["/interrupt_before/0"]),
        ({"interrupt_between": ["a"]}, 422, "invalid_body", ["/interrupt_between"]),
        ({"graph": 7}, 422, "invalid_body", ["/graph"]),
        ({"run_id": 7}, 422, "invalid_body", ["/run_id"]),
        ({"reuse": "yes"}, 422, "invalid_body", ["/reuse"]),
        ({"labels": {"a=b": "c"}}, 422, "invalid_body", None),
        ({"labels": {"a": 1}}, 422, "invalid_body", ["/labels/a"]),
        ({"labels": {str(n): "" for n in range(21)}}, 422, "invalid_body", ["/labels"]),
        ({"conversation_id": "a\nb"}, 422, "invalid_body", ["/conversation_id"]),
        ({"conversation_id": ".."}, 422, "invalid_body", ["/conversation_id"]),
        ({"limits": {"max_visits": 1001}}, 422, "invalid_body", ["/limits/max_visits"]),
        ({"limits": {"max_visits": 0}}, 422, "invalid_body", ["/limits/max_visits"]),
        ({"limits": {"max_visits": "5"}}, 422, "invalid_body", ["/limits/max_visits"]),
        ({"limits": {"patience": 1}}, 422, "invalid_body", ["/limits/patience"]),
        ({"limits": {"grace": "1h"}}, 422, "invalid_body", ["/limits/grace"]),
        ({"limits": {"grace": "soon"}}, 422, "invalid_body", ["/limits/grace"]),
        (
            {"limits": {"max_queue_size": 101, "continue_as_new_after": 1501}},
            422,
            "invalid_body",
            ["/limits/continue_as_new_after", "/limits/max_queue_size"],
        ),
    ],
)
async def test_a_start_that_cannot_be_is_refused_and_starts_nothing(
    api: Api, change: dict[str, Any], status: int, code: str, pointers: list[str] | None
) -> None:
    run_id = new_id()
    response = await api.http.post(
        "/runs", json={"graph": "gated", "input": {"amount": 3}, "run_id": run_id, **change}
    )

    found = problem(response, status, code)
    if pointers is not None:
        assert [entry["pointer"] for entry in found["errors"]] == pointers
    problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_a_limit_is_told_with_all_its_digits(api: Api) -> None:
    limits = {"max_message_length": 1_234_567}
    response = await api.http.post("/runs", json={"graph": "gated", "input": {}, "limits": limits})

    (found,) = problem(response, 422, "invalid_body")["errors"]
    assert "1234567 is more than the 10000" in found["message"]


async def test_a_bad_run_id_is_told_what_is_wrong_with_it(api: Api) -> None:
    response = await api.http.post(
        "/runs", json={"graph": "gated", "input": {}, "run_id": "größe 1"}
    )

    found = problem(response, 422, "invalid_run_id")
    assert found["invalid_characters"] == [" ", "ß", "ö"]
    assert found["rule"] == RUN_ID_RULE


async def test_a_body_that_misses_a_field_is_told_which(api: Api) -> None:
    response = await api.http.post("/runs", json={"run_id": "x"})

    found = problem(response, 422, "invalid_body")
    assert found["errors"] == [{"pointer": "/graph", "message": "is missing"}]


async def test_lower_limits_hold_for_the_run(api: Api) -> None:
    run_id = await api.start("gated", {}, limits={"max_queue_size": 7, "grace": "PT1S"})

    assert (await api.http.get(f"/runs/{run_id}")).json()["max_queue_size"] == 7


async def test_a_read_may_wait_for_what_the_run_comes_to(api: Api) -> None:
    run_id, _ = await api.waiting("gated")
    waiting = asyncio.create_task(
        api.http.get(f"/runs/{run_id}", params={"wait": "PT20S", "until": "completed,halted"})
    )
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    answered = await api.http.post(f"/runs/{run_id}/respond", json={"response": {"approved": True}})

    assert not done
    assert answered.status_code == 200, answered.text
    assert (await waiting).json()["status"] == "completed"


async def test_a_read_waits_no_longer_than_it_was_told_to(
    api: Api, standing: tuple[str, str]
) -> None:
    run_id, _ = standing
    for wait in ("PT0.1S", "0.1", "100ms"):
        response = await api.http.get(
            f"/runs/{run_id}", params={"wait": wait, "until": "completed"}
        )
        assert (response.status_code, response.json()["status"]) == (200, "awaiting-input")


async def test_nobody_waits_for_a_caller_who_has_hung_up(
    api: Api, standing: tuple[str, str]
) -> None:
    run_id, _ = standing
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(
        f"GET /runs/{run_id}?wait=PT30S HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n\r\n".encode()
    )
    await eventually(lambda: api.under_way)
    writer.close()
    await writer.wait_closed()

    await eventually(lambda: not api.under_way, seconds=20)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"wait": "soon"}, "/wait"),
        ({"wait": "-PT1S"}, "/wait"),
        ({"wait": ""}, "/wait"),
        ({"until": "done"}, "/until"),
        ({"wait": "1s", "until": "completed,"}, "/until"),
    ],
)
async def test_a_query_that_means_nothing_is_refused(
    api: Api, standing: tuple[str, str], query: dict[str, str], pointer: str
) -> None:
    run_id, _ = standing
    found = problem(await api.http.get(f"/runs/{run_id}", params=query), 422, "invalid_body")

    (fault,) = found["errors"]
    assert (fault["pointer"], fault["in"]) == (pointer, "query")


async def test_a_result_is_there_when_the_run_has_ended(api: Api) -> None:
    run_id, (gate,) = await api.waiting("gated", {"amount": 3})
    early = await api.http.get(f"/runs/{run_id}/result")
    await api.http.post(f"/interrupts/{gate}/respond", json={"response": {"approved": True}})
    await api.until(run_id, "completed")
    result = (await api.http.get(f"/runs/{run_id}/result")).json()

    assert problem(early, 409, "not_finished")["run_status"] == "awaiting-input"
    assert (result["run_id"], result["status"], result["outcome"]) == (
        run_id,
        "completed",
        "completed",
    )
    assert result["values"]["log"] == ["before", "after {'approved': True}"]
    assert result["undelivered"] == []
    assert [entry["status"] for entry in result["interrupts"]] == ["answered"]


@pytest.mark.parametrize("run_id", ["nobody-has-this-id", "not%20an%20id", "x" * 300, "a.b"])
@pytest.mark.parametrize("part", ["", "/result", "/interrupts"])
async def test_an_id_that_no_run_has_is_unknown(api: Api, run_id: str, part: str) -> None:
    problem(await api.http.get(f"/runs/{run_id}{part}"), 404, "unknown_run")
