"""Who may answer over HTTP: assignees, four eyes, claims, delegations, and what lists say of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import httpx
from command_line import called
from stack import Api, new_id, problem
from temporal_site import eventually

from abeyance.authoring.terms import calendar_of
from abeyance.core.deadlines import moment
from abeyance.core.json import rfc3339
from abeyance.core.terms import BusinessTime
from abeyance.http import HttpClient

PAY = "refunds:approve"
YES = {"response": {"approved": True}}


def headers(
    who: str, *capabilities: str, groups: str = "", key: str | None = None
) -> dict[str, str]:
    made = {
        "X-Abeyance-Principal": who,
        "X-Abeyance-Capabilities": ",".join(("runs:respond", *capabilities)),
        "X-Abeyance-Groups": groups,
        "X-Abeyance-Request": "1",
    }
    return made if key is None else {**made, "Idempotency-Key": key}


async def post(
    api: Api, path: str, who: str, *capabilities: str, body: Any = None, groups: str = ""
) -> httpx.Response:
    sent = headers(who, *capabilities, groups=groups)
    return await api.http.post(path, json=body or {}, headers=sent)


async def answer(api: Api, id_: str, who: str, *capabilities: str, **more: Any) -> httpx.Response:
    return await post(api, f"/interrupts/{id_}/respond", who, *capabilities, body={**YES, **more})


async def events_of(api: Api, run_id: str) -> list[dict[str, Any]]:
    page = (await api.http.get(f"/runs/{run_id}/events")).json()
    events: list[dict[str, Any]] = page["items"]
    return events


async def asking(api: Api, graph: str = "assigned") -> tuple[str, str]:
    run_id, (id_,) = await api.waiting(graph, {"amount": 3})
    return run_id, id_


async def test_a_question_is_only_for_its_assignees_and_says_so_to_others(api: Api) -> None:
    _, id_ = await asking(api)
    refused = problem(await answer(api, id_, "root", "*"), 403, "not_assigned")
    assert refused["assignees"] == ["ada", "group:finance"]

    seen = (await api.http.get(f"/interrupts/{id_}", headers=headers("root", "*"))).json()
    assert (seen["may_answer"], seen["why_not"]["code"]) == (False, "not_assigned")
    assert "only for" in seen["why_not"]["detail"]
    may = headers("carl", "runs:read", groups="finance")
    assert (await api.http.get(f"/interrupts/{id_}", headers=may)).json()["may_answer"] is True
    nobody = {"X-Abeyance-Principal": "ada", "X-Abeyance-Capabilities": "runs:read"}
    seen = (await api.http.get(f"/interrupts/{id_}", headers=nobody)).json()
    assert (seen["may_answer"], seen["why_not"]["code"]) == (False, "capability_required")

    receipt = await api.http.post(
        f"/interrupts/{id_}/respond", json=YES, headers=headers("carl", groups="finance")
    )
    assert receipt.json()["receipts"][0]["answered_by"] == "carl"


async def test_business_time_is_shown_as_the_moments_that_it_leads_to(api: Api) -> None:
    def after(start: datetime, amount: int, unit: Literal["bd", "bh"]) -> datetime:
        return moment(start, BusinessTime(amount, unit), calendar_of("DE"))

    run_id, id_ = await asking(api, "dated")
    async with HttpClient(api.url) as client:
        (shown,) = await client.run(run_id).interrupts()
        assert shown.deadline == after(shown.created_at, 2, "bd")
        reminders = [after(shown.created_at, 3, "bh"), after(shown.deadline, -1, "bd")]
        # On a weekend the one before the deadline comes first.
        assert shown.reminders == sorted(reminders)
        _, out, _ = await called("show", run_id, ABEYANCE_URL=api.url)
        assert f"until {rfc3339(shown.deadline)}" in out
        assert f"reminders at {', '.join(map(rfc3339, shown.reminders))}" in out

        code, _, _ = await called("deadline", id_, "5bd", ABEYANCE_URL=api.url)
        moved = await client.run(run_id).interrupt(id_)
        assert moved is not None
        edited = (await events_of(api, run_id))[-1]
    assert (code, edited["type"]) == (0, "interrupt.deadline_edited")
    assert moved.deadline == after(datetime.fromisoformat(edited["time"]), 5, "bd")


async def test_who_started_the_run_may_not_answer(api: Api) -> None:
    run_id = new_id()
    body = {"graph": "other-eyes", "run_id": run_id, "input": {"amount": 3}}
    started = await api.http.post("/runs", json=body, headers=headers("ada", "*"))
    assert started.status_code == 201
    (entry,) = (await api.until(run_id, "awaiting-input"))["interrupts"]
    assert entry["barred"] == {"ada": "@starter"}
    problem(await answer(api, entry["id"], "ada", "*"), 403, "separation_of_duties")
    assert (await answer(api, entry["id"], "bob")).status_code == 200


async def test_whom_the_start_names_may_not_answer_and_nobody_names_another(api: Api) -> None:
    run_id = new_id()
    body = {"graph": "named-people", "run_id": run_id, "input": {"requester": "carol"}}
    assert (await api.http.post("/runs", json=body)).status_code == 201
    view = await api.until(run_id, "awaiting-input")
    (entry,) = view["interrupts"]
    assert (entry["not_by"], entry["barred"]) == (["{requester}"], {"carol": "{requester}"})
    edit = {"patch": {"amount": 3, "requester": "eve"}, "version": view["version"]}
    refused = problem(
        await api.http.patch(f"/runs/{run_id}/values", json=edit), 422, "read_only_field"
    )
    assert [each["pointer"] for each in refused["errors"]] == ["/requester"]
    barred = problem(await answer(api, entry["id"], "carol", "*"), 403, "separation_of_duties")
    assert "'carol' is the 'requester' of the run" in barred["detail"]
    assert (await answer(api, entry["id"], "bob")).status_code == 200


async def test_a_claim_keeps_a_question_for_one_person_until_it_is_released(api: Api) -> None:
    run_id, id_ = await asking(api, "claimed")
    taken = await post(api, f"/interrupts/{id_}/claim", "ada", "runs:read", body={"for": "PT1H"})
    claim = taken.json()["claim"]
    assert (claim["by"], taken.json()["may_answer"]) == ("ada", True)
    lasts = datetime.fromisoformat(claim["until"]) - datetime.fromisoformat(claim["at"])
    assert lasts == timedelta(hours=1)
    late = problem(await answer(api, id_, "bob"), 409, "claimed")
    assert (late["claimed_by"], late["claimed_until"]) == ("ada", claim["until"])
    problem(await post(api, f"/interrupts/{id_}/claim", "bob"), 409, "claimed")
    listed = (
        await api.http.get("/interrupts?mine=true", headers=headers("ada", "runs:read"))
    ).json()
    assert id_ in [entry["id"] for entry in listed["items"]]

    problem(await post(api, f"/interrupts/{id_}/release", "bob"), 403, "capability_required")
    freed = await post(api, f"/interrupts/{id_}/release", "boss", "runs:control", "runs:read")
    assert freed.json()["claim"] is None
    moved = await post(
        api,
        f"/interrupts/{id_}/reassign",
        "boss",
        "runs:control",
        "runs:read",
        body={"to": ["bob"], "note": "please"},
    )
    assert moved.json()["assignees"] == ["bob"]
    assert (await answer(api, id_, "ada")).status_code == 200
    await api.until(run_id, "completed")
    problem(await post(api, f"/interrupts/{id_}/claim", "bob"), 404, "not_running")
    types = [event["type"] for event in await events_of(api, run_id)]
    assert [t for t in types if t in ("interrupt.claimed", "interrupt.released")] == [
        "interrupt.claimed",
        "interrupt.released",
    ]
    assert "interrupt.reassigned" in types


async def test_a_claim_is_a_day_at_most_and_a_vote_is_nobodys_alone(api: Api) -> None:
    _, id_ = await asking(api, "claimed")
    for wrong in ({"for": "P2D"}, {"for": 0}, {"on_behalf_of": " a"}):
        response = await post(api, f"/interrupts/{id_}/claim", "ada", body=wrong)
        problem(response, 422, "invalid_body")
    for to, pointer, said in (
        ([], "/to", "at least 1 item"),
        (["eve a"], "/to/0", "is neither a subject nor a group: write ada, or group:finance"),
        (["group:"], "/to/0", "is neither a subject nor a group"),
    ):
        response = await post(api, f"/interrupts/{id_}/reassign", "ada", body={"to": to})
        (fault,) = problem(response, 422, "invalid_body")["errors"]
        assert fault["pointer"] == pointer
        assert said in fault["message"]
    _, voted = await asking(api, "voted")
    problem(await post(api, f"/interrupts/{voted}/claim", "ada"), 409, "not_claimable")


def until(days: float = 1) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


async def test_who_votes_is_changed_together_with_whom_a_question_is_for(api: Api) -> None:
    _, id_ = await asking(api, "voted")
    path, body = f"/interrupts/{id_}/reassign", {"to": ["ada", "bob"], "votes": True}
    refused = problem(
        await post(api, path, "eve", body=body, groups="finance"), 403, "capability_required"
    )
    assert refused["capabilities"] == ["runs:control"]
    boss = ("boss", "runs:control", "runs:read")
    changed = (await post(api, path, *boss, body=body)).json()
    assert (changed["quorum"]["of"], changed["warnings"]) == (["ada", "bob"], [])

    again = (await post(api, path, *boss, body={"to": ["carol"]})).json()
    assert (again["assignees"], again["quorum"]["of"]) == (["carol"], ["ada", "bob"])
    assert "carol: no vote came with the question, which ada, bob decide" in again["warnings"][0]
    await called("reassign", id_, "carol", "ada", "--votes", ABEYANCE_URL=api.url)
    assert (await api.interrupt(id_))["quorum"]["of"] == ["carol", "ada"]


async def test_a_delegate_answers_in_the_place_of_who_delegated(api: Api) -> None:
    by, to = f"ada-{new_id()}", f"bob-{new_id()}"
    run_id, id_ = await asking(api, "capable")
    problem(await answer(api, id_, to), 403, "capability_required")
    made = await post(api, "/delegations", by, PAY, body={"to": to, "until": until()})
    assert made.status_code == 201
    assert (made.json()["by"], made.json()["capabilities"]) == (by, [PAY])

    seen = (await api.http.get(f"/interrupts/{id_}", headers=headers(to, "runs:read"))).json()
    assert (seen["may_answer"], seen["may_answer_for"]) == (True, [by])
    (receipt,) = (await answer(api, id_, to)).json()["receipts"]
    assert (receipt["answered_by"], receipt["on_behalf_of"]) == (to, by)
    (again,) = (await answer(api, id_, to)).json()["receipts"]
    assert (again["replayed"], again["on_behalf_of"]) == (True, by)
    (settled,) = (await api.http.get(f"/runs/{run_id}/interrupts?status=answered")).json()["items"]
    assert (settled["answered_by"], settled["on_behalf_of"]) == (to, by)
    (event,) = [e for e in await events_of(api, run_id) if e["type"] == "interrupt.answered"]
    assert (event["actor"], event["data"]["on_behalf_of"]) == (to, by)

    _, id_ = await asking(api, "capable")
    path = f"/delegations/{made.json()['id']}"
    refused = await api.http.delete(path, headers=headers(to))
    problem(refused, 403, "capability_required")
    assert (await api.http.delete(path, headers=headers(by))).status_code == 200
    problem(await api.http.delete(path, headers=headers(by)), 404, "unknown_delegation")
    problem(await answer(api, id_, to), 403, "capability_required")


async def test_who_may_answer_for_two_says_for_whom(api: Api) -> None:
    to = f"bob-{new_id()}"
    makers = [f"m{number}-{new_id()}" for number in range(2)]
    for by in makers:
        await post(api, "/delegations", by, PAY, body={"to": to, "until": until()})
    _, id_ = await asking(api, "capable")
    refused = problem(await answer(api, id_, to), 409, "ambiguous_delegation")
    assert refused["on_behalf_of"] == sorted(makers)
    assert (
        await post(api, f"/interrupts/{id_}/claim", to, body={"on_behalf_of": makers[1]})
    ).status_code == 200
    (receipt,) = (await answer(api, id_, to, on_behalf_of=makers[1])).json()["receipts"]
    assert receipt["on_behalf_of"] == makers[1]


async def test_what_cannot_be_delegated_is_refused(api: Api) -> None:
    body = {"to": "bob", "until": until()}
    for wrong, pointer in (
        ({"capabilities": ["*"]}, "/capabilities"),
        ({"capabilities": ["admin"]}, "/capabilities"),
        ({"capabilities": ["runs:respond"]}, "/capabilities"),
        ({"until": until(91)}, "/until"),
        ({"to": "root"}, "/to"),
    ):
        refused = await post(api, "/delegations", "root", "*", body={**body, **wrong})
        assert problem(refused, 422, "invalid_body")["errors"][0]["pointer"] == pointer
    lacking = await post(api, "/delegations", "ada", body={**body, "capabilities": [PAY]})
    assert problem(lacking, 403, "capability_required")["capabilities"] == [PAY]


async def test_a_delegation_is_made_once_under_one_key_and_listed_to_its_people(api: Api) -> None:
    by, to, key = f"ada-{new_id()}", f"bob-{new_id()}", new_id()
    body = {"to": to, "until": until(), "reason": "away"}
    made = [
        (await api.http.post("/delegations", json=body, headers=headers(by, PAY, key=key))).json()
        for _ in range(2)
    ]
    assert made[0] == made[1]
    other = await api.http.post(
        "/delegations", json={**body, "reason": "other"}, headers=headers(by, PAY, key=key)
    )
    problem(other, 409, "idempotency_conflict")
    for who, expected in ((by, made[:1]), (to, made[:1]), (f"c-{new_id()}", [])):
        listed = await api.http.get("/delegations", headers=headers(who))
        assert listed.json()["items"] == expected
    everybody = (await api.http.get("/delegations", headers=headers("boss", "admin"))).json()
    assert made[0] in everybody["items"]


async def test_the_same_delete_again_gets_the_first_receipt(api: Api) -> None:
    by, key = f"ada-{new_id()}", new_id()
    paths = []
    for to in ("bob", "carol"):
        made = await post(api, "/delegations", by, PAY, body={"to": to, "until": until()})
        paths.append(f"/delegations/{made.json()['id']}")
    first, again = [await api.http.delete(paths[0], headers=headers(by, key=key)) for _ in range(2)]
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    other = await api.http.delete(paths[1], headers=headers(by, key=key))
    problem(other, 409, "idempotency_conflict")
    elsewhere = await api.http.delete(paths[0], headers=headers("boss", "admin", key=key))
    problem(elsewhere, 404, "unknown_delegation")


async def test_the_inbox_is_filtered_by_people_and_urgency_and_sorted(api: Api) -> None:
    _, assigned = await asking(api)
    _, capable = await asking(api, "capable")

    async def listed(query: str, who: str = "carl", groups: str = "finance") -> list[str]:
        reader = headers(who, "runs:read", groups=groups)
        response = await api.http.get(f"/interrupts?limit=1000&{query}", headers=reader)
        ids = [entry["id"] for entry in response.json()["items"]]
        return [id_ for id_ in ids if id_ in (assigned, capable)]

    async def seen() -> bool:
        return len(await listed("")) == 2

    await eventually(seen)
    assert await listed("assignee=ada") == [assigned]
    assert await listed("group=finance") == [assigned]
    assert await listed("mine=true") == [assigned]
    assert await listed("mine=true", "dan", "") == []
    assert await listed("priority=high") == [assigned]
    assert await listed(f"id={assigned}&id=nobody.asked") == [assigned]
    assert await listed("min_risk=70") == [assigned]
    assert await listed("min_risk=71") == []
    assert await listed("order=priority") == [assigned, capable]
    assert await listed("order=risk") == [assigned, capable]
    assert await listed("order=age") == [assigned, capable]
