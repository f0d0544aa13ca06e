"""Graphs inside a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_agents import gated, helper, reviewing, said, turn
from core_drive import Drive, chain, edge, graph, nested
from core_rules import rule

from abeyance.core.json import Json
from abeyance.core.spec import END, START, GraphSpec, HaltRun, Reducer, Route
from abeyance.core.state import Limits

FIELDS: Mapping[str, Reducer] = {"x": "last", "log": "append", "sum": "add", "by": "merge"}
DEEP = "graph:g;node:n;graph:inner;node:deep"


def inner(*nodes: Any, **kwargs: Any) -> GraphSpec:
    return chain(*(nodes or ("deep",)), name="inner", fields=FIELDS, **kwargs)


def around(spec: GraphSpec, values: Mapping[str, Json] | None = None, **kwargs: Any) -> Drive:
    """`n` is a graph, `after` comes after it."""
    return Drive(chain(nested("n", spec, **kwargs), "after", fields=FIELDS), values=values)


# walking


def test_a_nested_graph_is_walked_at_its_own_address_within_the_run() -> None:
    run = around(inner(), {"x": 1})
    (order,) = run.orders("deep")
    assert (order.address, order.path, order.graph) == (DEEP, ("n",), "inner")
    assert order.values == {"x": 1}
    assert (run.status, run.running) == ("running", ["deep"])

    run.finish("deep", {"x": 2})
    assert run.running == ["after"]
    assert run.values == {"x": 2}
    assert list(run.state.scopes) == ["graph:g"]
    run.finish("after")
    assert run.status == "completed"


def test_a_nested_graph_in_a_loop_begins_anew_each_time() -> None:
    spec = graph(
        nested("n", inner()),
        ways=[(START, "n"), edge("n", "n", {"x": "again"}), edge("n", END, "else")],
        fields=FIELDS,
    )
    run = Drive(spec)
    run.finish("deep", {"x": "again", "sum": 1})
    assert run.visit("deep").address == "graph:g;node:n:2;graph:inner;node:deep"
    assert run.orders("deep")[1].values == {"x": "again", "sum": 1}
    run.finish("deep", {"x": "done", "sum": 1})

    assert (run.status, run.values) == ("completed", {"x": "done", "sum": 2})


def test_an_empty_way_through_a_nested_graph_completes_it_at_once() -> None:
    spec = graph("deep", ways=[edge(START, "deep", {"x": 1}), edge(START, END, "else")], name="in")

    assert around(spec).running == ["after"]


def test_routes_and_rules_of_the_outer_graph_look_at_what_came_out() -> None:
    spec = graph(
        nested("n", inner()),
        "a",
        "b",
        ways=[(START, "n")],
        routes=[Route(source="n", name="r", targets=("a", "b"))],
        rules=[rule("h", "n", HaltRun(reason="9"), x=9)],
        fields=FIELDS,
    )
    run = Drive(spec, values={"log": ["0"]})
    run.finish("deep", {"log": ["1"]})
    assert run.decisions()[0].values == {"log": ["0", "1"]}
    run.pause(mode="now")
    run.stopped("n")
    run.resume()
    assert run.decisions()[1].values == {"log": ["0", "1"]}
    run.finish("n", routed=("b",))
    assert (run.running, run.values) == (["b"], {"log": ["0", "1"]})

    halted = Drive(spec)
    halted.finish("deep", {"x": 9})
    halted.finish("n", routed=("b",))
    assert (halted.status, halted.ending.reason) == ("halted", "9")


# what goes in and what comes out


def test_a_mapping_says_what_goes_in_and_what_comes_out() -> None:
    run = around(
        inner(),
        {"x": 1, "log": ["out"]},
        input={"sum": "x"},
        output={"x": "sum"},
        defaults={"x": 7},
    )
    assert run.orders("deep")[0].values == {"x": 7, "sum": 1}
    run.finish("deep", {"sum": 2, "log": ["lost"], "x": 8})

    assert run.values == {"x": 3, "log": ["out"]}


def test_what_the_graph_does_not_have_stays_where_it_is() -> None:
    spec = chain("deep", name="inner", fields={"x": "last", "own": "last"})
    # `own` is a field of the inner graph alone.
    run = around(spec, {"x": 1, "log": ["out"], "own": 0})
    assert run.orders("deep")[0].values == {"x": 1}
    run.finish("deep", {"own": 1, "x": 2})

    assert run.values == {"x": 2, "log": ["out"], "own": 0}


def test_an_output_that_was_never_set_changes_nothing() -> None:
    run = around(inner(), {"x": 1}, input={}, output={"x": "by", "sum": "sum"})
    run.finish("deep", {"sum": 3})

    assert run.values == {"x": 1, "sum": 3}


def test_an_output_under_another_name_is_taken_whole() -> None:
    run = around(inner(), {"log": ["0"]}, input={"log": "log"}, output={"by": "by", "x": "log"})
    run.finish("deep", {"log": ["1"]})

    assert run.values == {"log": ["0"], "x": ["0", "1"]}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"log": ["0"]}, {"log": ["1"]}, {"log": ["0", "1"]}),
        ({"log": ["0"]}, {}, {"log": ["0"]}),
        ({}, {"log": ["1"]}, {"log": ["1"]}),
        ({"sum": 2}, {"sum": 3}, {"sum": 5}),
        ({"by": {"a": 1}}, {"by": {"b": 2}}, {"by": {"a": 1, "b": 2}}),
        ({"x": True}, {"x": 1}, {"x": 1}),
    ],
)
def test_what_both_sides_add_to_is_added_to_once(
    before: dict[str, Json], patch: dict[str, Json], after: dict[str, Json]
) -> None:
    run = around(inner(), before)
    run.finish("deep", patch)

    assert run.values == after
    assert [type(value) for value in run.values.values()] == [type(v) for v in after.values()]


def test_a_list_that_was_replaced_inside_is_appended_outside() -> None:
    spec = chain("deep", name="inner", fields={"log": "last"})
    run = around(spec, {"log": ["0"]})
    run.finish("deep", {"log": ["other"]})

    assert run.values == {"log": ["0", "other"]}


def test_what_is_too_large_to_be_added_fails_the_node_that_the_graph_is() -> None:
    spec = chain("deep", name="inner", fields={"sum": "last"})
    run = around(spec, {"sum": 1.5})
    run.finish("deep", {"sum": 10**400})

    assert run.error[0] == "invalid_patch"
    assert run.error[2] == "graph:g;node:n"


def test_another_branch_may_change_the_same_field_meanwhile() -> None:
    spec = graph(
        nested("n", inner()), "beside", ways=[(START, "n"), (START, "beside")], fields=FIELDS
    )
    run = Drive(spec, values={"log": ["0"], "sum": 1, "x": "0"})
    run.finish("beside", {"log": ["beside"], "sum": 10, "x": "beside"})
    run.finish("deep", {"log": ["deep"], "sum": 100})

    assert run.values == {"log": ["0", "beside", "deep"], "sum": 111, "x": "beside"}


def test_a_graph_of_open_values_hands_everything_through() -> None:
    spec = GraphSpec(name="inner", open_values=True, nodes=inner().nodes, edges=inner().edges)
    outer = chain(nested("n", spec), "after", fields={})
    outer = GraphSpec(name="g", open_values=True, nodes=outer.nodes, edges=outer.edges)
    run = Drive(outer, values={"any": 1})
    assert run.orders("deep")[0].values == {"any": 1}
    run.finish("deep", {"more": 2})

    assert run.values == {"any": 1, "more": 2}


def test_what_comes_out_must_fit() -> None:
    run = around(inner(), output={"sum": "x"})
    run.finish("deep", {"x": "many"})

    assert (run.error[0], run.error[2]) == ("invalid_patch", "graph:g;node:n")


def test_what_is_handed_in_counts_towards_the_size_of_a_visits_input() -> None:
    node = nested("n", inner(), defaults={"x": "y" * 1_000})
    run = Drive(chain(node, fields=FIELDS), limits=Limits(visit_bytes=1_000))

    assert (run.error[0], run.error[2]) == ("visit_too_large", DEEP)


# agents


def test_an_agent_is_given_what_its_call_was_asked_with_and_what_people_said_about_it() -> None:
    run = reviewing(helper(), limits=Limits(allowed_media_hosts=("files.example",)))
    turn(run, gated("c1", "ask_helper"), transcript="t1")
    said(run, "c1", {"approved": True})

    assert run.orders("model")[-1].values["input"] == {
        "values": {**run.orders("model")[0].values, "transcript": "t1"},
        "item": {"tool": "ask_helper", "call_id": "c1"},
        "result": None,
        "answers": {"/approval/approve": {"approved": True}},
        "media_hosts": ["files.example"],
    }


@pytest.mark.parametrize(("is_denied", "x"), [(True, 1), (False, None)])
def test_an_agent_that_was_denied_leaves_its_field_as_it_is(is_denied: bool, x: Json) -> None:
    run = reviewing(node={"output": {"x": "output", "log": "transcript"}}, values={"x": 1})
    taken: dict[str, Json] = {} if is_denied else {"input": None}
    run.finish("model", {"output": None, "transcript": ["t1"], **taken})

    assert run.values == {"x": x, "log": ["t1"]}
