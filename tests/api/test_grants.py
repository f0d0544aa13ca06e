"""Remembered approvals over HTTP, in the Python client and in the terminal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from command_line import called
from scripted_agents import Script, desk, told
from stack import Api, app_for, new_id, problem, served
from temporal_site import Site
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Principal, Remember, commands, tool
from abeyance.api.auth import Credentials
from abeyance.api.rights import vouched
from abeyance.http import HttpClient
from abeyance.notifications.links import PersonalLink
from abeyance.token_file import add_token

PAY = "pay"
HOURS = {"for": "8h", "where": "graph"}
WEEK = Remember(most="7d", where=["run", "graph"], same=["to"], below={"amount": 200})


@tool(approve=True, requested_capability=PAY, remember=WEEK, assignees=["linda"])
async def pay(amount: int, to: str) -> str:
    return f"paid {amount} to {to}"


def payments() -> Any:
    model = Script([("pay", {"amount": 5, "to": "bob"})], told)
    return desk(Agent("clerk", model=model, tools=[pay]))


@pytest_asyncio.fixture(scope="module")
async def site(temporal: TemporalClient) -> AsyncIterator[Site]:
    site = Site(temporal, payments())
    async with site.worker():
        yield site


@pytest_asyncio.fixture(scope="module")
async def api(site: Site) -> AsyncIterator[Api]:
    async with served(app_for(site)) as api:
        yield api


def headers(who: str, *capabilities: str) -> dict[str, str]:
    return {
        "X-Abeyance-Principal": who,
        "X-Abeyance-Capabilities": ",".join(capabilities),
        "X-Abeyance-Request": "1",
    }


async def asking(api: Api) -> str:
    """Revoke all grants, start a run, and return the id of its question."""
    for each in (await api.http.get("/grants")).json()["items"]:
        await api.http.delete(f"/grants/{each['id']}", headers={"X-Abeyance-Request": "1"})
    _, (id_,) = await api.waiting("desk")
    return id_


async def answer(
    api: Api, id_: str, who: str, remember: Any = HOURS, *capabilities: str, **sent: str
) -> httpx.Response:
    body = {"response": {"approved": True, "remember": remember}}
    given = sent or headers(who, "runs:respond", *(capabilities or [PAY]))
    return await api.http.post(f"/interrupts/{id_}/respond", json=body, headers=given)


async def test_a_yes_is_remembered_listed_used_and_revoked(api: Api) -> None:
    ada, bob = f"ada-{new_id()}", f"bob-{new_id()}"
    id_ = await asking(api)
    assert (await api.interrupt(id_))["remember"] == {
        "most": 604_800.0,
        "where": ["run", "graph"],
        "same": ["to"],
        "below": {"amount": 200.0},
    }
    assert (await answer(api, id_, ada, {**HOURS, "uses": 20})).status_code == 200
    (grant,) = (await api.http.get("/grants", headers=headers(ada, "runs:respond"))).json()["items"]
    shown = {name: grant[name] for name in ("tool", "graph", "run_id", "by", "same", "below")}
    assert shown == {
        "tool": "pay",
        "graph": "desk",
        "run_id": None,
        "by": ada,
        "same": {"to": "bob"},
        "below": {"amount": 200.0},
    }
    assert (grant["uses"], grant["used"]) == (20, [])

    run_id = await api.start("desk", {})
    view = await api.until(run_id, "completed", "awaiting-input")
    assert (view["status"], view["values"]["report"]) == (
        "completed",
        "pay: success: paid 5 to bob",
    )
    async with HttpClient(api.url) as http:
        (listed,) = await http.grants.list()
        assert [use.run_id for use in listed.used] == [run_id]
    path = f"/grants/{grant['id']}"
    others = await api.http.get("/grants", headers=headers(bob, "runs:respond"))
    assert others.json()["items"] == []
    problem(await api.http.get("/grants", headers=headers(bob)), 403, "capability_required")
    refused = await api.http.delete(path, headers=headers(bob, "runs:respond"))
    problem(refused, 403, "capability_required")
    for _ in range(2):
        revoked = await api.http.delete(path, headers=headers(ada, "runs:respond"))
        assert (revoked.status_code, revoked.json()["id"]) == (200, grant["id"])
        assert revoked.json()["revoked_by"] == ada
    assert (await api.http.get("/grants")).json()["items"] == []
    every = (await api.http.get("/grants", params={"status": "all"})).json()["items"]
    assert {each["id"]: each["status"] for each in every}[grant["id"]] == "revoked"
    async with HttpClient(api.url) as http:
        assert revoked.json() in [
            each.model_dump(mode="json") for each in await http.grants.list(status="all")
        ]
    lines = (await api.http.get(f"/runs/{id_.rpartition('.')[0]}/audit")).text.splitlines()
    *_, line, _ = map(json.loads, lines)
    assert (line["type"], line["actor"], line["data"]["grant"]) == (
        "approval.revoked",
        ada,
        grant["id"],
    )
    assert line["time"][:19] == revoked.json()["revoked_at"][:19]
    await api.waiting("desk")
    unknown = await api.http.delete("/grants/unknown", headers=headers("olga", "runs:control"))
    problem(unknown, 404, "not_found")


async def test_the_terminal_remembers_lists_and_revokes(api: Api) -> None:
    id_ = await asking(api)
    ada = {"ABEYANCE_URL": api.url}
    code, _, err = await called("--as", "ada", "respond", id_, "--remember", "8h", **ada)
    assert (code, "--remember needs an approval" in err) == (2, True)
    code, _, err = await called("--as", "ada", "respond", id_, "--approve", "--uses", "2", **ada)
    assert (code, "add --remember" in err) == (2, True)
    # Without tokens a caller has `*`, and an approval by `*` is not remembered.
    options = ("--approve", "--remember", "8h", "--where", "graph", "--uses", "20")
    code, _, err = await called("--as", "ada", "respond", id_, *options, **ada)
    assert (code, "not_rememberable" in err) == (3, True)
    assert (await answer(api, id_, "ada", {**HOURS, "uses": 20})).is_success
    code, out, _ = await called("grants", **ada)
    assert (code, "pay of desk, in every run" in out, "0 of 20 calls" in out) == (0, True, True)
    assert 'if to = "bob", amount < 200' in out
    (grant,) = (await api.http.get("/grants")).json()["items"]
    code, out, _ = await called("grants", "revoke", grant["id"], **ada)
    assert (code, grant["id"] in out, "by local" in out) == (0, True, True)
    code, out, _ = await called("grants", **ada)
    assert (code, "none" in out) == (0, True)
    code, out, _ = await called("grants", "--all", **ada)
    assert (code, grant["id"] in out, "by local" in out) == (0, True, True)


@pytest.mark.parametrize(("hours", "least"), [(1, 24), (48, 48)])
def test_a_grant_with_an_issued_token_ends_with_it_or_after_a_day(hours: int, least: int) -> None:
    ada = Principal(subject="ada", capabilities=(PAY,))
    ends = datetime.now(UTC) + timedelta(hours=hours)
    issued = Credentials(principal=ada, issuer="i", expires_at=ends.timestamp())
    answers = {"response": {"approved": True, "remember": HOURS}, "principal": ada}
    until = vouched(commands.Respond(**answers), issued).vouched_until
    assert until is not None
    assert abs(until - datetime.now(UTC) - timedelta(hours=least)) < timedelta(minutes=1)
    # A worker can look up the maker in a file of tokens, so the grant needs no bound.
    assert vouched(commands.Respond(**answers), Credentials(principal=ada)).vouched_until is None


async def test_a_caller_bound_to_labels_can_remember_for_one_run_only(
    site: Site, api: Api, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    secret = add_token(tokens, "ben", ["runs:respond", PAY], reads={"team": ["finance"]})
    async with served(app_for(site, tokens_file=tokens)) as guarded:
        own = {"for": "8h", "where": "run"}
        assert (await answer(api, await asking(api), "ada", own)).is_success
        (others,) = (await api.http.get("/grants")).json()["items"]
        _, (id_,) = await api.waiting("desk", labels={"team": "finance"})
        bound = {"Authorization": f"Bearer {secret}"}
        refused = await answer(guarded, id_, "ben", HOURS, **bound)
        problem(refused, 422, "grant_too_wide")
        assert (await answer(guarded, id_, "ben", own, **bound)).is_success
        hidden = await guarded.http.delete(
            f"/grants/{others['id']}", headers={**bound, "X-Abeyance-Request": "1"}
        )
        problem(hidden, 404, "not_found")


async def test_a_personal_link_answers_its_question_and_remembers_nothing(
    site: Site, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = b"k" * 40
    monkeypatch.setenv("LINK_KEY", key.decode())
    file = tmp_path / "notifications.yaml"
    file.write_text(
        'links: {base: "https://abeyance.example.com", key_env: LINK_KEY}\n'
        "people: {linda: {capabilities: [pay]}}\n",
        encoding="utf-8",
    )
    question = await api.interrupt(await asking(api))
    token = PersonalLink.of(question, "linda", now=datetime.now(UTC)).token(key)
    async with served(app_for(site, notifications=file)) as linked:
        yes = {"approved": True, "remember": HOURS}
        refused = await linked.http.post(f"/links/{token}", json={"response": yes})
        problem(refused, 422, "not_rememberable")
        plain = await linked.http.post(f"/links/{token}", json={"response": {"approved": True}})

    assert plain.is_success
    assert (await api.http.get("/grants")).json()["items"] == []
