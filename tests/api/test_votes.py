"""Votes over HTTP, and a yes that is held and taken back."""

from __future__ import annotations

import json
from typing import Any

import httpx
from stack import Api, new_id, problem
from temporal_site import eventually

YES = {"approved": True}


async def answer(api: Api, who: str, id_: str, value: Any) -> httpx.Response:
    headers = {"X-Abeyance-Principal": who}
    return await api.http.post(
        f"/interrupts/{id_}/respond", json={"response": value}, headers=headers
    )


async def take_back(
    api: Api, who: str, id_: str, body: Any = None, *, capabilities: str = "runs:respond"
) -> httpx.Response:
    headers = {"X-Abeyance-Principal": who, "X-Abeyance-Capabilities": capabilities}
    return await api.http.post(f"/interrupts/{id_}/take-back", json=body or {}, headers=headers)


async def test_two_people_approve_and_one_takes_their_yes_back(api: Api) -> None:
    run_id, (id_,) = await api.waiting("voted", {"amount": 3})
    first = (await answer(api, "ada", id_, YES)).json()["receipts"][0]
    asked = await api.interrupt(id_)

    assert (first["status"], first["missing"], first["replayed"]) == ("voted", 1, False)
    assert (asked["status"], asked["missing"], asked["quorum"]["count"]) == ("open", 1, 2)
    (vote,) = asked["votes"]
    assert (vote["by"], vote["on_behalf_of"], vote["answer"]) == ("ada", None, YES)
    again = (await answer(api, "ada", id_, YES)).json()["receipts"][0]
    assert again == {**first, "replayed": True}

    second = (await answer(api, "bob", id_, YES)).json()["receipts"][0]
    held = await api.interrupt(id_)
    assert (second["status"], second["held_until"]) == ("held", held["held_until"])
    assert (held["status"], held["answered_by"], held["deadline"]) == ("held", "bob", None)
    late = problem(await answer(api, "carol", id_, YES), 409, "already_answered")
    assert (late["answered_by"], late["held_until"]) == ("bob", held["held_until"])

    refused = await take_back(api, "carol", id_)
    assert problem(refused, 403, "capability_required")["capability"] == "runs:control"
    nothing = await take_back(api, "ada", id_, capabilities="runs:read")
    assert problem(nothing, 403, "capability_required")["capability"] == "runs:respond"
    taken = await take_back(api, "ada", id_, {"note": "too fast"})
    assert taken.json() == {"id": id_, "run_id": run_id, "status": "open"}
    assert [vote["by"] for vote in (await api.interrupt(id_))["votes"]] == ["bob"]
    problem(await take_back(api, "ada", id_), 409, "not_held")

    await answer(api, "carol", id_, {"approved": False})
    ended = await api.until(run_id, "completed")
    assert ended["values"]["log"] == ["before", "late"]
    (settled,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=answered")).json()["items"]
    assert [(vote["by"], vote["answer"]) for vote in settled["votes"]] == [
        ("bob", YES),
        ("carol", {"approved": False}),
    ]
    repeated = (await answer(api, "bob", id_, YES)).json()["receipts"][0]
    assert (repeated["replayed"], repeated["status"]) == (True, "answered")
    problem(await take_back(api, "ada", id_), 404, "not_running")


async def test_the_audit_has_the_answer_of_every_vote(api: Api) -> None:
    run_id, (id_,) = await api.waiting("voted")
    await answer(api, "ada", id_, YES)
    await answer(api, "bob", id_, {"approved": False})
    await api.until(run_id, "completed")
    lines = (await api.http.get(f"/runs/{run_id}/audit")).text.splitlines()
    voted = [each for each in map(json.loads, lines) if each["type"] == "interrupt.voted"]

    assert [(each["actor"], each["answer"]) for each in voted] == [
        ("ada", YES),
        ("bob", {"approved": False}),
    ]


async def test_a_list_shows_for_whom_a_question_is_and_how_many_votes_it_lacks(api: Api) -> None:
    talk = new_id("talk")
    _, (id_,) = await api.waiting("voted", conversation_id=talk, session_type="listed")
    await answer(api, "ada", id_, YES)
    shown = ("assignees", "priority", "risk", "quorum", "missing")
    whole = await api.interrupt(id_)

    async def is_listed() -> bool:
        listed = (await api.http.get(f"/interrupts?conversation_id={talk}")).json()["items"]
        return [{name: each[name] for name in shown} for each in listed] == [
            {name: whole[name] for name in shown}
        ]

    assert (whole["priority"], whole["quorum"]["count"], whole["missing"]) == ("high", 2, 1)
    await eventually(is_listed)


async def test_what_is_held_is_listed_as_held(api: Api) -> None:
    run_id, (id_,) = await api.waiting("held")
    await answer(api, "ada", id_, YES)

    async def listed(status: str) -> list[dict[str, Any]]:
        query = {"status": status, "graph": "held", "limit": "1000"}
        items = (await api.http.get("/interrupts", params=query)).json()["items"]
        return [entry for entry in items if entry["run_id"] == run_id]

    (entry,) = await eventually(lambda: listed("held"))
    shown = await api.interrupt(id_)
    assert (entry["status"], entry["held_until"]) == ("held", shown["held_until"])
    assert (entry["answered_by"], await listed("open")) == ("ada", [])
    assert (await api.http.get(f"/runs/{run_id}/interrupts")).json()["items"] == []


async def test_what_does_not_exist_cannot_be_taken_back(api: Api) -> None:
    run_id, _ = await api.waiting("held")

    problem(await take_back(api, "ada", f"{run_id}.{'0' * 16}"), 404, "unknown_interrupt")
    problem(await take_back(api, "ada", f"{new_id()}.{'0' * 16}"), 404, "unknown_run")
