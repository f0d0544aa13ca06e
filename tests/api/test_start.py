"""Starting and reading runs over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site, eventually

from abeyance.util import RUN_ID_RULE


async def test_a_started_run_is_returned_with_its_location(api: Api) -> None:
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


async def test_a_start_needs_no_more_than_its_graph(api: Api) -> None:
    response = await api.http.post("/runs", json={"graph": "gated"})

    assert response.status_code == 201
    assert response.json()["run_id"].startswith("gated-")


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
    assert "You may not start a run on behalf of 'carol'" in refused["detail"]
    assert "Leave out `on_behalf_of`, or have 'runs:start-for' added" in refused["detail"]
    own = {**body, "on_behalf_of": "svc"}
    started = await api.http.post("/runs", json=own, headers=able)
    assert (started.json()["started_by"], started.json()["sent_by"]) == ("svc", None)


def caller(who: str, *capabilities: str) -> dict[str, str]:
    return {
        "X-Abeyance-Principal": who,
        "X-Abeyance-Capabilities": ",".join(capabilities),
    }


@pytest.mark.parametrize(
    ("change", "status", "code", "pointers"),
    [
        ({"graph": "nope"}, 404, "unknown_graph", []),
        ({"run_id": "größe 1"}, 422, "invalid_run_id", []),
        ({"input": {"amount": "much"}}, 422, "invalid_input", ["/amount"]),
        ({"input": []}, 422, "invalid_input", [""]),
        ({"input": None}, 422, "invalid_input", [""]),
        ({"interrupt_before": ["nope"]}, 404, "unknown_node", []),
        (
            {"limits": {"max_queue_size": 101, "continue_as_new_after": 1501}},
            422,
            "invalid_body",
            ["/limits/continue_as_new_after", "/limits/max_queue_size"],
        ),
    ],
)
async def test_a_start_that_cannot_be_is_refused_and_starts_nothing(
    api: Api, change: dict[str, Any], status: int, code: str, pointers: list[str]
) -> None:
    run_id = new_id()
    body = {"graph": "gated", "input": {"amount": 3}, "run_id": run_id, **change}
    found = problem(await api.http.post("/runs", json=body), status, code)

    assert [entry["pointer"] for entry in found.get("errors", [])] == pointers
    problem(await api.http.get(f"/runs/{run_id}"), 404, "unknown_run")


async def test_a_refused_start_names_the_rule(api: Api) -> None:
    async def told(code: str, **body: Any) -> dict[str, Any]:
        return problem(await api.http.post("/runs", json=body), 422, code)

    limits = {"max_message_length": 1_234_567}
    (limit,) = (await told("invalid_body", graph="gated", limits=limits))["errors"]
    named = await told("invalid_run_id", graph="gated", run_id="größe 1")
    missing = await told("invalid_body", run_id="x")

    assert "1234567 is more than the 10000" in limit["message"]
    assert (named["invalid_characters"], named["rule"]) == ([" ", "ß", "ö"], RUN_ID_RULE)
    assert missing["errors"] == [{"pointer": "/graph", "message": "is missing"}]


async def test_a_start_narrows_which_actions_its_messages_may_have_and_never_widens_them(
    site: Site, api: Api
) -> None:
    run_id, _ = await api.waiting("gated", limits={"allowed_actions": ["sing"]})
    dance = {"text": "x", "action": "dance"}
    refused = await api.http.post(f"/runs/{run_id}/messages", json=dance)
    async with served(app_for(site, allowed_actions=("sing",))) as strict:
        for actions in (["dance"], []):
            body = {"graph": "gated", "input": {}, "limits": {"allowed_actions": actions}}
            (fault,) = problem(await strict.http.post("/runs", json=body), 422, "invalid_body")[
                "errors"
            ]
            assert fault["pointer"] == "/limits/allowed_actions"

    assert "'dance'" in problem(refused, 422, "action_not_allowed")["detail"]


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


async def test_a_read_waits_no_longer_than_requested(api: Api, standing: tuple[str, str]) -> None:
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


@pytest.mark.parametrize("run_id", ["nobody-has-this-id", "not%20an%20id", "x" * 300, "a.b"])
async def test_an_id_that_no_run_has_is_unknown(api: Api, run_id: str) -> None:
    for part in ("", "/result", "/interrupts", "/messages", "/events"):
        problem(await api.http.get(f"/runs/{run_id}{part}"), 404, "unknown_run")
    problem(await api.http.post(f"/runs/{run_id}/pause", json={}), 404, "unknown_run")
