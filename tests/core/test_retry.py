"""A run that ended without completing goes on from where it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest
from core_agents import CLERK, asks, failed, gated, question, reviewing, said, turn
from core_drive import (
    ADA,
    ROOT,
    Drive,
    asked,
    chain,
    edge,
    gate,
    graph,
    nested,
    reader,
)
from core_graphs import rule

from abeyance.core import events, run_retry
from abeyance.core.effects import Publish
from abeyance.core.outcome import Blocked, Failed, Finished, Interrupted, Stopped
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.spec import (
    START,
    AskHuman,
    Fail,
    FunctionNode,
    HaltRun,
)
from abeyance.core.state import Limits
from abeyance.errors import Refusal


def refusal(run: Drive, who: Principal = ROOT, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        run.start_again(who, **fields)
    return refused.value


def test_a_run_that_is_retried_where_it_waits_says_that_it_waits() -> None:
    run = Drive(chain(gate("ask"), "next"))
    run.cancel()
    run.start_again()

    assert run.status == "awaiting-input"
    types = [fact.type for fact in run.last if isinstance(fact, Publish)]
    assert types == ["run.retried", "interrupt.opened", "run.awaiting_input"]
    run.feed(events.Restored)
    assert run.last == ()


def test_a_failed_visit_runs_again_with_its_journal_and_what_finished_before_it_does_not() -> None:
    run = Drive(chain("a", "b", "c"))
    run.finish("a", {"log": ["a"]})
    run.fail("b", "no", code="x", journal={"s": 1}, patch={"log": ["half"]})
    assert (run.status, run.values) == ("failed", {"log": ["a", "half"]})
    run.wait(60)
    run.start_again()

    assert (run.status, run.running, run.values) == ("running", ["b"], {"log": ["a"]})
    assert run.orders("b")[-1].journal == {"s": 1}
    assert run.orders("b")[-1].activation == 2
    (fact,) = run.facts("run.retried")
    assert (fact.address, fact.actor, fact.data) == (
        "graph:g",
        "root",
        {
            "outcome": "failed",
            "reason": "no",
            "ended_at": "2026-03-02T09:00:00Z",
            "from_version": "v1",
            "to_version": "v2",
            "fields": [],
        },
    )
    run.finish("b", {"log": ["b"]})
    run.finish("c")
    assert (run.status, run.started) == ("completed", ["a", "b", "b", "c"])


@pytest.mark.parametrize("halted", [False, True])
def test_a_question_is_open_again_with_its_id_and_the_time_that_was_left_or_all_of_it(
    *, halted: bool
) -> None:
    run = Drive(graph("work", gate("ask", timeout=600), ways=[(START, "work"), (START, "ask")]))
    before = run.open("ask")
    run.tick(600 if halted else 100)
    if not halted:
        run.fail("work")
    run.tick(10_000)
    run.start_again()

    after = run.open("ask")
    kept = (before.id, before.digest, before.created_at)
    assert (after.id, after.digest, after.created_at) == kept
    assert after.deadline == run.now + timedelta(seconds=600 if halted else 500)
    assert run.facts("interrupt.opened")[-1].data["id"] == before.id
    assert not run.state.ledger.settled
    run.answer("ask")
    run.finish("work")
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("outcome", "orders"),
    [
        (Finished(patch={"log": ["two"]}), ["one", "two", "one"]),
        (Stopped(journal={"s": 1}), ["one", "two", "one", "two"]),
        (Failed(code="x", message="no"), ["one", "two", "one", "two"]),
        (Failed(code="x", message="no", journal={"s": 1}), ["one", "two", "one", "two"]),
        (Blocked(code="x", message="no", journal={"s": 1}), ["one", "two", "one", "two"]),
        (Interrupted(interrupts=(asked("q"),), journal={"s": 1}), ["one", "two", "one"]),
        (None, ["one", "two", "one", "two"]),
    ],
)
def test_the_outcome_of_a_visit_at_the_end_counts_after_a_retry(
    outcome: Any, orders: list[str]
) -> None:
    run = Drive(graph("one", "two", ways=[(START, "one"), (START, "two")]))
    two = run.visit("two").address
    run.fail("one")
    if outcome is None:
        run.tick(30)
    else:
        run.feed(events.VisitEnded, visit=two, outcome=outcome)
    assert run.status == "failed"
    run.start_again()

    assert run.started == orders
    if getattr(outcome, "journal", None) and "two" in run.running:
        assert run.orders("two")[-1].journal == {"s": 1}
    if isinstance(outcome, Finished):
        assert run.values == {"log": ["two"]}
    if isinstance(outcome, Interrupted):
        assert run.asking == [("q", two)]


def test_a_run_that_ended_as_it_was_rewound_asks_under_ids_of_its_own_when_it_is_retried() -> None:
    ids = set()
    for salt in ("", "1"):
        run = Drive(chain(gate("first"), gate("ask")))
        run.cancel()
        run_retry.take_salt(run.state, salt)
        run.start_again()
        run.answer("first", "yes")
        ids.add(run.open("ask").id)
    assert len(ids) == 2


def test_a_run_can_be_retried_many_times_and_finally_nodes_run_at_each_end() -> None:
    run = Drive(chain("a", finally_=["clean"]))
    for _ in range(3):
        run.fail("a")
        run.finish("clean", {"log": ["clean"]})
        assert run.values == {"log": ["clean"]}
        assert run.ending.before is not None
        assert run.ending.before.ending is None
        run.start_again()
        assert (run.values, run.running) == ({}, ["a"])

    assert [each.address for each in run.orders("clean")] == [
        "graph:g;node:clean",
        *("graph:g;node:clean:2", "graph:g;node:clean:3"),
    ]


def test_messages_that_were_reported_undelivered_stay_reported_and_keys_and_counters_are_kept() -> (
    None
):
    run = Drive(chain("a"))
    run.send("m1")
    run.pause(key="k")
    run.cancel()
    run.cancel(mode="now", key="c")
    run.state = replace(run.state, transcripts={"graph:g;node:a;agent:b": "t"})
    ended = run.state
    run.start_again()

    assert [each.message_id for each in run.state.mailbox.undelivered] == ["m1"]
    assert (run.state.mailbox.queue, run.status) == ((), "running")
    for kept in ("counters", "keys", "transcripts"):
        assert getattr(run.state, kept) == getattr(ended, kept)
    facts = [each.number for each in run.wanted(Publish)]
    assert facts == [*range(1, run.state.events_published + 1)]
    run.pause(key="k")
    assert run.status == "running"


def test_messages_that_code_was_given_and_never_read_stay_reported() -> None:
    run = Drive(graph(gate("ask"), reader(), ways=[(START, "ask"), ("ask", "work")]))
    run.send("m1")
    run.answer("ask")
    run.cancel()
    run.stopped("work", begun=False)
    assert [each.message_id for each in run.state.mailbox.undelivered] == ["m1"]
    run.start_again()

    assert [order.inbox for order in run.orders("work")][1:] == [()]


def test_messages_that_code_left_unread_while_the_run_ended_are_there_once_after_a_retry() -> None:
    run = Drive(
        graph(gate("ask"), reader(), "b", ways=[(START, "ask"), ("ask", "work"), (START, "b")])
    )
    run.send("m1")
    run.answer("ask")
    run.send("m2")
    run.take("work")
    run.fail("b")
    run.finish("work", messages_read=0)
    run.start_again()

    unread = [each.message_id for each in run.state.mailbox.queue]
    assert (unread, run.running) == (["m2"], ["b"])


def test_a_run_that_a_rule_halted_is_held_against_the_rule_again() -> None:
    one = rule("stop", None, HaltRun(reason="no x"), x=None)
    run = Drive(chain("a", "b", rules=[one]))
    run.finish("a")
    assert (run.status, run.ending.reason) == ("halted", "no x")
    run.start_again()
    assert run.status == "halted"
    run.start_again(patch={"x": 1})

    assert (run.running, run.started) == (["b"], ["a", "b"])


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_graph_without_a_way_in_starts_after_a_patch(is_nested: bool) -> None:
    spec = graph("a", ways=[edge(START, "a", {"x": 1})], finally_=["clean"] * (not is_nested))
    run = Drive(chain(nested("n", spec)) if is_nested else spec)
    if not is_nested:
        run.finish("clean")
    assert run.error[0] == "no_way_out"
    run.start_again(patch={"x": 1})

    assert run.running == ["a"]


def test_a_loop_that_was_cut_off_goes_on_where_it_was() -> None:
    run = Drive(chain(FunctionNode(id="a", to=("a",)), "b"), limits=Limits(max_visits=2))
    run.finish("a", {"log": [1]}, goto="a")
    run.finish("a", {"log": [2]}, goto="a")
    assert run.error[0] == "max_visits"
    run.start_again()

    assert [each.address for each in run.orders("a")][-1] == "graph:g;node:a:3"
    assert run.values == {"log": [1, 2]}


def test_a_retry_continues_the_branches_beside_a_visit_over_the_limit() -> None:
    ways = [(START, "a"), (START, "b"), ("a", "b"), ("a", "c")]
    run = Drive(graph("a", "b", "c", ways=ways), limits=Limits(max_visits=1))
    run.finish("b")
    run.finish("a")
    assert run.error == ("max_visits", ANY, "graph:g;node:b:2")
    run.start_again()

    assert run.running == ["b", "c"]


def test_a_failure_that_an_operator_let_stand_is_tried_again() -> None:
    run = Drive(chain(FunctionNode(id="a", on_error=AskHuman())))
    run.fail("a")
    run.answer("error", {"action": "fail"})
    assert run.status == "failed"
    run.start_again()

    assert run.running == ["a"]


@pytest.mark.parametrize("on_error", [Fail(), AskHuman()])
def test_work_that_found_no_way_out_is_not_done_again_and_takes_one_after_a_patch(
    on_error: Any,
) -> None:
    work = FunctionNode(id="a", on_error=on_error)
    run = Drive(graph(work, "b", ways=[(START, "a"), edge("a", "b", {"x": 1})]))
    run.finish("a", {"log": ["a"]})
    if on_error == AskHuman():
        run.answer("error", {"action": "fail"})
    assert run.error[0] == "no_way_out"

    run.start_again(patch={"x": 1})
    assert (run.started, run.running) == (["a", "b"], ["b"])
    assert run.values == {"log": ["a"], "x": 1}


def test_a_nested_graph_that_an_operator_let_fail_asks_its_questions_under_new_ids() -> None:
    inner = chain(gate("ask"), "work", name="inner")
    run = Drive(chain(nested("sub", inner, on_error=AskHuman())))
    before = run.open("ask").id
    run.answer("ask", 1)
    run.fail("work")
    run.answer("error", {"action": "fail"})
    run.start_again()

    assert run.open("ask").id != before


def test_a_retry_continues_inside_a_nested_graph_with_its_journals() -> None:
    ways = [(START, "in1"), (START, "beside"), ("in1", "in2")]
    run = Drive(chain(nested("sub", graph("in1", "in2", "beside", ways=ways, name="inner"))))
    run.finish("in1", {"x": 1})
    run.fail("in2")
    assert run.status == "ending"
    run.stopped("beside", journal={"paid": True})
    assert run.status == "failed"

    run.start_again()
    assert run.started == ["in1", "beside", "in2", "beside", "in2"]
    assert [order.journal for order in run.orders("beside")] == [None, {"paid": True}]
    run.finish("in2")
    run.finish("beside")
    assert (run.status, run.values) == ("completed", {"x": 1})


@pytest.mark.parametrize("is_reported", [False, True])
def test_an_approved_call_that_may_have_been_made_is_not_made_again_without_a_question(
    is_reported: bool,
) -> None:
    run = reviewing()
    turn(run, gated("c1"))
    said(run, "c1", {"approved": True})
    asks(run, "c1", question("which", "question"), journal={"s": 1})
    said(run, "c1", "that", "which")
    for begun, left in ((1, 1), (2, 9), (9, 9)):
        run.cancel(mode="graceful" if is_reported else "now")
        if is_reported:
            failed(run, "c1")
        run.start_again()
        assert run.orders("pay")[-1].journal == {"s": 1, "/begun": begun}
        assert run.orders("pay")[-1].own_answers
        asks(run, "c1", question(f"made{begun}", "outcome"), journal={"s": 1, "/begun": left})
        said(run, "c1", {"action": "again"}, f"made{begun}")


def test_an_approved_call_whose_journal_is_known_keeps_it() -> None:
    run = reviewing()
    turn(run, gated("c1"))
    said(run, "c1", {"approved": True})
    run.cancel()
    run.stopped("pay", {"step": 1})
    run.start_again()

    assert run.orders("pay")[-1].journal == {"step": 1}
    assert run.orders("pay")[-1].address == f"{CLERK};tool:pay:c1"


def test_a_retry_of_what_runs_or_completed_is_refused() -> None:
    run = Drive(chain("a", finally_=["clean"]))
    refused = refusal(run)
    assert refused.message == "The run is running, and can be retried when it has ended."
    assert (refused.code, refused.details) == ("not_finished", {"run_status": "running"})
    run.cancel(mode="now")
    assert (run.status, refusal(run).code) == ("ending", "not_finished")
    run = Drive(chain("a"))
    run.finish("a")

    refused = refusal(run)
    assert refused.message.startswith("The run completed")
    assert (refused.code, refused.details) == ("run_finished", {"run_status": "completed"})


@pytest.mark.parametrize(
    "fields", [{"patch": {"x": 1}}, {"spec": chain(gate("ask", prompt="?"), "pay")}]
)
def test_a_retry_that_changes_the_course_takes_every_capability(fields: Mapping[str, Any]) -> None:
    run = Drive(chain(gate("ask", capability="approve"), "pay"))
    run.cancel()

    refused = refusal(run, ADA, **fields)
    assert refused.message.startswith("You may not retry the run: missing ")
    assert refused.details["capabilities"] == ["approve"]
    refused = refusal(run, Principal(subject="eve"))
    assert refused.message.startswith("You may not retry the run: missing ")
    assert refused.details["capabilities"] == ["runs:control"]
    for who in (ADA, TEMPORAL):
        again = run.copy()
        again.start_again(who)
        assert again.status == "awaiting-input"


def test_a_retry_may_move_the_run_to_another_graph_with_what_ran() -> None:
    run = Drive(graph("one", "two", ways=[(START, "one"), (START, "two")]))
    run.fail("one")
    run.stopped("two", {"s": 1})
    spec = graph("one", "three", ways=[(START, "one"), (START, "three")])
    assert refusal(run, spec=spec).code == "cannot_migrate"
    run.start_again(spec=spec, renames={"two": "three"})

    assert sorted(run.running) == ["one", "three"]
    assert run.orders("three")[-1].journal == {"s": 1}
