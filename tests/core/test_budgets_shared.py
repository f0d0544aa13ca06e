"""Budgets that several agents share: of a run, of the graphs in it, and of an agent that calls others."""

from __future__ import annotations

from dataclasses import replace

from core_agents import CLERK, agent_node, call, done, helper
from core_budgets import (
    budget,
    clerk,
    one,
    raised,
    stopped,
    took,
    two,
    with_budget,
)
from core_drive import Drive, chain, gate, graph, restored

from abeyance.core import events
from abeyance.core.outcome import Finished
from abeyance.core.spec import (
    START,
    GoTo,
    SubgraphNode,
)
from abeyance.core.usage import Use


def test_what_a_called_agent_uses_counts_for_its_caller_and_for_the_run() -> None:
    run = one(budget(tokens=1_000), helper(), whole=budget(usd=9.0))
    took(run, call("c1", "ask_helper", item={"args": {"task": "t"}}), input_tokens=1)
    took(run, who="helper", input_tokens=10, usd=0.25)

    of_clerk = run.state.scopes[CLERK].account
    of_run = run.state.root.account
    assert of_clerk is not None
    assert of_run is not None
    assert {name: use.tokens for name, use in of_clerk.by.items()} == {"clerk": 1, "helper": 10}
    assert (of_run.used.tokens, of_run.used.usd, of_run.used.turns) == (11, 0.25, 2)


def test_what_a_node_uses_counts_under_its_own_name() -> None:
    run = Drive(replace(chain("work"), budget=budget(time=9.0)))
    work = run.visit("work").address
    run.feed(events.VisitEnded, visit=work, outcome=Finished(), worked=2.0)

    account = run.state.root.account
    assert account is not None
    assert account.by == {"work": Use(time=2.0)}


def test_a_called_agent_asks_about_the_budget_of_its_caller_whom_a_stop_fails() -> None:
    run = one(budget(tokens=10), helper())
    took(run, call("c1", "ask_helper", item={"args": {"task": "t"}}), input_tokens=1)
    took(run, who="helper", goto="model", input_tokens=10)
    ((_, address),) = run.asking
    assert address == f"{CLERK};tool:ask_helper:c1;agent:helper;node:model:2"
    assert "the agent 'clerk' is used up" in run.open("budget").prompt
    stopped(run)

    assert run.error[:1] == ("budget_exhausted",)
    assert run.error[1].startswith("the agent 'clerk' was stopped")


def test_the_budget_of_the_innermost_graph_is_asked_about_first() -> None:
    run = one(budget(tokens=10), whole=budget(tokens=10))
    took(run, goto="model", input_tokens=10)
    assert "the agent 'clerk'" in run.open("budget").prompt
    raised(run, tokens=20)

    assert "The budget of 'g' is used up" in run.open("budget").prompt
    raised(run, tokens=20)
    assert (run.asking, run.running) == ([], ["model"])


def test_one_question_is_asked_for_all_agents_of_a_run() -> None:
    run = two(budget(tokens=100))
    took(run, goto="model", who="ann", input_tokens=100)
    assert run.status == "running"
    took(run, goto="model", who="bob", input_tokens=1)
    assert [name for name, _ in run.asking] == ["budget"]
    assert (run.status, restored(run.state)) == ("awaiting-input", run.state)
    raised(run, tokens=500)

    assert (run.asking, run.running) == ([], ["model", "model"])


def test_a_stop_fails_every_agent_that_waits_for_the_answer() -> None:
    run = two(budget(tokens=100), on_error=GoTo(node="next"))
    took(run, goto="model", who="ann", input_tokens=100)
    took(run, goto="model", who="bob", input_tokens=1)
    stopped(run)

    assert (run.asking, run.running) == ([], ["next", "next"])


def test_a_stop_leaves_an_agent_alone_that_does_not_wait_for_the_answer_yet() -> None:
    run = two(budget(tokens=100), on_error=GoTo(node="next"))
    took(run, goto="model", who="ann", input_tokens=100)
    run.feed(events.Paused, actor="ada")
    took(run, goto="model", who="bob", input_tokens=1)
    run.answer("budget", {"stop": True})
    run.feed(events.Resumed, actor="ada")

    assert [address.split(";")[1] for _, address in run.asking] == ["node:bob"]


def test_two_agents_with_budgets_of_their_own_are_both_asked_about() -> None:
    nodes = [with_budget(agent_node(name, name=name), budget(turns=1)) for name in ("ann", "bob")]
    run = Drive(graph(*nodes, ways=[(START, "ann"), (START, "bob")]))
    took(run, goto="model", who="ann")
    took(run, goto="model", who="bob")

    assert [address.split(";")[1] for _, address in run.asking] == ["node:ann", "node:bob"]


def test_what_was_looked_at_is_not_looked_at_again_after_it_waited_for_a_raise() -> None:
    nodes = [agent_node(name, name=name) for name in ("ann", "bob")]
    looked_at = [
        replace(each, graph=replace(each.graph, interrupt_before=("model",))) for each in nodes
    ]
    spec = graph(*looked_at, ways=[(START, "ann"), (START, "bob")])
    run = Drive(replace(spec, budget=budget(tokens=100)))
    for _ in range(2):
        run.answer("interrupt_before")
    took(run, goto="model", who="ann", input_tokens=100)
    took(run, goto="model", who="bob")
    for _ in range(2):
        run.answer("interrupt_before")
    raised(run, tokens=500)

    assert (run.asking, run.running) == ([], ["model", "model"])


def test_a_stop_that_ends_the_run_ends_it_once() -> None:
    run = two(budget(tokens=100))
    took(run, goto="model", who="ann", input_tokens=100)
    took(run, goto="model", who="bob", input_tokens=1)
    stopped(run)

    assert run.error[1].startswith("the agent 'ann' was stopped, because the budget of 'g'")
    assert run.ending.secondary_errors == ()


def test_if_the_agent_that_has_asked_is_left_another_one_asks() -> None:
    run = two(budget(tokens=100))
    took(run, goto="model", who="ann", input_tokens=100)
    took(run, goto="model", who="bob", input_tokens=1)
    ((_, address),) = run.asking
    run.direct("rerun", target=address)

    assert [address.split(";")[1] for _, address in run.asking] == ["node:bob"]


def test_other_questions_do_not_keep_an_agent_from_asking() -> None:
    node = clerk(budget(turns=1))
    run = Drive(graph(node, gate("ask"), ways=[(START, "review"), (START, "ask")]))
    took(run, goto="model")

    assert [name for name, _ in run.asking] == ["ask", "budget"]


def test_an_agent_in_a_nested_graph_asks_about_the_budget_of_that_graph() -> None:
    inner = replace(chain(clerk(None), name="inner"), budget=budget(turns=1))
    run = Drive(chain(SubgraphNode(id="part", graph=inner, output={})))
    took(run, goto="model")
    assert "The budget of 'inner' is used up: 1 of 1 turns" in run.open("budget").prompt
    stopped(run)

    assert run.error[1].startswith("the agent 'clerk' was stopped, because the budget of 'inner'")


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
    waiting = {
        **run.state.scopes,
        CLERK: replace(scope, values={**scope.values, "waiting": ["c2"]}),
    }
    run.state = replace(run.state, scopes=waiting)
    done(run, "c1")

    assert (run.asking, run.running) == ([], ["model"])
