"""Budgets: what is charged to whom, the question at a limit, and what an answer does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import CLERK, agent, agent_node, call, calls, done, helper
from core_drive import ADA, Drive, graph, restored

from abeyance.core import events
from abeyance.core.bounds import Account, Amounts, Use
from abeyance.core.budgets import why_stopped
from abeyance.core.json import Json
from abeyance.core.outcome import Failed, Finished, Send, Stopped
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    START,
    AskHuman,
    BudgetSpec,
    Default,
    GoTo,
    InterruptSpec,
    SubgraphNode,
)
from abeyance.core.terms import Terms

BOSS = Principal(subject="boss", capabilities=("runs:control", "money"))


def budget(
    usd: float | None = None,
    tokens: int | None = None,
    time: float | None = None,
    turns: int | None = None,
    **question: Any,
) -> BudgetSpec:
    limits = Amounts(usd=usd, tokens=tokens, time=time, turns=turns)
    return BudgetSpec(limits=limits, question=InterruptSpec(name="budget", prompt="", **question))


def clerk(its: BudgetSpec | None = None, *more: Any, **about: Any) -> SubgraphNode:
    return replace(agent_node("review", *more, **about), graph=replace(agent(*more), budget=its))


def one(its: BudgetSpec | None = None, *more: Any, after: str | None = None, **about: Any) -> Drive:
    """Start a run of the agent `clerk` with a budget."""
    rest = [] if after is None else [after]
    return Drive(graph(clerk(its, *more, **about), *rest, ways=[(START, "review")]))


def two(its: BudgetSpec, **about: Any) -> Drive:
    """Start a run of the agents `ann` and `bob`, side by side, each with this budget."""
    nodes = [agent_node(name, name=name, **about) for name in ("ann", "bob")]
    nodes = [replace(node, graph=replace(node.graph, budget=its)) for node in nodes]
    rest = ["next"] if about else []
    return Drive(graph(*nodes, *rest, ways=[(START, "ann"), (START, "bob")]))


def took(
    run: Drive,
    *sends: Send,
    who: str = "clerk",
    seconds: float = 0.0,
    model: str = "m",
    goto: str | None = None,
    **usage: Json,
) -> None:
    """End a turn of an agent that has used this much."""
    visits = [v for v in run.state.visits.values() if v.address.rpartition(":")[0].count(who)]
    address = next(v.address for v in visits if v.node == "model" and v.state.kind == "running")
    turn = {"model": model, "usage": {"requests": 1, **usage}}
    ended = Finished(turn=turn, sends=sends or None, goto=goto)
    run.feed(events.VisitEnded, visit=address, outcome=ended, worked=seconds)


def asked(run: Drive) -> dict[str, Any]:
    reason = run.open("budget").reason
    assert isinstance(reason, dict)
    return reason


def raised(run: Drive, **amounts: Json) -> None:
    run.answer("budget", {"raise_to": amounts})


def stopped(run: Drive) -> None:
    """Have Ada stop the agent, and end its last turn, which keeps what the agent had not read."""
    run.answer("budget", {"stop": True})
    last_turns(run)


def last_turns(run: Drive) -> None:
    for visit in [*run.state.visits.values()]:
        why = why_stopped(visit.questions.answers)
        if why is not None:
            failed = Failed(code="budget_exhausted", message=why, patch={"agent_state": {"c": 1}})
            outcome = failed if run.state.ending is None else Stopped()
            run.feed(events.VisitEnded, visit=visit.address, outcome=outcome)


@pytest.mark.parametrize(
    ("its", "used", "raise_to"),
    [
        (budget(usd=1.0), {"usd": 1.0}, {"type": "number", "exclusiveMinimum": 1.0}),
        (
            budget(tokens=100),
            {"input_tokens": 60, "output_tokens": 40},
            {"type": "integer", "minimum": 101},
        ),
        (budget(time=60.0), {"seconds": 60.0}, {"type": "number", "exclusiveMinimum": 60.0}),
        (budget(turns=1), {}, {"type": "integer", "minimum": 2}),
    ],
)
def test_each_limit_asks_before_the_next_turn_and_takes_a_larger_one(
    its: BudgetSpec, used: dict[str, Any], raise_to: dict[str, Any]
) -> None:
    run = one(its)
    took(run, call("c1"), **used)
    assert (run.asking, calls(run)) == ([], ["c1"])
    done(run, "c1")

    (limit,) = its.limits.set()
    assert run.asking == [("budget", f"{CLERK};node:model:2")]
    assert (run.open("budget").kind, run.status) == ("budget", "awaiting-input")
    assert asked(run)["reached"] == [limit[0]]
    assert len(run.orders("model")) == 1
    found = run.open("budget").response_schema["properties"]["raise_to"]["properties"][limit[0]]
    assert {**found, **raise_to} == found


def test_an_agent_that_has_its_output_is_not_asked_about() -> None:
    run = one(budget(tokens=1))
    took(run, input_tokens=5)

    assert (run.asking, run.status) == ([], "completed")


def test_the_question_shows_what_was_used_and_by_whom() -> None:
    run = one(budget(usd=0.5, turns=9, requested_capability="money", timeout=60.0))
    took(run, call("c1"), call("c2"), usd=0.7512, input_tokens=20_000, seconds=3.0)
    run.feed(events.VisitEnded, visit=f"{CLERK};tool:pay:c1", outcome=Finished(), worked=1.5)
    failed = Failed(code="node_failed", message="it broke")
    run.feed(events.VisitEnded, visit=f"{CLERK};tool:pay:c2", outcome=failed, worked=0.5)

    question = run.open("budget")
    assert asked(run) == {
        "budget": {"usd": 0.5, "turns": 9},
        "used": {"usd": 0.7512, "tokens": 20_000, "time": 5.0, "turns": 1, "calls": 1},
        "by": {
            "clerk": {"usd": 0.7512, "tokens": 20_000, "time": 3.0, "turns": 1},
            "pay": {"time": 2.0, "calls": 1},
        },
        "reached": ["usd"],
    }
    assert question.prompt == (
        "The budget of the agent 'clerk' is used up: 0.751 of 0.5 US dollars, 1 of 9 turns. Raise it, "
        "or stop 'clerk'?"
    )
    assert (question.requested_capability, question.timeout) == ("money", 60.0)
    about = "The new limit in {}, with all that is used already."
    amounts = {
        "usd": {
            "type": "number",
            "description": about.format("US dollars"),
            "exclusiveMinimum": 0.7512,
        },
        "turns": {"type": "integer", "description": about.format("turns"), "minimum": 9},
    }
    assert question.response_schema == {
        "type": "object",
        "properties": {
            "raise_to": {
                "type": "object",
                "properties": amounts,
                "required": ["usd"],
                "minProperties": 1,
                "additionalProperties": False,
            },
            "stop": {"oneOf": [{"const": True, "title": "Stop clerk"}]},
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }


def test_only_what_a_budget_covers_is_metered() -> None:
    within = graph(clerk(budget(turns=5)), "plain", ways=[(START, "review"), (START, "plain")])
    run = Drive(within)

    assert [given.metered for given in run.orders("model")] == [True]
    assert [given.metered for given in run.orders("plain")] == [False]


def test_a_raised_budget_lets_the_agent_go_on_up_to_the_new_limit() -> None:
    run = one(budget(tokens=100))
    took(run, goto="model", input_tokens=100)
    first = run.open("budget").id
    raised(run, tokens=200)
    assert (run.asking, run.running) == ([], ["model"])
    order = run.orders("model")[-1]
    assert (order.answers, order.own_answers, order.answerers) == ({}, {}, {})

    took(run, goto="model", input_tokens=100)
    assert asked(run)["budget"] == {"tokens": 200}
    assert run.open("budget").id != first


def test_an_agent_that_is_stopped_has_a_last_turn_whose_changes_count() -> None:
    run = one(budget(tokens=100))
    took(run, call("c1"), input_tokens=1_000)
    done(run, "c1", result="paid")
    run.answer("budget", {"stop": True})
    order = run.orders("model")[-1]
    why = "the agent 'clerk' was stopped, because its budget is used up: 1,000 of 100 tokens"
    assert (run.asking, run.running, restored(run.state)) == ([], ["model"], run.state)
    assert why_stopped(order.own_answers) == why
    assert order.results is not None
    run.tick(60)
    last_turns(run)

    assert (run.error[:2], len(run.orders("model"))) == (("budget_exhausted", why), 2)


def test_a_last_turn_that_ends_after_the_run_is_not_taken_again() -> None:
    run = two(budget(tokens=100), on_error=GoTo(node="next"))
    took(run, goto="model", who="ann", input_tokens=100)
    address = run.open("budget").visit
    run.answer("budget", {"stop": True})
    run.cancel()
    ended = Failed(code="budget_exhausted", message="it was stopped")
    run.feed(events.VisitEnded, visit=address, outcome=ended)

    assert run.state.ending is not None
    assert run.running in ([], ["model"])


def test_an_agent_that_is_tried_again_has_its_whole_budget() -> None:
    run = one(budget(tokens=1), on_error=AskHuman())
    took(run, goto="model", input_tokens=1)
    stopped(run)
    run.answer("error", {"action": "retry"})

    assert (run.asking, run.running) == ([], ["model"])


def test_a_model_without_a_price_is_published_once_and_shown() -> None:
    run = one(budget(usd=1.0, turns=2))
    took(run, goto="model", model="own", input_tokens=5)
    took(run, goto="model", model="own", input_tokens=5)

    assert [(f.address, f.data) for f in run.facts("budget.unpriced")] == [
        (CLERK, {"model": "own"})
    ]
    assert asked(run)["unpriced"] == ["own"]
    assert run.open("budget").prompt == (
        "The budget of the agent 'clerk' is used up: 0 of 1 US dollars, 2 of 2 turns. "
        "Not in it, because their price is not known: own. Raise it, or stop 'clerk'?"
    )


def test_a_missing_price_does_not_matter_without_a_limit_in_dollars() -> None:
    run = one(budget(turns=1))
    took(run, goto="model", model="own")

    assert (run.facts("budget.unpriced"), "unpriced" in asked(run)) == ([], False)


def test_uses_are_added_up_without_rounding_noise() -> None:
    used = Use(usd=0.1, time=0.1).plus(Use(usd=0.2000000004, time=0.2004))

    assert used == Use(usd=0.3, time=0.3)


def test_an_account_remembers_at_most_twenty_models_without_a_price() -> None:
    account = Account()
    for number in range(30):
        account = account.without_price(f"m{number}")

    assert len(account.unpriced) == 20


def test_the_question_shows_those_who_used_most() -> None:
    run = one(budget(turns=1))
    account = Account(used=Use(turns=1), by={f"t{n}": Use(time=float(n)) for n in range(30)})
    run.state.scopes[CLERK].account = account
    took(run, goto="model", input_tokens=1)

    assert list(asked(run)["by"])[:3] == ["clerk", "t29", "t28"]
    assert len(asked(run)["by"]) == 20


def test_a_default_that_no_longer_raises_the_budget_stops_the_agent() -> None:
    raising = Default(answer={"raise_to": {"turns": 2}})
    run = one(budget(turns=1, timeout=60.0, on_timeout=raising))
    took(run, goto="model")
    run.tick(60)
    took(run, goto="model")
    assert run.open("budget").on_timeout == Default(answer={"stop": True})
    run.tick(60)
    last_turns(run)

    assert run.error[0] == "budget_exhausted"


def test_a_rule_that_would_bar_nobody_fails_the_agent() -> None:
    wrong = budget(turns=1, terms=Terms(not_by=("aproval",)))
    run = one(wrong)
    took(run, goto="model")
    assert run.error[0] == "unknown_question"

    run = one(wrong, after="next", on_error=GoTo(node="next"))
    took(run, goto="model")
    assert run.running == ["next"]


def test_a_pause_and_continue_as_new_keep_the_account() -> None:
    run = one(budget(turns=2))
    took(run, goto="model")
    run.pause()
    took(run, goto="model")
    assert run.asking == []
    run.read_again()
    run.resume()

    assert asked(run)["used"]["turns"] == 2


def test_an_agent_that_waits_for_its_budget_is_asked_about_again_after_a_retry() -> None:
    run = one(budget(turns=1))
    took(run, goto="model")
    stopped(run)
    run.start_again(ADA)

    assert asked(run)["used"]["turns"] == 1
    raised(run, turns=2)
    assert run.running == ["model"]


def migrated(run: Drive, its: BudgetSpec | None) -> None:
    spec = run.state.spec
    node = spec.nodes["review"]
    assert isinstance(node, SubgraphNode)
    changed = replace(node, graph=replace(node.graph, budget=its))
    to = replace(spec, nodes={**spec.nodes, "review": changed})
    versions = (spec.version, to.version)
    run.feed(events.Migrated, principal=ADA, spec=to, patch={}, renames={}, versions=versions)


def test_a_larger_budget_of_another_version_counts_from_then_on() -> None:
    run = one(budget(turns=1))
    took(run, goto="model")
    migrated(run, budget(turns=3))
    raised(run, turns=2)
    took(run, goto="model")

    assert (run.asking, run.running) == ([], ["model"])


def test_a_stop_counts_even_if_the_budget_is_gone_by_then() -> None:
    run = one(budget(turns=1))
    took(run, goto="model")
    migrated(run, None)
    stopped(run)

    assert run.error[0] == "budget_exhausted"


def test_the_use_of_a_called_agent_counts_before_its_callers_next_turn() -> None:
    run = one(budget(tokens=10), helper())
    took(run, call("c1", "ask_helper", item={"args": {"task": "t"}}), input_tokens=1)
    took(run, who="helper", goto="model", input_tokens=10)
    assert run.asking == []
    took(run, who="helper", input_tokens=10)

    ((_, address),) = run.asking
    assert address == f"{CLERK};node:model:2"
    by = {name: use["tokens"] for name, use in asked(run)["by"].items()}
    assert by == {"clerk": 1, "helper": 20}
    stopped(run)
    assert run.error[:1] == ("budget_exhausted",)


def test_two_agents_are_both_asked_about_and_a_stop_leaves_the_other_alone() -> None:
    run = two(budget(turns=1), on_error=GoTo(node="next"))
    took(run, goto="model", who="ann")
    took(run, goto="model", who="bob")
    assert [address.split(";")[1] for _, address in run.asking] == ["node:ann", "node:bob"]
    run.answer("budget", {"stop": True})
    last_turns(run)

    assert [address.split(";")[1] for _, address in run.asking] == ["node:bob"]
    assert run.running == ["next"]


def test_calls_that_wait_for_each_other_are_made_before_the_question() -> None:
    run = one(budget(turns=1))
    run.feed(
        events.VisitEnded,
        visit=f"{CLERK};node:model",
        outcome=Finished(
            patch={"agent_state": {}},
            turn={"model": "m", "usage": {"requests": 1}},
            sends=(call("c1"),),
        ),
    )
    scope = run.state.scopes[CLERK]
    scope.values = {**scope.values, "waiting": ["c2"]}
    done(run, "c1")

    assert (run.asking, run.running) == ([], ["model"])
