"""A graph run in memory does what it would do on Temporal, and days take no time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sample_graphs import State, chain, gated, gates

from abeyance import START, Context, Graph, Principal, Refusal, testing
from abeyance.core.ledger import Interrupt
from abeyance.errors import Code


async def test_a_run_with_a_scripted_answer_completes() -> None:
    ended = await testing.run(gated(), {"amount": 3}, answers={"approve": {"approved": True}})

    assert ended.status == "completed"
    assert ended.values["log"] == ["before", "after {'approved': True}"]
    assert [event.type for event in ended.events] == [
        "node.started",
        "node.finished",
        "interrupt.opened",
        "run.awaiting_input",
        "interrupt.answered",
        "node.started",
        "node.finished",
    ]


async def test_a_function_answers_what_it_is_asked() -> None:
    asked: list[Interrupt] = []

    async def answer(interrupt: Interrupt) -> dict[str, bool]:
        asked.append(interrupt)
        return {"approved": False}

    ended = await testing.run(gated(), {"amount": 9}, answers={"approve": answer})

    assert asked[0].prompt == "Pay 9?"
    assert ended.values["log"] == ["before", "late"]


async def test_what_nobody_answers_is_left_to_its_deadline() -> None:
    ended = await testing.run(gated(timeout="P2D"))

    assert (ended.status, ended.reason) == ("halted", "interrupt-timeout")
    assert ended.now - ended.state.created_at == timedelta(days=2)


async def test_three_days_later_is_one_line() -> None:
    trial = testing.InMemoryRun(gated(timeout="5d", on_timeout="goto:late"))
    await trial.start()
    await trial.advance("3d")
    assert trial.status == "awaiting-input"
    await trial.advance("2d")

    assert trial.status == "completed"
    assert trial.values["log"] == ["before", "late"]


async def test_a_run_waits_where_no_answer_is_given() -> None:
    waiting = await testing.run(gates(2), answers={"gate1": 1})

    assert waiting.status == "awaiting-input"
    assert [entry.name for entry in waiting.interrupts] == ["gate0"]
    assert waiting.values["log"] == ["done1 1"]


async def test_an_answer_that_is_not_accepted_is_a_refusal() -> None:
    with pytest.raises(Refusal) as invalid:
        await testing.run(gated(), answers={"approve": "perhaps"})
    with pytest.raises(Refusal) as forbidden:
        await testing.run(
            gated(capability="pay"),
            answers={"approve": {"approved": True}},
            principal=Principal(subject="bob"),
        )

    assert invalid.value.code is Code.INVALID_ANSWER
    assert forbidden.value.code is Code.CAPABILITY_REQUIRED


async def test_pause_resume_and_cancel_work_as_on_a_server() -> None:
    trial = testing.InMemoryRun(gated())
    await trial.start()
    await trial.pause("audit")
    await trial.respond("approve", {"approved": True})
    assert (trial.status, trial.values["log"]) == ("paused", ["before"])
    await trial.resume()
    assert trial.status == "completed"

    other = testing.InMemoryRun(gated())
    await other.start()
    await other.cancel("enough")
    assert (other.status, other.reason) == ("cancelled", "enough")


async def test_a_flaky_node_is_tried_again_and_a_hopeless_one_fails_the_run() -> None:
    attempts: list[int] = []
    graph = Graph("flaky", state=State)

    @graph.node(retries=2)
    async def flaky(state: State, ctx: Context) -> dict[str, Any]:
        attempts.append(ctx.attempt)
        if state.amount or ctx.attempt < 3:
            raise ConnectionError("not yet")
        return {"log": ["done"]}

    graph.edge(START, "flaky")
    well = await testing.run(graph)
    ill = await testing.run(graph, {"amount": 1})

    assert well.values["log"] == ["done"]
    assert ill.status == "failed"
    assert ill.reason == "ConnectionError: not yet"
    assert attempts == [1, 2, 3, 1, 2, 3]


async def test_a_long_graph_takes_milliseconds() -> None:
    ended = await testing.run(chain(200))

    assert len(ended.values["log"]) == 200
