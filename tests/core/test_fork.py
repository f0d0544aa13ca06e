"""A new run with the past of another: nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import call, done, gated, reviewing, said, turn
from core_drive import ADA, Drive, asked, at, chain, gate, graph, nested, reader
from core_forks import ROOT, fork

from abeyance.core import events, ledger
from abeyance.core.snapshots import forked
from abeyance.core.spec import (
    START,
    Ask,
    FunctionNode,
    GraphSpec,
    InterruptSpec,
    Matches,
    Route,
    Rule,
)
from abeyance.core.state import Called, Counters, RunState, Todo
from abeyance.core.terms import Terms
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
    assert (fact.number, fact.address, fact.actor) == (1, "graph:g", "root")
    assert fact.data == {"origin": "r", "back": 0}
    copy.finish("b")
    assert (copy.status, run.status) == ("completed", "running")


def test_an_open_question_is_asked_under_another_id_with_its_whole_time() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    before = run.open("ask")
    run.wait(50)
    copy = fork(run)

    after = copy.open("ask")
    assert (after.id == before.id, after.digest) == (False, before.digest)
    # By these the code of a visit knows the ids of its questions.
    assert after.id == ledger.interrupt_id("f", after.address, "ask", 1, "question", salt="")
    assert (after.created_at, after.deadline) == (at(50), at(110))
    (fact,) = copy.facts("interrupt.opened")
    assert (fact.data["id"], fact.number) == (after.id, after.number)
    copy.answer("ask")
    assert (copy.status, run.status) == ("completed", "awaiting-input")


def test_the_parents_of_a_question_are_visits_of_the_fork() -> None:
    run = Drive(chain(nested("sub", chain("code", name="inner"))))
    run.ask("code", asked("q", "process"), composite=True, reason="why")
    copy = fork(run)

    code, sub = copy.open("q").parents
    assert (code.reason, sub.address) == ("why", "graph:g;node:sub")
    assert (code.id.startswith("f."), sub.id.startswith("f.")) == (True, True)


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


@pytest.mark.parametrize("back", [2, -1])
def test_further_than_there_is_a_past_is_refused(back: int) -> None:
    run = Drive(chain("a", "b"))
    run.finish("a")

    refused = refusal(run, back)
    assert (refused.code, refused.details) == ("no_such_past", {"most": 1})
    assert f"it can go back 1 visit, and not {back}." in refused.message


def test_the_past_is_that_of_the_branch_that_moved_last() -> None:
    ways = [(START, "one"), (START, "two")]
    run = Drive(
        graph(
            nested("one", chain("a", "b", name="first")),
            nested("two", chain("c", "d", name="second")),
            ways=ways,
        )
    )
    run.finish("c")
    run.finish("a")

    assert sorted(fork(run, 1).started) == ["a", "d"]


def test_the_order_of_parallel_branches_is_no_past() -> None:
    run = Drive(graph("a", "b", "c", ways=[(START, "a"), (START, "b"), ("a", "c")]))
    run.finish("a")

    refused = refusal(run, 1)
    assert (refused.details, "go back 0 visits" in refused.message) == ({"most": 0}, True)
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
    refused = refusal(run)
    assert (refused.code, "can be forked when" in refused.message) == ("not_finished", True)
    run.finish("clean", {"x": 2})
    copy = fork(run, 1)

    assert (run.status, copy.values, copy.started) == ("completed", {}, ["b"])
    assert fork(run).status == "ending"


def test_a_failed_run_can_be_forked_with_what_failed() -> None:
    run = Drive(chain("a"))
    run.fail("a")

    assert fork(run).running == ["a"]


def test_code_that_asked_and_was_answered_asks_again_with_its_journal() -> None:
    run = Drive(chain(ASKS, "b"))
    run.ask("code", asked("ok", requested_capability="approve"), asked("name"), journal={"s": 1})
    run.answer("name", "ada", principal=ROOT)
    run.answer("ok", True, principal=ROOT)
    copy = fork(run)

    (order,) = copy.orders("code")
    assert (order.own_answers, order.journal) == ({}, {"s": 1})
    copy.finish("code")
    assert (copy.asking, copy.running) == ([], ["b"])


def test_code_behind_a_gate_that_asks_under_its_name_is_confirmed_too() -> None:
    run = Drive(chain(gate("ok", capability="approve"), ASKS))
    run.answer("ok", principal=ROOT)
    run.ask("code", asked("ok", requested_capability="approve"), journal={"s": 1})
    run.answer("ok", principal=ROOT)

    assert [name for name, _ in fork(run).asking] == ["approve_fork"]


def test_an_answer_that_is_no_approval_counts_in_the_fork() -> None:
    run = Drive(chain("code"))
    run.ask("code", "name", "more")
    run.answer("name", "ada")
    run.answer("more", 1)

    assert fork(run).orders("code")[0].own_answers == {"name": "ada", "more": 1}


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


def test_routes_choose_again_in_a_fork_if_a_rule_had_asked() -> None:
    route = Route(source="a", name="r", targets=("b", "c"))
    spec = graph("a", "b", "c", ways=[(START, "a")], routes=[route], rules=ruled().rules)
    run = Drive(spec)
    run.finish("a", routed=("b",))
    run.answer("one", principal=ROOT)
    copy = fork(run)
    copy.finish("a", routed=("c",))
    copy.answer("one", principal=ROOT)
    copy.answer("two", principal=ROOT)

    assert (copy.decided, copy.started) == (["a"], ["c"])


def test_who_might_not_answer_may_not_in_a_fork_either() -> None:
    run = Drive(chain(gate("one"), gate("two", terms=Terms(not_by=("one",)))))
    run.answer("one")

    assert fork(run).open("two").barred == {"ada": "one"}


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
    copy = fork(run)

    assert copy.state.mailbox.queue == ()
    assert copy.state.visits["graph:g;node:b"].inbox.taken == ()
    copy.finish("b")
    assert copy.state.mailbox.queue == ()


def test_a_fork_is_a_run_of_its_own_from_now_on() -> None:
    run = Drive(graph("a", gate("ask"), ways=[(START, "a"), (START, "ask")]))
    todo = Todo(message_id="m", text="hello", metadata={}, sender="ada", deferred_at=run.now)
    called = {"k": Called(digest="d")}
    run.state = replace(
        run.state,
        todos=(todo,),
        keys=called,
        receipts_kept=1,
        starters=("ada",),
        counters=Counters(visits=2, messages_queued=1),
    )

    def copied(salt: str) -> RunState:
        return forked(run.state, run_id="f", salt=salt, back=0, now=at(9), principal=ROOT)

    copy = copied("s")

    assert (copy.salt, copy.created_at, copy.last_activity_at) == ("s", at(9), at(9))
    assert (copy.todos, copy.keys, copy.receipts_kept) == ((), {}, 0)
    assert (copy.counters, copy.starters) == (Counters(visits=2), ("ada", "root"))
    assert {*copied("t").ledger.open}.isdisjoint(copy.ledger.open)


def test_a_fork_takes_every_capability_of_the_run() -> None:
    run = Drive(chain(gate("ask", capability="approve")))

    refused = refusal(run, principal=ADA)
    assert refused.message.startswith("'ada' may not fork the run: missing ")
    assert refused.details["capabilities"] == ["approve"]


def test_a_paused_run_has_a_fork_that_runs() -> None:
    run = Drive(chain("a"))
    run.feed(events.Paused, actor="ada")

    assert fork(run).status == "running"
