"""Which branch a directive is for, and which gates it may leave or pass."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import ADA, Drive, Ways, chain, edge, gate, graph

from abeyance.core import events
from abeyance.core.outcome import Asked, Interrupted
from abeyance.core.spec import END, START, GraphSpec, InterruptSpec, SubgraphNode

INNER = "graph:g;node:outer;graph:inner"


def nested(*nodes: Any, after: str = "after") -> GraphSpec:
    """`inner` is a graph within the node `outer`, after `first` and before `after`."""
    inner = chain(*nodes)
    inner = GraphSpec(name="inner", fields=inner.fields, nodes=inner.nodes, edges=inner.edges)
    return chain("first", SubgraphNode(id="outer", graph=inner), after)


# For whom


def test_a_directive_is_for_the_branch_that_moved_last_unless_it_names_one() -> None:
    ways = [(START, "a"), (START, "b"), ("a", "a2"), ("a2", "a3"), ("b", "b2"), ("b2", "b3")]
    run = Drive(graph("a", "b", "a2", "a3", "b2", "b3", ways=ways))
    run.feed(events.Paused, actor="bob")
    run.finish("b")
    run.finish("a")
    run.direct("skip")
    run.direct("skip", target="graph:g;node:b2")
    run.feed(events.Resumed, actor="bob")

    assert sorted(run.running) == ["a3", "b3"]


def test_a_directive_waits_for_the_node_that_it_names() -> None:
    run = Drive(chain("a", "b", "c", "d"))
    run.direct("skip", target="c")
    run.finish("a")
    assert run.running == ["b"]
    run.finish("b")

    assert run.running == ["d"]


def test_a_node_that_was_left_just_now_still_names_its_branch() -> None:
    run = Drive(chain("a", "b", "c"))
    run.direct("rerun", target="a")
    run.finish("a", {"x": 1})
    assert (run.running, run.values) == (["a"], {})

    run.direct("rerun", target="graph:g;node:a:2")
    run.finish("a", {"x": 2})
    assert run.state.visits.keys() == {"graph:g;node:a:3"}


def test_a_node_that_was_left_before_the_last_one_names_no_branch_any_more() -> None:
    run = Drive(chain("a", "b", "c"))
    run.finish("a")
    run.direct("skip", target="a")
    run.finish("b")

    assert (run.running, len(run.state.mailbox.queue)) == (["c"], 1)


def test_a_directive_that_waits_for_its_branch_keeps_no_other_waiting() -> None:
    run = Drive(graph("a", "b", gate("ask"), ways=[(START, "a"), (START, "ask"), ("a", "b")]))
    run.direct("continue", target="a")
    run.direct("continue", target="b")
    run.direct("defer", "later", target="ask")

    assert [todo.text for todo in run.state.todos] == ["later"]


def test_what_a_directive_waits_for_may_never_come() -> None:
    ways: Ways = [
        (START, "a"),
        ("a", "b"),
        edge("a", "c", when={"x": 1}),
        edge("a", END, when="else"),
        ("c", "b"),
    ]
    run = Drive(graph("a", "b", "c", ways=ways))
    run.direct("rerun", target="c")
    run.direct("update_state", target="c", params={"patch": {"x": 1}})
    run.direct("defer", target="c")
    run.finish("a")
    run.finish("b")

    assert run.status == "completed"
    assert run.rejected() == [("d1", "no_branch"), ("d2", "no_branch")]
    assert "'c'" in str(run.facts("message.rejected")[0].data["reason"])
    assert len(run.state.todos) == 1


def test_a_scope_can_be_named() -> None:
    run = Drive(nested("in", "out"))
    run.finish("first")
    run.direct("skip", target=INNER)
    run.finish("in")

    assert run.running == ["after"]


@pytest.mark.parametrize("target", [None, "in", f"{INNER};node:in", INNER])
def test_a_nested_graph_with_nothing_left_is_gone_back_into(target: str | None) -> None:
    run = Drive(nested("in"))
    run.finish("first", {"x": 1})
    run.direct("rerun", target=target)
    run.finish("in", {"log": ["in"]})

    assert [visit.address for visit in run.state.visits.values()][1:] == [f"{INNER};node:in:2"]
    assert run.state.scopes[INNER].values == {"x": 1}
    run.finish("in", {"log": ["again"]})
    assert run.values == {"x": 1, "log": ["again"]}


def test_going_back_over_a_nested_graph_runs_all_of_it_again() -> None:
    run = Drive(nested(gate("ask"), "in"))
    run.finish("first")
    run.answer("ask", "yes")
    run.direct("rerun", target="outer")
    run.finish("in", {"x": 1})

    assert run.values == {}
    assert run.open("ask").address == "graph:g;node:outer:2;graph:inner;node:ask"


# Gates


def test_going_back_leaves_a_gate_only_for_those_who_could_open_it() -> None:
    run = Drive(chain("a", gate("ask", capability="approve"), "b"))
    run.finish("a", {"x": 1})
    run.direct("rerun", signalled=True)
    assert run.rejected() == [("d1", "capability_required")]
    assert (run.waiting, run.values) == (["ask"], {"x": 1})

    run.direct("rerun", capabilities=("approve",))
    assert (run.running, run.values) == (["a"], {})
    settled = run.settled("ask")
    assert (settled.status, settled.by) == ("superseded", "ada")
    assert settled.settled_reason == "the run went back (rerun)"
    run.finish("a")
    assert run.open("ask").address == "graph:g;node:ask:2"
    assert run.open("ask").id != settled.id


def test_going_back_over_a_gate_asks_again_and_takes_its_answer_out_of_the_values() -> None:
    run = Drive(chain("a", gate("ask", answer_to="x"), "b", "c"))
    run.finish("a")
    run.answer("ask", 5)
    run.direct("go_back", params={"steps": 1})
    run.finish("b", {"log": ["b"]})

    assert (run.waiting, run.values) == (["ask"], {})
    assert run.open("ask").address == "graph:g;node:ask:2"
    assert run.settled("ask").status == "answered"


def test_a_gate_cannot_be_skipped_neither_before_nor_while_it_asks() -> None:
    run = Drive(chain("a", gate("ask"), "b"))
    run.direct("skip")
    run.finish("a")
    run.direct("skip", capabilities=("*",))

    assert run.rejected() == [("d1", "not_skippable"), ("d2", "not_skippable")]
    for fact in run.facts("message.rejected"):
        assert fact.data["reason"] == "'ask' asks a person, and cannot be skipped"
    assert run.waiting == ["ask"]


def test_a_visit_that_waits_for_people_cannot_be_skipped() -> None:
    run = Drive(chain("a", "b"))
    asked = Asked(question=InterruptSpec(name="why", prompt="Why?"))
    run.end(Interrupted, visit=run.visit("a").address, interrupts=(asked,))
    run.direct("skip")

    assert run.rejected() == [("d1", "not_skippable")]


def test_a_nested_graph_is_skipped_only_by_those_who_could_open_its_gates() -> None:
    run = Drive(nested(gate("ask", capability="approve")))
    run.direct("skip", target="outer", signalled=True)
    run.finish("first")
    assert run.rejected() == [("d1", "capability_required")]
    assert run.waiting == ["ask"]

    run = Drive(nested(gate("ask", capability="approve")))
    run.direct("skip", target="outer", capabilities=("approve",))
    run.finish("first")
    assert run.running == ["after"]


def test_update_state_takes_the_capabilities_of_what_is_asked() -> None:
    run = Drive(chain("a", gate("ask", capability="approve"), "b"))
    run.finish("a")
    patch = {"patch": {"x": 1}}
    run.direct("update_state", params=patch, signalled=True)
    run.direct("update_state", params=patch, capabilities=("approve",))

    assert run.rejected() == [("d1", "capability_required")]
    assert run.values == {"x": 1}
    assert run.waiting == ["ask"]


def test_who_looks_at_a_node_after_it_has_run_may_have_it_run_again() -> None:
    spec = chain("a", "b", "c")
    spec = GraphSpec(
        name="g",
        fields=spec.fields,
        nodes=spec.nodes,
        edges=spec.edges,
        interrupt_after=("b",),
    )
    run = Drive(spec)
    run.finish("a", {"log": ["a"]})
    run.finish("b", {"log": ["b"]})
    assert (run.waiting, run.values) == (["b"], {"log": ["a", "b"]})
    run.direct("rerun", "shorter")

    assert (run.running, run.values) == (["b"], {"log": ["a"]})
    assert run.orders("b")[-1].guidance == "shorter"
    assert run.settled("interrupt_after").status == "superseded"
    run.finish("b", {"log": ["b2"]})
    run.direct("go_back")
    assert (run.running, run.values) == (["a"], {})


def test_a_directive_is_rejected_and_the_run_goes_on_to_its_end() -> None:
    run = Drive(chain("a", "b"))
    run.direct("go_back", params={"steps": 9})
    run.direct("update_state")
    run.finish("a")
    run.finish("b")

    assert (run.status, [code for _, code in run.rejected()]) == (
        "completed",
        ["not_linear", "invalid_params"],
    )
    assert run.state.counters.messages_delivered == 0
    assert ADA.subject == run.facts("message.rejected")[0].actor
