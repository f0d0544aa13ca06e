"""A caller bound to labels sees only the runs that have them, as if there were no others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from stack import Api, app_for, new_id, openapi_document, problem, served
from temporal_site import Site, eventually

from abeyance.token_file import add_token

ALL = ["runs:start", "runs:read", "runs:control", "runs:respond", "runs:steer", "admin"]
CONVERSATION = new_id("chat")
_BODIES: dict[str, dict[str, Any]] = {
    "respond": {"response": {"approved": True}},
    "steer": {"text": "x"},
    "messages": {"text": "x"},
    "pause-and-send": {"text": "x"},
    "values": {"patch": {"approved": True}, "version": 0},
}


class Office:
    """An API with callers bound to finance and to legal, and others who see all runs."""

    def __init__(self, api: Api, tokens: dict[str, str]) -> None:
        self.api = api
        self._tokens = tokens

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._tokens[who]}", "X-Abeyance-Request": "1"}
        return await self.api.http.request(method, path, json=body, headers=headers)

    async def start(self, who: str, **fields: Any) -> httpx.Response:
        body = {"graph": "gated", "input": {}, "run_id": new_id(), **fields}
        return await self.ask(who, "POST", "/runs", body)

    async def waiting(self, who: str, **fields: Any) -> tuple[str, str]:
        """Start a run, and return the ids of the run and of its question."""
        run_id = (await self.start(who, **fields)).json()["run_id"]
        query = "wait=30s&until=awaiting-input"
        view = (await self.ask("olga", "GET", f"/runs/{run_id}?{query}")).json()
        return run_id, view["interrupts"][0]["id"]


@pytest_asyncio.fixture(scope="module")
async def office(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    file = tmp_path_factory.mktemp("rights") / "tokens.json"
    tokens = {
        "fay": add_token(file, "fay", ALL, reads={"team": ["finance"]}),
        "leo": add_token(file, "leo", ALL, reads={"team": ["legal", "le'gal"], "region": ["eu"]}),
        "pia": add_token(file, "pia", [*ALL, "refunds:approve"], reads={"team": ["finance"]}),
        "dan": add_token(file, "dan", ALL),
        "olga": add_token(file, "olga", ALL),
    }
    async with served(app_for(site, tokens_file=file)) as api:
        yield Office(api, tokens)


@pytest_asyncio.fixture(scope="module")
async def of_finance(office: Office) -> tuple[str, str]:
    return await office.waiting("fay", conversation_id=CONVERSATION)


async def test_a_run_of_others_is_one_that_does_not_exist(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, gate = of_finance
    nobodys = new_id()

    async def call(method: str, path: str, run_id: str, gate: str) -> dict[str, Any]:
        body = None if method in ("get", "delete") else _BODIES.get(path.rpartition("/")[2], {})
        there = path.replace("{run_id}", run_id).replace("{interrupt_id}", gate)
        found = problem(await office.ask("leo", method.upper(), there, body), 404, "unknown_run")
        return {**found, "detail": found["detail"].replace(run_id, "R"), "run_id": "R"}

    calls = [
        (method, path)
        for path, methods in openapi_document()["paths"].items()
        for method in methods
        if re.search(r"\{(run_id|interrupt_id)\}", path)
    ]
    assert len(calls) > 20
    for each in calls:
        hidden = await call(*each, run_id, gate)
        assert hidden == await call(*each, nobodys, f"{nobodys}.{'0' * 16}"), each
    assert (await office.ask("fay", "GET", f"/interrupts/{gate}")).json()["status"] == "open"


async def test_a_list_and_the_inbox_have_the_runs_that_one_may_see(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, gate = of_finance
    legal, asked = await office.waiting("leo", labels={"team": "legal"})

    async def listed(who: str, path: str, field: str, *, most: int = 1_000) -> set[str]:
        # The server also has runs and questions of other tests.
        path += f"{'&' if '?' in path else '?'}limit={most}"
        items = (await office.ask(who, "GET", path)).json()["items"]
        return {item[field] for item in items} & {run_id, legal, gate, asked}

    async def is_listed() -> bool:
        # A slow database has the question a moment after the run waits.
        found = await listed("olga", "/interrupts", "id")
        return found == {gate, asked} and await listed("olga", "/runs", "run_id") == {run_id, legal}

    await eventually(is_listed)
    assert await listed("fay", "/runs", "run_id", most=1) == {run_id}
    assert await listed("leo", "/runs", "run_id") == {legal}
    assert await listed("leo", "/runs?label=team%3Dfinance", "run_id") == set()
    assert await listed("fay", "/interrupts", "id") == {gate}
    assert await listed("leo", "/interrupts", "id") == {asked}
    assert await listed("olga", "/interrupts", "id") == {gate, asked}
    # Events of other tests come first.
    began = (await office.ask("olga", "GET", f"/runs/{run_id}")).json()["created_at"]
    events = f"/events?since={began}"
    assert await listed("fay", events, "run_id") == {run_id}
    assert await listed("leo", events, "run_id") == {legal}
    assert await listed("olga", events, "run_id") == {run_id, legal}


async def test_lists_do_not_name_runs_of_others(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, _ = of_finance
    paths = [path for path, calls in openapi_document()["paths"].items() if "get" in calls]
    lists = [path for path in paths if "{" not in path]

    async def is_listed() -> bool:
        answers = [await office.ask("fay", "GET", path) for path in ("/runs", "/interrupts")]
        return all(run_id in answer.text for answer in answers)

    await eventually(is_listed)
    for path in lists:
        assert run_id not in (await office.ask("leo", "GET", path)).text, path


async def test_a_batch_reaches_the_runs_that_one_may_see(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, _ = of_finance
    named = await office.ask("leo", "POST", "/batch/cancel", {"run_ids": [run_id]})
    found = await office.ask("leo", "POST", "/batch/cancel", {"filter": {"graph": "gated"}})

    (one,) = named.json()["results"]
    assert (one["ok"], one["code"]) == (False, "unknown_run")
    assert run_id not in [each["run_id"] for each in found.json()["results"]]
    assert (await office.ask("fay", "GET", f"/runs/{run_id}")).json()["status"] == "awaiting-input"


async def test_a_conversation_has_the_runs_that_one_may_see(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, _ = of_finance
    there = f"/conversations/{CONVERSATION}"
    for call in ("interrupt", "pause", "resume"):
        reached = await office.ask("leo", "POST", f"{there}/{call}", {})
        assert reached.json() == {"count": 0, "runs": []}
    steered = await office.ask("leo", "POST", f"{there}/steer", {"text": "x"})
    problem(steered, 404, "no_active_run")
    labels = {"team": "legal"}
    busy = await office.start("leo", conversation_id=CONVERSATION, labels=labels)
    assert run_id not in str(problem(busy, 409, "conversation_busy"))
    busy = await office.start("fay", conversation_id=CONVERSATION)
    assert run_id in problem(busy, 409, "conversation_busy")["runs"]


async def test_a_retry_says_nothing_of_a_run_of_others_in_the_conversation(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, _ = of_finance
    fields = {"conversation_id": CONVERSATION, "labels": {"team": "legal"}}
    mine, _ = await office.waiting("leo", allow_concurrent=True, **fields)
    await office.ask("leo", "POST", f"/runs/{mine}/cancel?wait=30s", {})
    # The run was started beside others, so its retry is allowed beside them.
    retried = await office.ask("leo", "POST", f"/runs/{mine}/retry", {})
    await office.ask("leo", "POST", f"/runs/{mine}/cancel?wait=30s", {})

    assert retried.status_code == 200, retried.text
    assert run_id not in retried.text


async def test_a_run_gets_the_labels_of_who_starts_it_and_no_others(office: Office) -> None:
    filled = (await office.start("fay", labels={"x": "y"})).json()
    chosen = (await office.start("leo", labels={"team": "le'gal"})).json()

    assert filled["labels"] == {"x": "y", "team": "finance"}
    assert chosen["labels"] == {"team": "le'gal", "region": "eu"}
    for labels in ({}, {"team": "finance"}, {"team": "legal", "region": "us"}):
        refused = problem(await office.start("leo", labels=labels), 403, "outside_reads")
        assert refused["reads"] == {"team": ["le'gal", "legal"], "region": ["eu"]}


async def test_a_delegation_counts_for_the_runs_that_its_maker_may_see(office: Office) -> None:
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    made = await office.ask("pia", "POST", "/delegations", {"to": "dan", "until": until})
    assert made.status_code == 201
    (_, own), (_, foreign) = [
        await office.waiting("olga", graph="capable", labels={"team": team})
        for team in ("finance", "legal")
    ]
    yes = {"response": {"approved": True}}

    for path, body in (
        ("respond", yes),
        ("claim", {}),
        ("respond", {**yes, "on_behalf_of": "pia"}),
    ):
        refused = await office.ask("dan", "POST", f"/interrupts/{foreign}/{path}", body)
        code = "not_assigned" if "on_behalf_of" in body else "capability_required"
        problem(refused, 403, code)
    asked = (await office.ask("dan", "GET", "/interrupts?graph=capable")).json()["items"]
    may = {each["id"]: each["may_answer"] for each in asked}
    assert (may[own], may[foreign]) == (True, False)
    (receipt,) = (await office.ask("dan", "POST", f"/interrupts/{own}/respond", yes)).json()[
        "receipts"
    ]
    assert (receipt["answered_by"], receipt["on_behalf_of"]) == ("dan", "pia")


async def test_a_taken_run_id_of_others_tells_nothing_about_that_run(
    office: Office, of_finance: tuple[str, str]
) -> None:
    run_id, gate = of_finance
    attempts = [
        await office.start("leo", run_id=run_id, labels={"team": "legal"}, reuse=reuse)
        for reuse in (False, True)
    ]

    for attempt in attempts:
        refused = problem(attempt, 409, "run_exists")
        assert refused["run_id"] == run_id
        assert "run_status" not in refused
    assert (await office.ask("fay", "GET", f"/interrupts/{gate}")).json()["status"] == "open"


async def test_operations_on_all_runs_require_the_right_to_see_all(office: Office) -> None:
    refused = await office.ask("leo", "POST", "/admin/evict", {"keep": 1_000_000})
    done = await office.ask("olga", "POST", "/admin/evict", {"keep": 1_000_000})

    assert problem(refused, 403, "outside_reads")["reads"]["region"] == ["eu"]
    assert done.json() == {"evicted": 0, "runs": []}
