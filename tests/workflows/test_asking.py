"""Asking people from code: what ran is kept, and many items wait at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel
from temporal_site import ANYBODY, Site, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Refusal, Send, append
from abeyance.errors import Code


class State(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


class Account(BaseModel):
    iban: str


async def answer(site: Site, run_id: str, **answers: Any) -> None:
    """Answer the open interrupts of these names."""
    view = await site.client.run(run_id).view()
    named = {entry.name: entry.id for entry in view.interrupts}
    await site.client.run(run_id).respond(
        {named[name]: value for name, value in answers.items()}, principal=ANYBODY
    )


async def asks(site: Site, run_id: str, *names: str) -> dict[str, Any]:
    """The open interrupts by name, once these are."""

    async def found() -> dict[str, Any] | None:
        view = await site.client.run(run_id).view()
        here = {entry.name: entry for entry in view.interrupts}
        return here if here.keys() == set(names) else None

    named: dict[str, Any] = await eventually(found)
    return named


def asking(done: Counter[str]) -> Graph:
    graph = Graph("asking", state=State)

    def effect(name: str) -> str:
        done[name] += 1
        return f"{name} done"

    @graph.node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        first = await ctx.step("first", effect, "first")
        account = await ctx.interrupt(
            "account", prompt="Which account?", reason={"candidates": 2}, response=Account
        )
        second = await ctx.step("second", effect, "second")
        if done["failed"] == 0:
            done["failed"] += 1
            message = "once"
            raise ValueError(message)
        sure = await ctx.interrupt("sure", response=Literal["y", "n"], state={"seen": account.iban})
        kept = ctx.saved_state
        third = await ctx.step("third", effect, "third")
        ctx.emit("charged", {"iban": account.iban})
        return {"log": [first, account.iban, second, sure, str(kept), third]}

    graph.edge(START, "work")
    return graph


async def test_answers_re_enter_a_visit_and_finished_steps_are_not_run_again(
    temporal: TemporalClient,
) -> None:
    done: Counter[str] = Counter()
    site = Site(temporal, asking(done))
    async with site.worker():
        run_id = await site.start()
        opened = (await asks(site, run_id, "account"))["account"]
        with pytest.raises(Refusal) as refused:
            await answer(site, run_id, account={"iban": 7})
        await answer(site, run_id, account={"iban": "DE1"})
        await asks(site, run_id, "sure")
        await answer(site, run_id, sure="y")
        ended = await site.ended(run_id)

        assert opened.kind == "question"
        assert opened.reason == {"candidates": 2}
        assert refused.value.code == Code.INVALID_ANSWER
        assert refused.value.details["errors"][0]["pointer"] == "/iban"
        assert ended.status == "completed"
        seen = "{'seen': 'DE1'}"
        assert ended.values["log"] == ["first done", "DE1", "second done", "y", seen, "third done"]
        assert done == {"first": 1, "second": 1, "third": 1, "failed": 1}
        history = await site.history(run_id)
        types = Counter(event.event_type for event in history.events)
        # Once for the beginning, once for each answer, and once for the retry of the ValueError.
        assert types[EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED] == 4
        assert types[EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED] == 0
        await site.replays(run_id)


async def test_a_step_after_a_sign_of_life_survives_a_failure(temporal: TemporalClient) -> None:
    graph = Graph("slow", state=State)
    done: Counter[str] = Counter()

    @graph.node
    async def slow(state: State, ctx: Context) -> dict[str, Any]:
        await ctx.step("first", lambda: done.update(["first"]))
        # Longer than it takes until the visit says that it lives, with the journal as it is then.
        await asyncio.sleep(1.3)
        await ctx.step("second", lambda: done.update(["second"]))
        if ctx.attempt == 1:
            message = "once"
            raise ValueError(message)
        return {"log": ["done"]}

    graph.edge(START, "slow")
    site = Site(temporal, graph)
    async with site.worker():
        ended = await site.ended(await site.start())
        assert ended.status == "completed"
        assert done == {"first": 1, "second": 1}


def spread() -> Graph:
    graph = Graph("spread", state=State)

    @graph.node(to=["one"])
    async def split(state: State) -> list[Send]:
        return [Send("one", number) for number in range(state.count)]

    @graph.node
    async def one(state: State, ctx: Context) -> dict[str, Any]:
        said = await ctx.interrupt("ok", prompt=str(ctx.item))
        return {"log": [f"{ctx.item}:{said}"]}

    @graph.node
    async def collect(state: State, ctx: Context) -> dict[str, Any]:
        return {"count": sum(result["status"] == "arrived" for result in ctx.results)}

    graph.edge(START, "split")
    graph.edge(["one"], "collect")
    return graph


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_five_hundred_items_ask_and_are_answered_in_one_call(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, spread(), patience=60)
    async with site.worker():
        run_id = await site.start({"count": 500})

        async def all_open() -> Any:
            view = await site.client.run(run_id).view()
            return view if len(view.interrupts) == 500 else None

        waiting = await eventually(all_open, seconds=90)
        answers = {entry.id: "y" for entry in waiting.interrupts}
        receipts = await site.client.run(run_id).respond(answers, principal=ANYBODY)
        ended = await site.ended(run_id, seconds=90)
        assert len(receipts) == 500
        assert ended.values["log"] == [f"{number}:y" for number in range(500)]
        assert ended.values["count"] == 500
