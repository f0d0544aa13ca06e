"""Visits: their states, the ways that they lead on, and how they start again."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from core_agents import call, reviewing, turn
from core_drive import T0, Drive, asked, chain, gate, graph, nested, reader
from core_gated import APPROVER, BOSS, CLERK, FIELDS, OPERATOR, Gated, approving, forked, refund
from core_graphs import AFTER, ask, edit, fan, results, routed, rule, sending, sent

from abeyance import core
from abeyance.core import events
from abeyance.core.bounds import RetryPolicy
from abeyance.core.outcome import Call, Emitted, Finished
from abeyance.core.spec import START, AskHuman, FunctionNode, GoTo, Node, Parallel, Retry, Route
from abeyance.core.terms import Quorum, Terms
from abeyance.core.visit import (
    IllegalTransitionError,
    Ready,
    RoutingDecision,
    Running,
    Visit,
    transition,
)


def test_a_visit_changes_its_state_as_the_table_says_and_in_no_other_way() -> None:
    visit = Visit(address="graph:g;node:a", scope="graph:g", node="a", state=Ready())
    with pytest.raises(IllegalTransitionError, match="graph:g;node:a cannot 'start'"):
        transition(visit, "start", Ready())
    with pytest.raises(IllegalTransitionError, match="graph:g;node:a cannot 'hold'"):
        transition(visit, "hold", Running())
    assert visit.state.kind == "ready"
    transition(visit, "start", Running())
    assert str(visit.state.kind) == "running"


def test_a_run_with_a_question_waits_for_people_only_once_nothing_else_can_go_on() -> None:
    run = Drive(graph("a", gate("ask"), ways=[(START, "a"), (START, "ask")]))
    run.retry("a", 5)
    assert (run.ready, run.status) == (["a"], "running")
    run.tick(5)
    run.feed(events.RotationDue, hard=True)
    run.stopped("a")
    assert (run.ready, run.status) == (["a"], "running")
    run.feed(events.Restored)
    run.finish("a")

    assert run.status == "awaiting-input"


def test_no_other_module_of_the_core_sets_the_state_of_a_visit() -> None:
    setters = {
        path.name
        for path in Path(core.__path__[0]).glob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Attribute)
        and each.attr == "state"
        and isinstance(each.ctx, ast.Store)
        and ast.unparse(each.value) != "self"
    }

    assert setters == {"visit.py"}


ASKING = rule("sure", "a", ask("sure"))


@pytest.mark.parametrize("is_item", [False, True])
def test_while_people_are_asked_after_its_code_a_visit_keeps_only_what_its_way_out_needs(
    is_item: bool,
) -> None:
    run = Drive(routed(rules=[ASKING]))
    if is_item:
        run = sent(fan("a", ways=[("one", "a")], after=["a"], rules=[ASKING]), [1])
        run.finish("one")
    run.finish(
        "a",
        {"x": 1},
        result={"content": 1},
        turn={"model": "m"},
        emitted=(Emitted(name="seen", time=T0),),
        journal={"step": 1},
    )
    run.answer(AFTER)

    (visit,) = run.state.visits.values()
    assert (visit.routing, visit.questions.answers) == (RoutingDecision(outcome=Finished()), {})


def test_routes_run_once_after_an_edit_although_a_rule_asks_then() -> None:
    run = Drive(routed(rules=[ASKING]))
    run.finish("a", goto="d")
    run.answer(AFTER, edit(1, x=5))
    run.answer("sure")

    assert (run.running, run.decided) == (["d"], [])


@pytest.mark.parametrize("is_guarded", [False, True])
def test_an_item_that_reads_once_more_leads_on_only_after_that(is_guarded: bool) -> None:
    node = replace(reader("one"), guarded=is_guarded)
    run = sent(fan(node, "also", ways=[("one", "also")]), ["a"])
    run.send("m1")
    run.finish("one", {"x": 1})
    if is_guarded:
        assert (run.running, [each.item for each in run.orders("one")]) == (["one"], ["a", "a"])
        run.finish("one")
    run.finish("also")

    assert results(run) == [("a", "arrived")]


def test_a_node_behind_a_join_that_a_rule_has_run_again_sees_the_same_items() -> None:
    run = sent(fan(rules=[rule("again", "c", Retry(), x=1)]), ["a", "b"])
    run.finish("one")
    run.finish("one")
    run.finish("c", {"x": 1})

    assert results(run) == [("a", "arrived"), ("b", "arrived")]


@pytest.mark.parametrize(
    ("node", "about", "again"),
    [
        ("lead", {"routes": [Route(source="lead", name="r", targets=("pay",))]}, "pay"),
        ("lead", {"rules": [rule("r", "lead", Parallel(nodes=("pay",)))]}, "pay"),
        ("lead", {"rules": [rule("r", "lead", Retry())], "ways": [("lead", "pay")]}, "lead"),
        (replace(reader("lead"), guarded=True), {"ways": [("lead", "pay")]}, "lead"),
    ],
)
def test_code_behind_a_gate_stays_covered_by_every_kind_of_way(
    node: str | Node, about: dict[str, Any], again: str
) -> None:
    ways = [(START, "ask"), ("ask", "lead"), *about.get("ways", [])]
    asking = approving(terms=Terms(quorum=Quorum(count=1)), schema={"type": "boolean"})
    spec = graph(asking, node, "pay", fields=FIELDS, **{**about, "ways": ways})
    run = Gated(spec)
    run.says(APPROVER, "ask")
    before = len(run.orders(again))
    run.send("m1", sender="ops", target="lead")
    run.pause()
    run.finish("lead", routed=("pay",) if "routes" in about else ())
    run.edit(BOSS, amount=999)
    run.resume()

    assert (run.reopened, len(run.orders(again))) == (["ask"], before)


def test_a_goto_of_a_node_that_declares_none_fails_it_and_says_how_to_declare_one() -> None:
    run = Drive(chain("a"))
    run.finish("a", goto="b")

    told = (
        "the node 'a' chose to go to 'b'; it may go to nowhere: declare its targets with to=[...]"
    )
    assert run.error == ("unknown_node", told, "graph:g;node:a")


def test_a_retry_of_the_run_asks_the_routes_of_a_visit_again_that_found_no_way_out() -> None:
    route = Route(source="a", name="r", targets=("b",))
    run = Drive(graph("a", "b", ways=[(START, "a")], routes=[route]))
    run.finish("a")
    run.start_again()
    run.finish("a", routed=("b",))

    assert (run.decided, run.running) == (["a"], ["b"])


# starting again


ONCE = FunctionNode(id="pay", retry=RetryPolicy(retries=0))


def needed_to_retry(run: Gated) -> list[str]:
    """Return the capabilities for a retry that somebody lacks who may only control runs."""
    refusal = run.refused_answer("error", {"action": "retry"}, principal=OPERATOR)
    missing: list[str] = refusal.details["capabilities"]
    return missing


def test_a_skipped_item_of_an_inner_fan_out_is_none_of_the_outer_one() -> None:
    leaf = FunctionNode(id="leaf", on_error=AskHuman())
    ways = [(["leaf"], "inner"), (["inner"], "c")]
    run = sent(
        sending(FunctionNode(id="one", to=("leaf",)), leaf, "inner", "c", ways=ways), ["outer"]
    )
    run.finish("one", sends=[("leaf", 1)])
    run.fail("leaf")
    # Nobody may edit the values of an item.
    assert run.open("error").response_schema == {
        "type": "object",
        "properties": {"action": {"enum": ["retry", "skip", "fail"]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    run.answer("error", {"action": "skip"})
    assert run.orders("inner")[0].results == [{"item": 1, "status": "skipped"}]
    run.finish("inner")

    assert results(run) == [("outer", "arrived")]


def test_a_nested_graph_that_is_tried_again_is_still_that_of_its_item() -> None:
    one = nested("one", chain("deep", name="inner"), on_error=AskHuman())
    run = sent(sending(one, "c", ways=[(["one"], "c")]), ["item"])
    run.fail("deep")
    run.answer("error", {"action": "retry"})
    run.finish("deep")

    assert results(run) == [("item", "arrived")]


def test_the_failure_route_of_a_question_is_entered_at_once() -> None:
    ask = gate("ask", capability="approve:{x}")
    sub = nested("sub", chain(ask, name="inner"), on_error=GoTo(node="after"))

    assert Drive(chain(sub, "after")).running == ["after"]


def test_a_nested_graph_that_is_tried_again_is_covered_by_the_gate_before_it() -> None:
    sub = nested("sub", refund(ONCE, name="inner"), on_error=AskHuman())
    run = Gated(refund(approving(), sub))
    run.says(APPROVER, "ask")
    for _ in range(2):
        run.fail("pay")
        assert needed_to_retry(run) == ["approve"]
        run.says(BOSS, "error", {"action": "retry"})


def test_a_gate_that_is_asked_again_is_still_behind_the_gates_before_it() -> None:
    first = approving("first", prompt="Order {order_id}?")
    run = Gated(forked((first, approving(prompt="Refund {amount}?"), "pay"), ("one",), ("two",)))
    run.says(APPROVER, "first")
    run.finish("one", {"amount": 999})
    run.says(APPROVER, "ask")
    assert run.reopened == ["ask"]
    run.finish("two", {"order_id": "B-8"})
    run.says(APPROVER, "ask")

    assert (run.reopened, run.running) == (["ask", "first"], [])


def test_a_question_that_is_open_is_not_asked_anew_by_code_that_starts_with_another_answer() -> (
    None
):
    run = Gated(refund("pay"))
    run.ask("pay", "one", "two", composite=True)
    run.says(CLERK, "one")

    assert (run.orders("pay")[-1].own_answers, run.orders("pay")[-1].ordinals) == (
        {"one": True},
        {},
    )


def test_the_code_of_a_tool_gets_its_call() -> None:
    run = reviewing()
    turn(run, call("c1"))

    assert run.orders("pay")[0].call == Call(tool="pay", id="c1")


@pytest.mark.parametrize("takes", [False, True])
def test_code_that_anybody_may_answer_is_bound_to_what_it_showed_also_after_a_message(
    *, takes: bool
) -> None:
    run = Gated(forked(("pay",), ("other",)))
    if takes:
        run.send("m")
        run.take("pay")
    run.ask("pay", asked("sure", prompt="Refund 250?"))
    run.finish("other", {"amount": 999})
    run.says(CLERK, "sure")

    assert [*run.orders("pay")[-1].shown_hashes] == ["sure"]
