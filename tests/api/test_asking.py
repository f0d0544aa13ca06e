"""Questions that code, parts of code and nested graphs ask, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from asking_graphs import asking, batch, nested, plain, spread
from stack import Api, app_for, problem, served
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient


@pytest_asyncio.fixture(scope="module")
async def asked(temporal: TemporalClient) -> AsyncIterator[Api]:
    site = Site(temporal, asking(), batch(), nested(), spread(), plain())
    async with site.worker(), served(app_for(site)) as api:
        yield api


async def respond(api: Api, id_: str, response: Any, **headers: str) -> Any:
    path = f"/interrupts/{id_}/respond"
    return await api.http.post(path, json={"response": response}, headers=headers)


async def test_a_question_of_code_is_listed_and_answered_like_any_other(asked: Api) -> None:
    run_id, (id_,) = await asked.waiting("asking")
    shown = await asked.interrupt(id_)
    wrong = await respond(asked, id_, {"iban": 5})
    nobody = await respond(asked, id_, {"iban": "x"}, **{"X-Abeyance-Capabilities": "runs:respond"})
    right = await respond(asked, id_, {"iban": "DE1"})
    again = await respond(asked, id_, {"iban": "DE1"})
    ended = await asked.until(run_id, "completed")
    late = await respond(asked, id_, {"iban": "DE2"})

    assert (shown["name"], shown["kind"], shown["status"]) == ("account", "question", "open")
    assert (shown["prompt"], shown["payload"]) == ("Which account?", {"form": 7})
    assert shown["address"] == "graph:asking;node:work"
    assert shown["response_schema"]["required"] == ["iban"]
    assert (shown["parents"], shown["is_root_cause"]) == ([], True)
    assert problem(wrong, 422, "invalid_answer")["errors"][0]["pointer"] == "/iban"
    assert problem(nobody, 403, "capability_required")["capability"] == "accounts:choose"
    assert right.json()["receipts"][0]["replayed"] is False
    assert again.json()["receipts"][0]["replayed"] is True
    assert ended["values"]["log"] == ["DE1"]
    assert problem(late, 409, "already_answered")["answered_by"]


async def test_parts_of_a_composite_unit_are_answered_one_by_one(asked: Api) -> None:
    run_id, ids = await asked.waiting("batch")
    first, second = [await asked.interrupt(id_) for id_ in ids]
    (parent,) = first["parents"]
    above = await asked.http.post(f"/runs/{run_id}/respond", json={"responses": {parent["id"]: 1}})
    assert (await respond(asked, second["id"], True)).status_code == 200

    async def is_waiting_again() -> bool:
        view = (await asked.http.get(f"/runs/{run_id}")).json()
        return view["status"] == "awaiting-input" and len(view["interrupts"]) == 1

    await eventually(is_waiting_again)
    assert (await respond(asked, first["id"], True)).status_code == 200
    ended = await asked.until(run_id, "completed")

    assert first["address"] == "graph:batch;node:work;process:p1"
    assert parent == {
        "id": first["parent"],
        "address": "graph:batch;node:work",
        "reason": "a batch of two",
    }
    causes = problem(above, 409, "not_root_cause")["root_causes"]
    assert sorted(causes) == sorted(ids)
    assert ended["values"]["log"] == ["p1/ok", "p2/ok"]


async def test_gates_of_nested_graphs_have_deadlines_of_their_own(asked: Api) -> None:
    run_id, (left, right) = await asked.waiting("outer", {"count": 3})
    shown = await asked.interrupt(left)
    nearer = await asked.http.patch(f"/interrupts/{left}", json={"timeout": "300ms"})
    unknown = await asked.http.patch(f"/interrupts/{right}", json={"on_timeout": "goto:left"})

    async def is_late() -> bool:
        view = (await asked.http.get(f"/runs/{run_id}")).json()
        return bool(view["values"]["log"]) or len(view["interrupts"]) == 1

    await eventually(is_late)
    assert (await respond(asked, right, None)).status_code == 200
    ended = await asked.until(run_id, "completed")

    assert shown["prompt"] == "Deep 3?"
    assert [parent["address"] for parent in shown["parents"]] == [
        "graph:outer;node:left;graph:middle;node:inner",
        "graph:outer;node:left",
    ]
    assert nearer.status_code == 200
    assert problem(unknown, 404, "unknown_node")
    assert ended["values"]["log"] == ["late"]
    assert (await asked.interrupt(left))["status"] == "expired"


async def test_one_call_answers_every_item_of_a_fan_out(asked: Api) -> None:
    run_id, ids = await asked.waiting("spread", {"count": 20})
    answers = {"responses": dict.fromkeys(ids, "y")}
    response = await asked.http.post(f"/runs/{run_id}/respond", json=answers)
    ended = await asked.until(run_id, "completed")

    assert len(response.json()["receipts"]) == 20
    assert ended["values"] == {"count": 20, "log": [f"{number}:y" for number in range(20)]}


async def test_a_start_says_where_a_person_looks_at_the_values(asked: Api) -> None:
    run_id, (before,) = await asked.waiting("plain", interrupt_before=["more"])
    shown = await asked.interrupt(before)
    payload = shown["payload"]
    stale = await respond(asked, before, {"values": {"count": 5}, "version": 99})
    wrong = await respond(asked, before, {"values": {"count": "x"}, "version": 1})
    edit = {"values": {"count": 5}, "version": payload["version"]}
    assert (await respond(asked, before, edit)).status_code == 200
    ended = await asked.until(run_id, "completed")

    assert (shown["kind"], payload["values"]["count"]) == ("static", 1)
    assert problem(stale, 409, "stale")
    assert problem(wrong, 422, "invalid_answer")["errors"][0]["pointer"] == "/values/count"
    assert ended["values"]["count"] == 15


async def test_a_start_may_look_everywhere_and_name_no_unknown_node(asked: Api) -> None:
    run_id, (first,) = await asked.waiting("plain", interrupt_after="*")
    assert (await respond(asked, first, None)).status_code == 200
    view = await eventually(lambda: _second(asked, run_id, first))
    assert (await respond(asked, view, None)).status_code == 200
    ended = await asked.until(run_id, "completed")
    body = {"graph": "plain", "input": {}, "interrupt_before": ["nope"]}
    unknown = await asked.http.post("/runs", json=body)

    assert ended["values"]["count"] == 11
    assert problem(unknown, 404, "unknown_node")["node"] == "nope"


async def _second(api: Api, run_id: str, first: str) -> str | None:
    view = (await api.http.get(f"/runs/{run_id}")).json()
    others = [entry["id"] for entry in view["interrupts"] if entry["id"] != first]
    return others[0] if others else None


async def test_a_start_may_have_an_operator_asked_where_a_node_fails(asked: Api) -> None:
    body = {"graph": "plain", "input": {}, "on_error": "interrupt"}
    ignored = await asked.http.post("/runs", json={**body, "on_error": "perhaps"})
    run_id, (id_,) = await asked.waiting("plain", {"count": 200}, on_error="interrupt")
    shown = await asked.interrupt(id_)
    wrong = await respond(asked, id_, {"action": "skip", "patch": {"cuont": 1}})
    right = await respond(asked, id_, {"action": "skip", "patch": {"count": 7}})
    ended = await asked.until(run_id, "completed")

    assert problem(ignored, 422, "invalid_body")
    assert shown["kind"] == "error"
    assert "201 is too much" in shown["prompt"]
    assert problem(wrong, 422, "invalid_answer")
    assert right.status_code == 200
    assert ended["values"]["count"] == 7
