"""Remembered approvals on a real server: which calls run unasked, and when a person is asked again."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from scripted_agents import Script, desk, told
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Agent, Graph, Principal, Remember, load, tool, views
from abeyance.client.grants import GrantedCalls, Grants
from abeyance.client.records import Records
from abeyance.core.approvals import Wanted
from abeyance.records.database import Database
from abeyance.token_file import add_token, revoke_tokens

ADA = Principal(subject="ada", capabilities=("pay",))
OPERATOR = Principal(subject="olga", capabilities=("runs:control",))
WEEK = Remember(most="7d", where=["run", "graph"], below={"amount": 200})
CLERK = "graph:desk;node:clerk;agent:clerk"


class Purse:
    """A graph whose agent pays once in a run, and whose approvals may be remembered."""

    def __init__(self, *, remember: Remember = WEEK, **options: Any) -> None:
        self.paid: list[str] = []
        self.remember = remember
        self.options = options

    def graph(self, model: Any = None, prompt: str | None = None) -> Graph:
        purse = self

        @tool(
            approve=True,
            requested_capability="pay",
            remember=self.remember,
            prompt=prompt,
            **self.options,
        )
        async def pay(amount: int) -> str:
            return await purse.pay(amount)

        model = Script([("pay", {"amount": 5})], told) if model is None else model
        return desk(Agent("clerk", model=model, tools=[pay]))

    async def pay(self, amount: int) -> str:
        self.paid.append(f"paid {amount}")
        return self.paid[-1]


async def remembered(site: Site, where: str = "graph", **more: Any) -> str:
    """Have Ada's yes remembered in a new run, wait for the end of the run, and return its id."""
    run_id = await site.start()
    question = await site.asked(run_id)
    answer = {"approved": True, "remember": {"for": "8h", "where": where, **more}}
    await site.client.run(run_id).respond(question.id, answer, principal=ADA)
    await site.ended(run_id)
    return run_id


async def settled(site: Site) -> views.RunView:
    """Start a run, and return its view once it has ended or asks somebody."""
    return await site.until(await site.start(), "completed", "awaiting-input")


async def test_the_next_runs_are_not_asked_until_the_grant_is_revoked(
    temporal: TemporalClient,
) -> None:
    purse = Purse()
    site = Site(temporal, purse.graph())
    async with site.worker():
        first = await remembered(site)
        (grant,) = await site.client.grants.list(ADA)
        second = await settled(site)
        assert (second.status, len(purse.paid)) == ("completed", 2)
        assert await site.events(second.run_id, "interrupt.opened") == []
        (event,) = await site.events(second.run_id, "approval.granted")
        approval = {"grant": grant.id, "by": "ada"}
        assert event == {**approval, "approval": approval, "tool": "pay", "call": "1.1"}
        transcript = await site.client.run(second.run_id).transcript(CLERK)
        (item,) = [each for each in transcript if each.role == "tool"]
        assert item.approval == approval
        audit = (await site.client.run(second.run_id).audit()).splitlines()
        (line,) = [each for each in map(json.loads, audit) if each["type"] == "approval.granted"]
        assert (line["actor"], line["data"]["approval"]) == ("ada", approval)

        (used,) = await site.client.grants.list(OPERATOR)
        assert [(use.run_id, use.call) for use in used.used] == [
            (second.run_id, f"{CLERK};tool:pay:1.1")
        ]
        await site.client.grants.revoke(grant.id, principal=ADA)
        assert await site.client.grants.list(OPERATOR) == []
        assert (await settled(site)).status == "awaiting-input"
        for run_id in (first, second.run_id):
            await site.replays(run_id)


async def test_a_grant_that_is_revoked_before_the_call_runs_covers_it_no_more(
    temporal: TemporalClient,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def turn(messages: list[ModelMessage]) -> list[tuple[str, dict[str, int]]]:
        begun.set()
        assert go_on.wait(30)
        return [("pay", {"amount": 5})]

    purse = Purse()
    site = Site(temporal, purse.graph())
    async with site.worker():
        await remembered(site)
    async with site.worker(purse.graph(Script(turn, told))):
        run_id = await site.start()
        await eventually(begun.is_set)
        run = site.client.run(run_id)
        await run.pause()
        await site.until(run_id, "paused")
        go_on.set()

        async def is_decided() -> bool:
            return bool(await site.events(run_id, "model.turn"))

        await eventually(is_decided)
        (grant,) = await site.client.grants.list(ADA)
        await site.client.grants.revoke(grant.id, principal=OPERATOR)
        await run.resume()
        view = await site.until(run_id, "awaiting-input")
        (question,) = view.interrupts
        assert (question.kind, len(purse.paid)) == ("approval", 1)
        await run.respond(question.id, {"approved": True}, principal=ADA)
        await site.ended(run_id)

    assert len(purse.paid) == 2
    assert await site.events(run_id, "approval.granted") == []


YAML = """
id: shop
state: {question: str, answer: str}
nodes:
  - id: desk
    kind: graph
    config: {graph: "purses:desk", input: {question: question}, output: {answer: report}}
"""


async def test_a_yes_is_remembered_for_the_tools_behind_a_graph_in_yaml(
    temporal: TemporalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purse, purses = Purse(), ModuleType("purses")
    monkeypatch.setitem(vars(purses), "desk", purse.graph())
    monkeypatch.setitem(sys.modules, "purses", purses)
    file = tmp_path / "shop.yaml"
    file.write_text(YAML)
    site = Site(temporal, load(file))
    async with site.worker():
        await remembered(site)
        second = await settled(site)
        (grant,) = await site.client.grants.list(ADA)

    assert (second.status, len(purse.paid)) == ("completed", 2)
    assert (grant.graph, [each.run_id for each in grant.used]) == ("shop", [second.run_id])


async def test_a_grant_covers_nothing_while_its_maker_could_not_make_it(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    add_token(tokens, "ada", ["runs:respond", "pay"])
    add_token(tokens, "bob", ["pay"])
    site = Site(temporal, Purse().graph())
    site.settings = site.settings.model_copy(update={"tokens_file": tokens})
    grants = Grants(site.client.records, tokens)

    async def seen() -> tuple[str, str]:
        """Return the statuses of a new run, and of the grant in lists."""
        run = await settled(site)
        (grant,) = await grants.list(OPERATOR, status="all")
        assert len(await grants.list(ADA)) == (grant.status == "standing")
        return run.status, grant.status

    async with site.worker():
        await remembered(site)
        assert await seen() == ("completed", "standing")
        revoke_tokens(tokens, "ada")
        add_token(tokens, "ada", ["runs:respond"])
        assert await seen() == ("awaiting-input", "void")
        add_token(tokens, "ada", ["pay"])
        assert await seen() == ("completed", "standing")
        revoke_tokens(tokens, "ada")
        add_token(tokens, "ada", ["pay"], reads={"team": ["finance"]})
        assert await seen() == ("awaiting-input", "void")
        add_token(tokens, "ada", ["pay"])
        assert await seen() == ("completed", "standing")
        tokens.write_text("nothing that can be read")
        # A person is asked, and nobody knows whether the grant is void.
        assert await seen() == ("awaiting-input", "standing")


async def test_a_person_is_asked_while_the_database_is_away(
    temporal: TemporalClient, tmp_path: Path
) -> None:
    (tmp_path / "records.db").mkdir()
    database = Database(f"sqlite:///{tmp_path / 'records.db'}")
    calls = GrantedCalls(Records(temporal, "queue", database), None)
    wanted = Wanted(
        tool="pay", declaration="d", graph="desk", run_id="r", origin="o", call="c", arguments={}
    )
    assert [await calls.find(wanted, takes=takes) for takes in (False, True)] == [None, None]
