"""Budgets of agents: what counts, what a person is asked, and what an author may declare."""

from __future__ import annotations

from typing import Any

import pytest
from graph_faults import faults
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from scripted_agents import Script, call, failure, started, with_agent

from abeyance import Agent, Budget, Escalation, tool
from abeyance.testing import InMemoryRun


@tool
async def look(what: str) -> str:
    """Look at something."""
    return f"{what} is fine"


def said(*parts: Any) -> ModelResponse:
    usage = RequestUsage(input_tokens=1_000, output_tokens=1_000)
    return ModelResponse(parts=list(parts), usage=usage)


def looking(turns: int) -> Script:
    looks = [said(call("look", f"c{n}", what="x")) for n in range(turns)]
    return Script(*looks, said(TextPart("all is well")))


async def answered(run: InMemoryRun, answer: Any) -> None:
    (asked,) = await run.interrupts()
    await run.respond(asked.id, answer)


async def test_turns_in_a_budget_take_the_place_of_max_turns() -> None:
    script = looking(4)
    agent = Agent("clerk", model=script, tools=[look], max_turns=2, budget=Budget(turns=3))
    run = await started(agent)
    assert (run.status, len(script.seen)) == ("awaiting-input", 3)
    await answered(run, {"raise_to": {"turns": 9}})

    assert run.status == "completed"


async def test_an_agent_whose_budget_has_no_turns_has_max_turns() -> None:
    budget = Budget(tokens=1_000_000)
    agent = Agent("clerk", model=looking(9), tools=[look], max_turns=2, budget=budget)
    assert failure(await started(agent))[0] == "max_turns"


async def test_dollars_are_those_of_the_list_of_prices() -> None:
    model = FunctionModel(looking(2), model_name="gpt-5")
    run = await started(Agent("clerk", model=model, tools=[look], budget=Budget(usd=0.01)))
    (asked,) = await run.interrupts()

    assert asked.reason["used"]["usd"] == 0.01125
    turns = [e.data async for e in run.events(follow=False) if e.type == "model.turn"]
    assert turns[0]["usage"]["usd"] == 0.01125


async def test_an_agent_without_a_budget_looks_up_no_price() -> None:
    run = await started(Agent("clerk", model=FunctionModel(looking(0), model_name="gpt-5")))

    turns = [e.data async for e in run.events(follow=False) if e.type == "model.turn"]
    assert "usd" not in turns[0]["usage"]


async def test_time_counts_the_work_of_turns_and_calls_and_not_the_waiting() -> None:
    agent = Agent("clerk", model=looking(2), tools=[look], budget=Budget(time="10m", turns=1))
    run = await started(agent)
    await run.advance(3600)
    await answered(run, {"raise_to": {"turns": 2}})
    (asked,) = await run.interrupts()

    assert asked.reason["reached"] == ["turns"]
    assert 0 < asked.reason["used"]["time"] < 60


async def test_the_terms_of_a_question_are_those_of_a_budget_too() -> None:
    budget = Budget(
        turns=1,
        requested_capability="money",
        timeout="2bd",
        calendar="DE",
        assignees=["group:finance"],
        priority="high",
        escalate=Escalation(after="1bd", to=["boss"]),
    )
    run = await started(Agent("clerk", model=looking(3), tools=[look], budget=budget))
    (asked,) = await run.interrupts()

    assert (asked.assignees, asked.priority) == (["group:finance"], "high")
    assert (asked.requested_capability, asked.deadline is not None) == ("money", True)
    assert run.state.spec.guarded_by == ("money",)


@pytest.mark.parametrize(
    ("budget", "fault"),
    [
        (Budget(), "the budget of 'clerk' has no limit"),
        ("5 USD", "is '5 USD', and no Budget: write Budget(usd=5)"),
        (Budget(turns=1, on_timeout="stop"), "has on_timeout but no timeout"),
        (Budget(turns=1, timeout="1h", on_timeout="goto:x"), "on_timeout='goto:x' is invalid"),
        (
            Budget(turns=2, timeout="1h", on_timeout={"default": {"raise_to": {"turns": 1}}}),
            "1 is less than the minimum of 2",
        ),
        (Budget(turns=1, quorum=2), "has quorum, and its answer is not a yes or no"),
        (Budget(turns=1, requested_capability="a b"), "requests the capability 'a b'"),
        (Budget(turns=1, timeout="2bd"), "needs calendar="),
    ],
)
def test_a_budget_that_cannot_be_is_a_fault(budget: Any, fault: str) -> None:
    told = faults(with_agent(Agent("clerk", model=looking(1), budget=budget)))

    assert any(fault in each for each in told), told


def test_names_of_models_that_frameworks_give_are_found_in_the_list_of_prices() -> None:
    from abeyance.agents.turn import price_of

    usage = RequestUsage(input_tokens=1_000, output_tokens=1_000)
    prices = {
        name: price_of(ModelResponse(parts=[], usage=usage, model_name=name))
        for name in ("gpt-5", "openai:gpt-5", "models/gemini-2.5-pro", "Fake", None)
    }

    assert prices == {
        "gpt-5": 0.01125,
        "openai:gpt-5": 0.01125,
        "models/gemini-2.5-pro": 0.01125,
        "Fake": None,
        None: None,
    }


async def test_a_deadline_may_stop_the_agent() -> None:
    budget = Budget(turns=1, timeout="1h", on_timeout="stop")
    run = await started(Agent("clerk", model=looking(3), tools=[look], budget=budget))
    await run.advance(3600)

    assert failure(run)[0] == "budget_exhausted"
