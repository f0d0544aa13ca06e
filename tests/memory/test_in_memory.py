"""A graph run in memory does what it would do on Temporal, and days take no time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sample_graphs import Decision, State, gated, gates

from abeyance import START, Context, Fatal, Graph, Refusal, testing
from abeyance.core.state import Limits
from abeyance.errors import Code
from abeyance.views import Event, InterruptView


def lines(events: list[Event]) -> list[str]:
    """Return the type of each event, with the last segment of its address."""
    return [
        event.type + (f" {event.address.split(';')[-1]}" if event.address else "")
        for event in events
    ]


async def test_a_run_with_a_scripted_answer_completes() -> None:
    ended = await testing.run(gated(), {"amount": 31337}, answers={"approve": {"approved": True}})

    assert ended.status == "completed"
    assert ended.values["log"] == ["before", "after {'approved': True}"]
    told = [event async for event in ended.events(follow=False)]
    assert lines(told) == [
        "run.started",
        "node.started node:before",
        "node.finished node:before",
        "interrupt.opened node:approve",
        "run.awaiting_input",
        "interrupt.answered node:approve",
        "node.started node:after",
        "node.finished node:after",
        "run.completed",
    ]
    assert (told[0].actor, told[5].actor) == ("temporal", "tester")
    assert told[1].address == "graph:gated;node:before"
    # An event tells neither the decision nor its subject, which only some people may read.
    text = "".join(event.model_dump_json() for event in told)
    assert ("31337" in text, '"approved"' in text) == (False, False)


async def test_a_failed_node_and_its_run_have_events_with_the_code() -> None:
    graph = Graph("failing", state=State)

    @graph.node
    async def bad(state: State) -> dict[str, Any]:
        raise Fatal("no such account")

    graph.edge(START, "bad")
    ended = await testing.run(graph)
    told = [event async for event in ended.events(follow=False)]

    assert lines(told)[1:] == [
        "node.started node:bad",
        "node.failed node:bad",
        "run.failed node:bad",
    ]
    for event in told[-2:]:
        assert event.data["code"] == "node_failed"
        assert "no such account" in event.data["message"]


async def test_a_function_answers_what_it_is_asked() -> None:
    asked: list[InterruptView] = []

    async def answer(interrupt: InterruptView) -> dict[str, bool]:
        asked.append(interrupt)
        return {"approved": False}

    ended = await testing.run(gated(), {"amount": 9}, answers={"approve": answer})

    assert asked[0].prompt == "Pay 9?"
    assert ended.values["log"] == ["before", "late"]


async def test_code_that_changes_what_it_is_given_does_not_change_the_run() -> None:
    graph = Graph("careless", state=State)

    @graph.node
    async def work(state: State, ctx: Context) -> None:
        ctx.values["log"].append("never returned")

    graph.edge(START, "work")
    ended = await testing.run(graph, {"log": ["before"]})

    assert ended.values["log"] == ["before"]


async def test_a_run_waits_where_no_answer_is_given() -> None:
    waiting = await testing.run(gates(2), answers={"gate1": 1})

    assert waiting.status == "awaiting-input"
    assert [entry.name for entry in await waiting.interrupts()] == ["gate0"]
    assert waiting.values["log"] == ["done1 1"]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_node_that_takes_longer_than_its_timeout_fails(is_plain: bool) -> None:
    attempts: list[int] = []
    graph = Graph("slow", state=State)

    def plain(state: State, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        while not ctx.cancelled:
            time.sleep(0.01)

    async def waiting(state: State, ctx: Context) -> None:
        attempts.append(ctx.attempt)
        await asyncio.Event().wait()

    graph.node(name="work", timeout=0.05, retries=1)(plain if is_plain else waiting)
    graph.edge(START, "work")

    ended = await testing.run(graph)

    assert attempts == [1, 2]
    assert ended.reason == (
        "'work' took longer than its timeout of 0.05 s. No retries are left (retries=1)."
    )


async def test_an_answer_may_be_an_instance_of_the_type_that_was_asked_for() -> None:
    trial = testing.InMemoryRun(gated())
    await trial.start()
    for wrong in (object(), float("nan"), {"approved": float("inf")}):
        with pytest.raises(Refusal) as refused:
            await trial.respond("approve", wrong)
        assert refused.value.code is Code.INVALID_ANSWER
        assert refused.value.details["errors"][0]["pointer"] == ""
    await trial.respond("approve", Decision(approved=True))

    assert trial.status == "completed"


async def test_a_name_that_several_questions_have_names_none() -> None:
    graph = Graph("twice")
    for name in ("left", "right"):
        graph.subgraph(name, gated(), input={}, output={})
        graph.edge(START, name)
    trial = testing.InMemoryRun(graph)
    await trial.start()
    with pytest.raises(Refusal) as refused:
        await trial.respond("approve", {"approved": True})

    assert refused.value.code is Code.AMBIGUOUS_INTERRUPT
    assert (await trial.interrupts())[1].id in refused.value.message


async def test_a_name_that_no_open_question_has_is_that_of_the_last_settled_one() -> None:
    run = testing.InMemoryRun(gated(), {"amount": 5})
    await run.start()
    (first,) = await run.respond("approve", {"approved": True})
    (again,) = await run.respond("approve", {"approved": True})
    with pytest.raises(Refusal) as refused:
        await run.respond("approve", {"approved": False})

    assert (again.interrupt_id, again.replayed) == (first.interrupt_id, True)
    assert refused.value.code is Code.ALREADY_ANSWERED
    with pytest.raises(Refusal) as refused:
        await run.respond("another", {"approved": True})
    assert refused.value.code is Code.UNKNOWN_INTERRUPT


async def test_a_run_is_started_as_a_start_says() -> None:
    looked = await testing.run(gated(), interrupt_before=["before"], run_id="mine")

    assert [entry.name for entry in await looked.interrupts()] == ["interrupt_before"]
    assert (await looked.interrupts())[0].id.startswith("mine.")
    with pytest.raises(Refusal) as refused:
        await testing.run(gated(), limits=Limits(max_visits=0))
    assert refused.value.code is Code.INVALID_BODY
    with pytest.raises(Refusal, match="names 'nowhere', which is not a node of") as refused:
        await testing.run(gated(), interrupt_after=["nowhere"])
    assert refused.value.code is Code.UNKNOWN_NODE


async def test_a_run_that_was_not_started_is_not_taken_for_a_completed_one() -> None:
    trial = testing.InMemoryRun(gated())
    for call in (trial.wait(), trial.send("early"), trial.advance("1h")):
        with pytest.raises(RuntimeError, match="has not started: call"):
            await call

    await trial.start()
    assert trial.status == "awaiting-input"
    with pytest.raises(RuntimeError, match="has started already"):
        await trial.start()


async def test_the_clock_of_a_run_does_not_go_back() -> None:
    trial = testing.InMemoryRun(gated())
    await trial.start()
    with pytest.raises(ValueError, match="goes forward, and not by -5"):
        await trial.advance(-5)

    assert trial.now == testing.EPOCH
