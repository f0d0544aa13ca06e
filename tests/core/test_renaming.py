"""What refers to a node, a join or a question gets its new name by the type of its field."""

from __future__ import annotations

from dataclasses import replace

from core_drive import Drive, asked, chain, gate, graph
from core_fans import fan, sent

from abeyance.core.outcome import Call, Finished, Send
from abeyance.core.renaming import Places
from abeyance.core.spec import END, START, GoTo
from abeyance.core.visit import RoutingDecision


def test_a_visit_and_all_that_it_has_asked_get_their_new_names() -> None:
    run = Drive(chain(gate("ask")))
    (visit,) = run.state.visits.values()
    visit.misfits = {"ask": "not a number", "/rule/r": "not a number either"}
    places = Places(run.state, chain(gate("check")), {"ask": "check"})
    moved = places.row(visit, (), visit.address, ("ask",))

    assert (moved.address, moved.node) == ("graph:g;node:check", "check")
    assert moved.misfits == {"check": "not a number", "/rule/r": "not a number either"}
    assert moved.questions.ask_counts == {"check": 1}


def test_what_code_and_rules_have_chosen_gets_its_new_name_and_a_call_stays_as_it_is() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), ("a", "b"), ("b", END)]))
    other = graph("a", "c", ways=[(START, "a"), ("a", "c"), ("c", END)])
    places = Places(run.state, other, {"b": "c"})
    call = Call(tool="b", id="1", interrupts=(asked("b", on_timeout=GoTo(node="b")),))
    outcome = Finished(
        goto="b", route_targets=("b", END), sends=(Send(node="b", item="b", call=call),)
    )
    route = RoutingDecision(outcome=outcome, decision=GoTo(node="b"))
    moved = places.row(route, (), "graph:g;node:a")

    assert moved == replace(
        route,
        outcome=replace(
            outcome,
            goto="c",
            route_targets=("c", END),
            sends=(Send(node="c", item="b", call=call),),
        ),
        decision=GoTo(node="c"),
    )
    assert places.obstacles == []


def test_a_row_that_refers_to_nothing_else_is_equal_to_itself() -> None:
    run = sent(fan(), [1, 2])
    (scope,) = run.state.scopes.values()
    places = Places(run.state, run.state.spec, {})

    assert places.row(scope, (), scope.address) == scope
