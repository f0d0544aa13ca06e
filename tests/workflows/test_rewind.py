"""A rewound run is as it was when a question was open, and its events since then are discarded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_graphs import payments
from changed_graphs import Payments
from sample_graphs import State, gated
from temporal_site import ANYBODY, Site, begun, eventually, refused
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, Principal
from abeyance.client import rewinds
from abeyance.core.state import Limits
from abeyance.errors import Code
from abeyance.records import questions as asked

APPROVER = Principal(subject="olga", capabilities=("runs:control", "runs:read", "pay"))


async def test_a_run_that_has_ended_waits_again_for_the_answer_and_goes_another_way(
    temporal: TemporalClient,
) -> None:
    async with begun(temporal, gated(capability="pay"), {"amount": 3}) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        assert (await site.ended(run.run_id)).values["log"] == [
            "before",
            "after {'approved': True}",
        ]
        numbers = [event.id for event in await site.recorded(run.run_id)]

        tried = await run.rewind(to=question.id, dry_run=True, principal=APPROVER)
        assert (await run.view()).status == "completed"
        done = await run.rewind(to=question.id, principal=APPROVER)

        again = await site.asked(run.run_id)
        assert again.id == question.id
        assert again.digest != question.digest
        assert (await run.view()).values["log"] == ["before"]
        types = [event.type for event in done.discards]
        assert types[0] == "interrupt.answered"
        assert types[-1] == "run.completed"
        assert [(each.node, each.attempts) for each in done.effects] == [("gated.after", 1)]
        assert (tried.discards, tried.effects) == (done.discards, done.effects)

        stale = run.respond(
            {again.id: {"approved": True}},
            principal=ANYBODY,
            digests={again.id: question.digest or ""},
        )
        assert (await refused(stale)).code is Code.STALE
        await run.respond(again.id, {"approved": False}, principal=ANYBODY)
        ended = await site.ended(run.run_id)

        assert (ended.status, ended.values["log"]) == ("completed", ["before", "late"])
        standing = await site.recorded(run.run_id)
        rewound = next(event for event in standing if event.type == "run.rewound")
        assert (rewound.actor, rewound.data["to"]) == ("olga", question.id)
        assert rewound.data["kept"] == int(done.discards[0].id) - 1
        assert int(rewound.id) == int(numbers[-1]) + 1
        assert len({event.id for event in standing}) == len(standing)
        assert [event.type for event in standing].count("run.completed") == 1
        # The audit has what was discarded, too.
        audited = [json.loads(line)["type"] for line in (await run.audit()).splitlines()]
        assert audited.count("interrupt.answered") == 2
        marked = [e for e in await site.recorded(run.run_id, discarded=True) if e.rewound_by]
        assert [event.id for event in marked] == [event.id for event in done.discards]
        assert {event.rewound_by for event in marked} == {int(rewound.id)}
        await site.replays(run.run_id)


async def test_other_branches_of_an_open_run_lose_what_came_after_the_question(
    temporal: TemporalClient,
) -> None:
    graph = Graph("branches", state=State)
    graph.interrupt("first", prompt="First?")
    graph.interrupt("other", prompt="Other?")
    graph.interrupt("second", prompt="Second?")
    graph.edge(START, "first")
    graph.edge(START, "other")
    graph.edge("first", "second")
    async with begun(temporal, graph) as (site, run):
        first, other = (await site.until(run.run_id, "awaiting-input")).interrupts
        await run.respond(first.id, 1, principal=ANYBODY)
        await run.respond(other.id, 2, principal=ANYBODY)
        (second,) = await run.interrupts()

        await run.rewind(to=first.id)
        assert [entry.id for entry in await run.interrupts()] == [first.id, other.id]
        discarded = await site.client.records.read(
            asked.of_run, run.run_id, status="all", discarded=True
        )
        assert {entry.id for entry in discarded} == {first.id, other.id, second.id}

        # A question that is asked after the rewind has an id of its own.
        await run.respond(other.id, 4, principal=ANYBODY)
        await run.respond(first.id, 3, principal=ANYBODY)
        (now,) = await run.interrupts()
        assert now.id != second.id
        assert (await refused(run.respond(second.id, 5, principal=ANYBODY))).code is (
            Code.UNKNOWN_INTERRUPT
        )
        gone = await refused(run.rewind(to=second.id))
        assert gone.code is Code.UNKNOWN_INTERRUPT

        # The workflow task that asked this question took an answer too, which the rewind keeps.
        await run.respond(now.id, 6, principal=ANYBODY)
        await site.ended(run.run_id)
        await run.rewind(to=now.id)
        assert (await site.asked(run.run_id)).id == now.id
        await site.replays(run.run_id)


async def test_a_run_that_was_ended_before_any_worker_had_it_begins_after_all(
    temporal: TemporalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No worker is up to record the rewind, so do not wait for that.
    monkeypatch.setattr(rewinds, "_POLLS", 1)
    site = Site(temporal, gated())
    run_id = await site.start()
    run = site.client.run(run_id)
    await temporal.get_workflow_handle(run_id).terminate()

    await run.rewind(to="start")

    async with site.worker():
        await run.respond((await site.asked(run_id)).id, {"approved": True}, principal=ANYBODY)
        assert (await site.ended(run_id)).status == "completed"
        await site.replays(run_id)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ["terminated", "cancelled", "cancelled by Temporal"])
async def test_a_run_that_was_ended_while_it_waited_waits_again(
    temporal: TemporalClient, end: str
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start()
        run, handle = site.client.run(run_id), temporal.get_workflow_handle(run_id)
        question = await site.asked(run_id)
        if end == "terminated":
            await handle.terminate()
        elif end == "cancelled":
            await run.cancel()
        else:
            await handle.cancel()
        await site.ended(run_id)

        await run.rewind(to=question.id)

        again = await site.asked(run_id)
        assert (again.id, (await run.view()).values["log"]) == (question.id, ["before"])
        await run.respond(again.id, {"approved": True}, principal=ANYBODY)
        assert (await site.ended(run_id)).status == "completed"
        await site.replays(run_id)


async def test_a_question_that_was_asked_because_a_deadline_passed_is_open_again(
    temporal: TemporalClient,
) -> None:
    graph = Graph("late", state=State)
    graph.interrupt("clerk", prompt="Pay?", timeout=1, on_timeout="goto:boss")
    graph.interrupt("boss", prompt="Pay?", timeout=1)
    graph.edge(START, "clerk")
    async with begun(temporal, graph) as (site, run):
        ended = await site.ended(run.run_id)
        assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")
        told = await site.recorded(run.run_id)
        boss = [event.data["id"] for event in told if event.type == "interrupt.opened"][-1]

        await run.rewind(to=boss)

        assert (await site.asked(run.run_id)).id == boss
        await run.respond(boss, True, principal=ANYBODY)
        assert (await site.ended(run.run_id)).status == "completed"
        await site.replays(run.run_id)


async def test_a_question_that_was_asked_because_a_hold_was_over_is_open_again(
    temporal: TemporalClient,
) -> None:
    graph = Graph("held", state=State)
    graph.interrupt("clerk", prompt="Pay?", response=bool, hold=1)
    graph.interrupt("boss", prompt="Pay?")
    graph.edge(START, "clerk")
    graph.edge("clerk", "boss")
    async with begun(temporal, graph) as (site, run):
        await site.answer(run.run_id, True)

        async def boss() -> str | None:
            asked = [entry.id for entry in await run.interrupts() if entry.name == "boss"]
            return asked[0] if asked else None

        await eventually(boss)
        question = await boss()
        assert question is not None
        await run.respond(question, True, principal=ANYBODY)
        await site.ended(run.run_id)

        await run.rewind(to=question)

        assert [entry.id for entry in await run.interrupts()] == [question]
        await run.respond(question, True, principal=ANYBODY)
        assert (await site.ended(run.run_id)).status == "completed"
        await site.replays(run.run_id)


async def test_a_question_in_an_earlier_execution_is_open_again(temporal: TemporalClient) -> None:
    graph = Graph("rounds", state=State)
    names = ["a", "b", "c", "d"]
    for name, before in zip(names, [START, *names[:-1]], strict=True):
        graph.interrupt(name, prompt=f"{name}?")
        graph.edge(before, name)
    async with begun(temporal, graph, limits=Limits(continue_as_new_after=6)) as (site, run):
        questions = [await site.answer(run.run_id, number) for number in range(len(names))]
        await site.ended(run.run_id)
        assert await site.executions(run.run_id) > 1

        for number, question in reversed([*enumerate(questions)]):
            await run.rewind(to=question.id)
            assert (await site.asked(run.run_id)).id == question.id
            answered = await site.client.records.read(asked.of_run, run.run_id, status="answered")
            assert {entry.id for entry in answered} == {each.id for each in questions[:number]}

        for number in range(len(names)):
            await site.answer(run.run_id, number)
        assert (await site.ended(run.run_id)).status == "completed"
        standing = [event.type for event in await site.recorded(run.run_id)]
        assert (standing.count("interrupt.answered"), standing[-1]) == (4, "run.completed")
        await site.replays(run.run_id)


async def test_a_run_goes_back_to_its_start_and_keeps_its_keys_and_its_starter(
    temporal: TemporalClient,
) -> None:
    keys: list[str] = []
    graph = Graph("keyed", state=State)

    @graph.node
    async def pay(state: Any, ctx: Context) -> None:
        keys.append(ctx.idempotency_key)

    graph.interrupt("more", prompt="More?")
    graph.edge(START, "pay")
    graph.edge("pay", "more")
    async with begun(temporal, graph) as (site, run):
        before = await site.answer(run.run_id, 1)
        await site.ended(run.run_id)

        starter = (await run.view()).started_by
        done = await run.rewind(to="start", principal=ANYBODY)

        after = await site.asked(run.run_id)
        assert ANYBODY.subject != starter == (await run.view()).started_by
        assert len(keys) == 2
        assert keys[0] == keys[1]
        assert after.id != before.id
        assert [(each.node, each.attempts) for each in done.effects] == [("keyed.pay", 1)]
        assert [event.type for event in await site.recorded(run.run_id)][:2] == [
            "run.rewound",
            "run.started",
        ]
        await site.answer(run.run_id, 2)
        await site.ended(run.run_id)
        await site.replays(run.run_id)


async def test_a_run_that_was_retried_goes_back_to_before_its_retry(
    temporal: TemporalClient,
) -> None:
    payments = Payments(fails=1)
    async with begun(temporal, payments.graph(), {"amount": 3}) as (site, run):
        question = await site.answer(run.run_id, True)
        await site.ended(run.run_id)
        await run.retry()
        assert (await site.ended(run.run_id)).status == "completed"

        done = await run.rewind(to=question.id)

        assert "run.retried" in [event.type for event in done.discards]
        assert (await site.asked(run.run_id)).id == question.id
        await site.answer(run.run_id, True)
        assert (await site.ended(run.run_id)).status == "completed"
        assert payments.done == ["check", "reserve", "pay", "reserve", "pay"]


class Hotel:
    """Graphs that ask after some of their code has run, each in another way; `done` is what ran."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def local(self) -> Graph:
        graph = Graph("local", state=State)
        graph.node(name="quick", local=True)(self._doing("quick"))
        graph.interrupt("first", prompt="First?")
        graph.interrupt("last", prompt="Last?")
        graph.edge(START, "first")
        graph.edge("first", "quick")
        graph.edge("quick", "last")
        return graph

    def coded(self) -> Graph:
        graph = Graph("coded", state=State)

        @graph.node
        async def ask(state: State, ctx: Context) -> dict[str, Any]:
            await ctx.step("reserve", lambda: self.done.append("reserve"))
            first = await ctx.interrupt("first", prompt="First?")
            await ctx.step("book", lambda: self.done.append("book"))
            return {"log": [f"{first} {await ctx.interrupt('last', prompt='Last?')}"]}

        graph.edge(START, "ask")
        return graph

    def _doing(self, what: str) -> Any:
        async def do(state: State) -> dict[str, Any]:
            self.done.append(what)
            return {"log": [what]}

        return do


@pytest.mark.parametrize("kind", ["local", "coded"])
async def test_whatever_asks_asks_again_and_repeats_nothing_from_before(
    temporal: TemporalClient, kind: str
) -> None:
    hotel = Hotel()
    async with begun(temporal, getattr(hotel, kind)()) as (site, run):
        first = await site.answer(run.run_id, 1)
        last = await site.answer(run.run_id, 2)
        ended = await site.ended(run.run_id)
        before = [*hotel.done]

        await run.rewind(to=last.id)
        assert (await site.asked(run.run_id)).id == last.id
        await site.answer(run.run_id, 2)
        assert (await site.ended(run.run_id)).values == ended.values
        assert hotel.done == before

        await run.rewind(to=first.id)
        assert (await site.asked(run.run_id)).id == first.id
        await site.answer(run.run_id, 1)
        again = await site.answer(run.run_id, 2)
        assert again.id != last.id
        assert (await site.ended(run.run_id)).values == ended.values
        await site.replays(run.run_id)


async def test_an_agent_waits_again_for_the_approval_of_its_call(temporal: TemporalClient) -> None:
    async with begun(temporal, payments(), {"task": "pay ada much"}) as (site, run):
        question = await site.answer(run.run_id, {"approved": True})
        assert (await site.ended(run.run_id)).values["report"].count("sent 5000 to ada") == 1

        done = await run.rewind(to=question.id)

        assert "payments.clerk.transfer" in [each.node for each in done.effects]
        assert (await site.asked(run.run_id)).id == question.id
        await site.answer(run.run_id, {"approved": False})
        assert "sent" not in (await site.ended(run.run_id)).values["report"]
        told_then = [item.text for item in await run.transcript()]
        assert not any("sent 5000" in (text or "") for text in told_then)
        await site.replays(run.run_id)
