"""A new run with the past of another: nothing is done twice."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import call, done, gated, reviewing, said, turn
from core_drive import ADA, Drive, asked, at, chain, gate, graph, nested, reader
from core_forks import ROOT, fork

from abeyance.core import events
from abeyance.core.spec import (
    START,
    Ask,
    FunctionNode,
    GraphSpec,
    InterruptSpec,
    Matches,
    Rule,
)
from abeyance.errors import Refusal

ASKS = FunctionNode(id="code", asks=("approve",))


def refusal(run: Drive, back: int = 0, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        fork(run, back, **fields)
    return refused.value


def test_a_fork_goes_on_from_now_and_repeats_nothing() -> None:
    run = Drive(chain("a", "b"))
    run.finish("a", {"log": ["a"]})
    copy = fork(run)

    assert (copy.state.run_id, copy.values, copy.started) == ("f", {"log": ["a"]}, ["b"])
    (fact,) = copy.facts("run.forked")
    assert (fact.number, fact.actor, fact.data) == (1, "root", {"origin": "r", "back": 0})
    copy.finish("b")
    assert (copy.status, run.status) == ("completed", "running")


def test_an_open_question_is_asked_under_another_id_with_its_whole_time() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    before = run.open("ask")
    run.wait(50)
    copy = fork(run)

    after = copy.open("ask")
    assert (after.id == before.id, after.digest) == (False, before.digest)
    assert after.id.startswith("f.")
    assert (after.created_at, after.deadline) == (at(50), at(110))
    assert [fact.data["id"] for fact in copy.facts("interrupt.opened")] == [after.id]
    copy.answer("ask")
    assert (copy.status, run.status) == ("completed", "awaiting-input")


def test_the_parents_of_a_question_are_visits_of_the_fork() -> None:
    run = Drive(chain(nested("sub", chain(gate("ask"), name="inner"))))
    copy = fork(run)

    (parent,) = copy.open("ask").parents
    assert (parent.address, parent.id.startswith("f.")) == ("graph:g;node:sub", True)


def test_a_fork_goes_back_over_visits_which_are_undone_and_run_again() -> None:
    run = Drive(chain("a", "b", "c"))
    run.finish("a", {"log": ["a"]})
    run.finish("b", {"log": ["b"]})
    copy = fork(run, 1)

    assert (copy.values, copy.started) == ({"log": ["a"]}, ["b"])
    assert copy.orders("b")[0].guidance is None
    assert fork(run, 2).started == ["a"]
    assert run.values == {"log": ["a", "b"]}
    assert copy.facts("run.went_back") == []


@pytest.mark.parametrize(("back", "most"), [(2, 1), (-1, 1)])
def test_further_than_there_is_a_past_is_refused(back: int, most: int) -> None:
    run = Drive(chain("a", "b"))
    run.finish("a")

    refused = refusal(run, back)
    assert (refused.code, refused.details) == ("no_such_past", {"most": most})


def test_the_order_of_parallel_branches_is_no_past() -> None:
    run = Drive(graph("a", "b", "c", ways=[(START, "a"), (START, "b"), ("a", "c")]))
    run.finish("a")

    assert refusal(run, 1).details == {"most": 0}
    assert sorted(fork(run).started) == ["b", "c"]


def test_a_finished_visit_whose_rules_ask_can_be_run_again() -> None:
    run = Drive(ruled())
    run.finish("a", {"log": ["a"]})
    copy = fork(run, 1)

    assert (copy.values, copy.started, copy.asking) == ({}, ["a"], [])


@pytest.mark.parametrize("before", [0, 25])
def test_a_fork_goes_back_behind_a_gate_and_does_not_repeat_what_that_led_to(before: int) -> None:
    names = [f"n{i}" for i in range(before)]
    run = Drive(chain(gate("ask", capability="approve"), "pay", *names, "ship", "tell"))
    run.answer("ask", principal=ROOT)
    for name in ("pay", *names, "ship"):
        run.finish(name)
    copy = fork(run, 1)
    assert ([name for name, _ in copy.asking], copy.started) == (["approve_fork"], [])
    copy.answer("approve_fork", principal=ROOT)

    assert copy.started == ["ship"]


def test_a_fork_goes_back_to_the_first_visit_behind_a_gate_by_asking_that() -> None:
    run = Drive(chain("a", gate("ask", capability="approve"), "pay", "ship"))
    run.finish("a")
    run.answer("ask", principal=ROOT)
    run.finish("pay")
    copy = fork(run, 1)
    assert ([name for name, _ in copy.asking], copy.started) == (["ask"], [])
    copy.answer("ask", principal=ROOT)

    assert copy.started == ["pay"]


def test_a_completed_run_can_be_forked_back() -> None:
    run = Drive(chain("a", "b", finally_=["clean"]))
    run.finish("a")
    run.finish("b", {"x": 1})
    assert refusal(run).code == "not_finished"
    run.finish("clean", {"x": 2})
    copy = fork(run, 1)

    assert (run.status, copy.values, copy.started) == ("completed", {}, ["b"])
    assert fork(run).status == "ending"


def test_a_failed_run_can_be_forked_with_what_failed() -> None:
    run = Drive(chain("a"))
    run.fail("a")

    assert fork(run).running == ["a"]


def test_code_that_asked_and_was_answered_asks_again_with_its_journal() -> None:
    run = Drive(chain(ASKS))
    run.ask("code", asked("ok", requested_capability="approve"), asked("name"), journal={"s": 1})
    run.answer("name", "ada", principal=ROOT)
    run.answer("ok", True, principal=ROOT)
    copy = fork(run)

    (order,) = copy.orders("code")
    assert (order.own_answers, order.journal) == ({}, {"s": 1})


def ruled() -> GraphSpec:
    def ask(name: str) -> Rule:
        question = InterruptSpec(name=name, prompt="?", requested_capability="approve")
        return Rule(id=name, condition=Matches(node="a"), actions=(Ask(question=question),))

    return chain("a", "b", rules=[ask("one"), ask("two")])


@pytest.mark.parametrize("paused", [False, True])
def test_the_rules_of_a_visit_ask_all_their_questions_again(paused: bool) -> None:
    run = Drive(ruled())
    run.finish("a", {"log": ["a"]})
    if paused:
        run.feed(events.Paused, actor="ada")
        run.answer("two", principal=ROOT)
    run.answer("one", principal=ROOT)
    copy = fork(run)

    assert sorted(name for name, _ in copy.asking) == ["one", "two"]
    assert (copy.started, copy.values) == ([], {"log": ["a"]})
    copy.answer("one", principal=ROOT)
    assert copy.started == []
    copy.answer("two", principal=ROOT)
    assert copy.started == ["b"]


def test_an_approved_call_is_not_approved_in_the_fork_and_its_outcome_is_asked() -> None:
    run = reviewing()
    turn(run, call("c1"), gated("c2"))
    done(run, "c1", {"content": 1})
    said(run, "c2", {"approved": True})
    copy = fork(run)

    (order,) = copy.orders("pay")
    assert (order.own_answers, order.journal) == ({}, {"/begun": 1})


def test_messages_stay_with_the_original() -> None:
    run = Drive(graph(reader(), "b", ways=[(START, "work"), (START, "b")]))
    run.send("m1")
    assert run.take("b") == ["m1"]
    run.send("m2")
    run.direct("defer")
    copy = fork(run)

    assert copy.state.mailbox.queue == ()
    assert (copy.state.todos, copy.state.keys) == ((), {})
    assert copy.state.counters.messages_queued == 0
    copy.finish("b")
    assert copy.state.mailbox.queue == ()


def test_a_fork_takes_every_capability_of_the_run() -> None:
    run = Drive(chain(gate("ask", capability="approve")))

    assert refusal(run, principal=ADA).details["capabilities"] == ["approve"]


def test_a_paused_run_has_a_fork_that_runs() -> None:
    run = Drive(chain("a"))
    run.feed(events.Paused, actor="ada")

    assert fork(run).status == "running"
