"""Who may answer over HTTP: assignees, votes and delegations, and what the inbox says about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from command_line import called
from stack import Api, new_id, problem
from temporal_site import eventually

from abeyance.authoring.calendars import calendar_of
from abeyance.core.deadlines import moment
from abeyance.core.terms import BusinessTime

PAY = "refunds:approve"
YES = {"response": {"approved": True}}


def headers(who: str, *capabilities: str, groups: str = "") -> dict[str, str]:
    return {
        "X-Abeyance-Principal": who,
        "X-Abeyance-Capabilities": ",".join(("runs:respond", *capabilities)),
        "X-Abeyance-Groups": groups,
        "X-Abeyance-Request": "1",
    }


async def post(
    api: Api, path: str, who: str, *capabilities: str, body: Any = None, groups: str = ""
) -> httpx.Response:
    sent = headers(who, *capabilities, groups=groups)
    return await api.http.post(path, json=body or {}, headers=sent)


async def answer(api: Api, id_: str, who: str, *capabilities: str, **more: Any) -> httpx.Response:
    return await post(api, f"/interrupts/{id_}/respond", who, *capabilities, body={**YES, **more})


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
    _, id_ = await asking(api, "dated")
    shown = await api.interrupt(id_)
    asked, ends = (datetime.fromisoformat(shown[name]) for name in ("created_at", "deadline"))
    moved = await api.http.patch(f"/interrupts/{id_}", json={"timeout": "5bd"})

    assert ends == moment(asked, BusinessTime(2, "bd"), calendar_of("DE"))
    assert len(shown["reminders"]) == 2
    assert datetime.fromisoformat(moved.json()["deadline"]) > ends


def until(days: float = 1) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


async def test_a_reassignment_with_votes_changes_assignees_and_voters(api: Api) -> None:
    _, id_ = await asking(api, "voted")
    (receipt,) = (await answer(api, id_, "ada")).json()["receipts"]
    asked = await api.interrupt(id_)
    path, boss = f"/interrupts/{id_}/reassign", ("boss", "runs:control", "runs:read")
    body = {"to": ["ada", "bob"], "votes": True}
    changed = (await post(api, path, *boss, body=body)).json()
    again = (await post(api, path, *boss, body={"to": ["carol"]})).json()
    await called("reassign", id_, "carol", "ada", "--votes", ABEYANCE_URL=api.url)

    assert (receipt["status"], receipt["missing"]) == ("voted", 1)
    assert (asked["status"], asked["missing"], asked["quorum"]["count"]) == ("open", 1, 2)
    (vote,) = asked["votes"]
    assert (vote["by"], vote["on_behalf_of"], vote["answer"]) == ("ada", None, YES["response"])
    assert (changed["quorum"]["of"], changed["warnings"]) == (["ada", "bob"], [])
    assert "carol: no vote came with the question, which ada, bob decide" in again["warnings"][0]
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

    path = f"/delegations/{made.json()['id']}"
    refused = await api.http.delete(path, headers=headers(to))
    problem(refused, 403, "capability_required")
    for _ in range(2):
        deleted = await api.http.delete(path, headers=headers(by))
        assert (deleted.status_code, deleted.json()["id"]) == (200, made.json()["id"])


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
    assert await listed("assignee=group:finance") == [assigned]
    assert await listed("mine=true") == [assigned]
    assert await listed("mine=true", "dan", "") == []
    assert await listed("priority=high") == [assigned]
    assert await listed(f"id={assigned}&id=nobody.asked") == [assigned]
    assert await listed("min_risk=70") == [assigned]
    assert await listed("min_risk=71") == []
    assert await listed("order=priority") == [assigned, capable]
    assert await listed("order=risk") == [assigned, capable]
    assert await listed("order=age") == [assigned, capable]
