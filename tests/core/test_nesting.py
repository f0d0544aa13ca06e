"""Nested graphs: their inputs and outputs, and how they fail, wait and are ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_agents import gated, helper, reviewing, said, turn
from core_drive import CONTROL, Drive, Ways, chain, edge, gate, graph, nested
from core_graphs import FIELDS, rule

from abeyance.core.json import Json
from abeyance.core.outcome import Finished
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Default,
    GoTo,
    GraphSpec,
    HaltRun,
    Reducer,
    Route,
)
from abeyance.core.state import Limits

DEEP = "graph:g;node:n;graph:inner;node:deep"


def inner(*nodes: Any, **kwargs: Any) -> GraphSpec:
    return chain(*(nodes or ("deep",)), name="inner", fields=FIELDS, **kwargs)


def around(spec: GraphSpec, values: Mapping[str, Json] | None = None, **kwargs: Any) -> Drive:
    """Start a run whose node `n` is this graph; `after` comes after it."""
    return Drive(chain(nested("n", spec, **kwargs), "after", fields=FIELDS), values=values)


# walking


def test_a_nested_graph_is_walked_at_its_own_address_within_the_run_and_anew_in_a_loop() -> None:
    ways: Ways = [(START, "n"), edge("n", "n", {"x": "again"}), edge("n", END, "else")]
    run = Drive(graph(nested("n", inner()), ways=ways, fields=FIELDS), values={"x": 1})
    (order,) = run.orders("deep")
    assert (order.address, order.path, order.graph) == (DEEP, ("n",), "inner")
    assert (order.values, run.status, run.running) == ({"x": 1}, "running", ["deep"])
    run.finish("deep", {"x": "again", "sum": 1})
    assert run.visit("deep").address == "graph:g;node:n:2;graph:inner;node:deep"
    assert run.orders("deep")[1].values == {"x": "again", "sum": 1}
    run.finish("deep", {"x": "done", "sum": 1})

    assert (run.status, run.values) == ("completed", {"x": "done", "sum": 2})
    assert list(run.state.scopes) == ["graph:g"]


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


# inputs and outputs


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


OWN: Mapping[str, Reducer] = {"x": "last", "own": "last"}


@pytest.mark.parametrize(
    ("fields", "about", "before", "patch", "after"),
    [
        (
            OWN,
            {},
            {"x": 1, "log": ["o"], "own": 0},
            {"own": 1, "x": 2},
            {"x": 2, "log": ["o"], "own": 0},
        ),
        (
            FIELDS,
            {"input": {}, "output": {"x": "by", "sum": "sum"}},
            {"x": 1},
            {"sum": 3},
            {"x": 1, "sum": 3},
        ),
        (
            FIELDS,
            {"input": {"log": "log"}, "output": {"by": "by", "x": "log"}},
            {"log": ["0"]},
            {"log": ["1"]},
            {"log": ["0"], "x": ["0", "1"]},
        ),
        ({"log": "last"}, {}, {"log": ["0"]}, {"log": ["other"]}, {"log": ["0", "other"]}),
    ],
    ids=["what it does not have stays", "never set", "under another name", "a list is replaced"],
)
def test_the_outputs_of_a_nested_graph_are_merged_into_the_outer_values(
    fields: Mapping[str, Reducer],
    about: dict[str, Any],
    before: dict[str, Json],
    patch: dict[str, Json],
    after: dict[str, Json],
) -> None:
    run = around(chain("deep", name="inner", fields=fields), before, **about)
    run.finish("deep", patch)

    assert run.values == after


def test_a_field_to_which_both_graphs_add_gets_each_addition_once() -> None:
    run = around(inner(), {"log": ["0"], "sum": 2, "by": {"a": 1}, "x": True})
    run.finish("deep", {"log": ["1"], "sum": 3, "by": {"b": 2}, "x": 1})

    assert run.values == {"log": ["0", "1"], "sum": 5, "by": {"a": 1, "b": 2}, "x": 1}
    assert run.values["x"] is not True


@pytest.mark.parametrize(
    ("fields", "about", "patch"),
    [
        ({"sum": "last"}, {}, {"sum": 10**400}),
        ({"x": "last"}, {"output": {"sum": "x"}}, {"x": "many"}),
    ],
)
def test_an_output_that_does_not_fit_fails_the_node_of_the_nested_graph(
    fields: Mapping[str, Reducer], about: dict[str, Any], patch: dict[str, Json]
) -> None:
    run = around(chain("deep", name="inner", fields=fields), {"sum": 1.5}, **about)
    run.finish("deep", patch)

    assert (run.error[0], run.error[2]) == ("invalid_patch", "graph:g;node:n")


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


def test_the_inputs_of_a_nested_graph_count_towards_the_visit_size() -> None:
    node = nested("n", inner(), defaults={"x": "y" * 1_000})
    run = Drive(chain(node, fields=FIELDS), limits=Limits(visit_bytes=1_000))

    assert (run.error[0], run.error[2]) == ("visit_too_large", DEEP)


# agents


def test_a_called_agent_gets_the_input_and_the_answers_of_its_call() -> None:
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


# failing


def test_the_node_outside_may_go_elsewhere_and_what_ran_inside_is_stopped() -> None:
    spec = graph(
        "deep",
        "too",
        gate("ask"),
        ways=[(START, "deep"), (START, "too"), (START, "ask")],
        name="inner",
    )
    run = around(spec, on_error=GoTo(node="after"))
    id_ = run.open("ask").id
    run.fail("deep")

    assert (run.running, run.asking) == (["after"], [])
    assert run.stops == [("graph:g;node:n;graph:inner;node:too", "ending", True)]
    assert run.settled("ask").settled_reason == "the visit failed"
    assert run.refused_response({id_: 1}).code == "withdrawn"
    run.end(Finished, visit="graph:g;node:n;graph:inner;node:too", patch={"x": 1})
    assert run.values == {}


def test_a_failure_deep_inside_is_dealt_with_by_the_nearest_who_does() -> None:
    middle = graph(
        nested(
            "m",
            chain(nested("k", inner()), name="low", fields=FIELDS),
            on_error=GoTo(node="caught"),
        ),
        "caught",
        ways=[(START, "m")],
        name="middle",
        fields=FIELDS,
    )
    run = around(middle, on_error=GoTo(node="after"))
    run.fail("deep")

    assert run.running == ["caught"]
    run.finish("caught", {"x": "caught"})
    assert run.orders("after")[0].values == {"x": "caught"}


@pytest.mark.parametrize(
    "ways",
    [
        [edge(START, "deep", {"x": 1})],
        [
            (START, "deep"),
            edge("deep", "b", {"x": 1}),
            edge("deep", END, "else"),
            (("deep", "b"), "c"),
        ],
        [(START, "deep"), ("deep", "deep"), ("deep", "b"), (("deep", "b"), "c")],
        [(START, "deep"), edge("deep", END, {"x": 1})],
    ],
    ids=["no way in", "a join starves", "too many visits", "no way out"],
)
def test_whatever_fails_a_graph_fails_only_the_node_that_it_is_and_stops_the_rest(
    ways: list[Any],
) -> None:
    names = [name for name in ("b", "c") if f"{name!r}" in str(ways)]
    node = nested("n", graph("deep", *names, ways=ways, name="inner"), on_error=GoTo(node="after"))
    run = Drive(chain(node, "after"), limits=Limits(max_visits=1))
    if run.running == ["deep"]:
        run.finish("deep")

    assert (run.running, run.orders("b")) == (["after"], [])
    assert (run.state.ending, list(run.state.scopes)) == (None, ["graph:g"])


def test_an_operator_may_try_a_nested_graph_again_from_its_beginning() -> None:
    run = around(inner("deep", "deeper"), {"sum": 1}, on_error=AskHuman())
    run.finish("deep", {"sum": 1})
    run.ask("deeper", "plan")
    first = run.open("plan").id
    run.answer("plan")
    run.fail("deeper")
    assert run.asking == [("error", "graph:g;node:n")]
    assert run.status == "awaiting-input"
    run.answer("error", {"action": "retry"})
    assert run.orders("deep")[1].values == {"sum": 1}
    assert run.visit("deep").address == "graph:g;node:n:2;graph:inner;node:deep"
    run.finish("deep", {"sum": 1})
    run.ask("deeper", "plan")
    assert run.open("plan").id != first
    run.answer("plan")
    run.finish("deeper")

    assert run.orders("after")[0].values == {"sum": 2}


# asking


def test_an_answer_inside_is_for_the_nodes_inside() -> None:
    run = around(inner(gate("ask", answer_to="x"), "deep"))
    run.answer("ask", "yes")
    assert run.orders("deep")[0].answers == {"ask": "yes"}
    run.finish("deep")

    assert run.orders("after")[0].answers == {}
    assert run.values == {"x": "yes"}


@pytest.mark.parametrize("on_timeout", [GoTo(node="deep"), Default(answer="late")])
def test_a_deadline_inside_leads_on_inside(on_timeout: Any) -> None:
    spec = inner(gate("ask", timeout=60, on_timeout=on_timeout), "deep")
    run = around(spec)
    run.tick(60)

    assert run.visit("deep").address == DEEP


# controls


def test_a_goto_at_the_deadline_of_a_pause_leaves_every_nested_graph() -> None:
    run = around(graph("deep", gate("ask"), ways=[(START, "deep"), (START, "ask")], name="inner"))
    run.pause(capabilities=CONTROL, timeout=60, on_timeout=GoTo(node="after"))
    run.tick(60)

    assert (run.running, run.asking) == (["after"], [])
    assert list(run.state.scopes) == ["graph:g"]
    assert run.stops == [(DEEP, "ending", True)]


def test_an_ending_waits_for_what_runs_inside_and_runs_the_finally_nodes() -> None:
    run = Drive(chain(nested("n", inner("deep", "deeper")), finally_=["tidy"]))
    run.cancel()
    assert run.stops == [(DEEP, "ending", False)]
    run.finish("deep")
    assert run.running == ["tidy"]
    run.finish("tidy")

    assert (run.status, run.orders("deeper")) == ("cancelled", [])


def test_a_message_starts_the_counts_of_every_graph_anew() -> None:
    spec = graph("deep", ways=[(START, "deep"), ("deep", "deep")], name="inner")
    run = Drive(chain(nested("n", spec)), limits=Limits(max_visits=1))
    run.send("m")
    run.finish("deep")

    assert run.running == ["deep"]
