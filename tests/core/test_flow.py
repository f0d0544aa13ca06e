"""The way through a graph, by its edges, its code and its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from core_drive import Drive, chain, edge, gate, graph

from abeyance.core.json import Json
from abeyance.core.spec import END, START, FunctionNode, GoTo, GraphSpec, Route
from abeyance.core.state import Limits
from abeyance.errors import Code, Refusal

# from START to END


def test_nodes_run_one_after_another_and_the_run_completes_with_its_values() -> None:
    run = Drive(chain("first", "second"), values={"x": 1})
    assert run.running == ["first"]

    run.finish("first", {"x": 2, "log": ["first"]})
    assert run.running == ["second"]
    assert (run.orders("second")[0].values, run.state.root.version) == (
        {"x": 2, "log": ["first"]},
        2,
    )

    run.finish("second")
    assert (run.status, run.values) == ("completed", {"x": 2, "log": ["first"]})
    assert run.state.counters.visits == 2


def test_input_that_is_not_json_never_becomes_a_run() -> None:
    with pytest.raises(Refusal, match="input of the run is not JSON") as caught:
        Drive(chain("work"), values={"x": float("inf")})

    assert caught.value.code is Code.INVALID_INPUT


# branches


def test_two_plain_edges_to_a_node_start_it_twice() -> None:
    run = Drive(graph("a", "b", "c", ways=[(START, "a"), (START, "b"), ("a", "c"), ("b", "c")]))
    run.finish("a")
    run.finish("b")

    assert [order.address for order in run.orders("c")] == ["graph:g;node:c", "graph:g;node:c:2"]


# conditions


@pytest.mark.parametrize(
    ("x", "started"),
    [
        (1, ["one", "also"]),
        (1.0, ["one", "also"]),
        (True, ["other"]),
        ("1", ["other"]),
        ({"deep": {"er": 5}}, ["deep"]),
        ({"deep": {"er": 6}}, ["other"]),
        ({"deep": 5}, ["other"]),
    ],
)
def test_every_edge_whose_condition_holds_fires_and_else_is_the_rest(
    x: Json, started: list[str]
) -> None:
    spec = graph(
        "one",
        "also",
        "deep",
        "other",
        ways=[
            edge(START, "one", {"x": 1}),
            edge(START, "also", {"x": 1, "log": ["a"]}),
            edge(START, "deep", {"x.deep.er": 5}),
            edge(START, "other", "else"),
        ],
    )

    assert Drive(spec, values={"x": x, "log": ["a"]}).started == started


@pytest.mark.parametrize(
    "values", [{}, {"x": None}, {"x": {"deep": 1}}, {"x": {"deep": {"er": None}}}]
)
def test_a_missing_value_is_null_to_a_condition(values: Mapping[str, Json]) -> None:
    spec = graph("a", "b", ways=[edge(START, "a", {"x.deep.er": None}), edge(START, "b", "else")])

    assert Drive(spec, values=values).started == ["a"]


def test_a_node_whose_conditions_all_fail_has_no_way_out() -> None:
    run = Drive(graph("a", "b", ways=[(START, "a"), edge("a", "b", {"x": "after"})]))
    run.finish("a")
    code, message, address = run.error
    assert (code, address) == ("no_way_out", "graph:g;node:a")
    assert "none of the conditions on the ways out of 'a' holds" in message
    assert "when='else'" in message


def test_input_that_no_way_from_start_takes_fails_the_run() -> None:
    run = Drive(graph("a", ways=[edge(START, "a", {"x": 1})]), values={"x": 2})

    code, message, address = run.error
    assert (code, address) == ("no_way_out", "graph:g")
    assert "edges from START holds for this input" in message
    assert run.started == []


# goto


@pytest.mark.parametrize(("goto", "running"), [("c", ["c"]), (END, [])])
def test_a_goto_replaces_the_edges(goto: str, running: list[str]) -> None:
    spec = graph(FunctionNode(id="a", to=("c",)), "b", "c", ways=[(START, "a"), ("a", "b")])
    run = Drive(spec)
    run.finish("a", {"x": 1}, goto=goto)

    assert (run.running, run.values) == (running, {"x": 1})


# failures


@pytest.mark.parametrize("by", ["its code", "a bad patch"])
@pytest.mark.parametrize(("target", "running"), [("mend", ["mend"]), (END, [])])
def test_a_failure_goes_where_on_error_says(target: str, running: list[str], by: str) -> None:
    node = FunctionNode(id="a", on_error=GoTo(node=target))
    mend = [edge(START, "mend", {"x": "never"}), edge(START, "a", "else")]
    run = Drive(graph(node, "mend", "b", ways=[*mend, ("a", "b")]))
    if by == "its code":
        run.fail("a")
    else:
        run.finish("a", {"nope": 1})

    assert run.running == running
    assert run.state.ending is None or run.status == "completed"


def test_a_bad_patch_fails_the_visit_and_changes_nothing() -> None:
    run = Drive(chain("a", "b"), values={"x": 1})
    run.finish("a", {"x": 2, "nope": 1})
    code, message, address = run.error
    assert (code, address) == ("invalid_patch", "graph:g;node:a")
    assert "sets 'nope'" in message
    assert (run.values, run.state.root.version) == ({"x": 1}, 1)


# round and round, but not forever


def test_a_loop_without_people_is_bounded() -> None:
    ways = [(START, "a"), ("a", "a"), ("a", "b")]
    run = Drive(graph("a", "b", ways=ways), limits=Limits(max_visits=1))
    run.finish("a")

    code, message, address = run.error
    assert (code, address, run.started) == ("max_visits", "graph:g;node:a:2", ["a"])
    assert "'a' has been visited 1 times" in message
    assert "max_visits" in message


@pytest.mark.parametrize("by", ["an answer", "a message"])
def test_people_start_the_count_anew(by: str) -> None:
    asks = by == "an answer"
    ways = [(START, "a"), *([("a", "ask"), ("ask", "a")] if asks else [("a", "a")])]
    run = Drive(
        graph("a", *([gate("ask")] if asks else []), ways=ways), limits=Limits(max_visits=1)
    )
    for number in range(4):
        if asks:
            run.finish("a")
            run.answer("ask")
        else:
            run.send(f"m{number}")
            run.finish("a")
    assert run.running == ["a"]

    if not asks:
        run.send("m3")
        run.finish("a")
        assert run.error[0] == "max_visits"


# routes


ROUTED = graph(
    "a",
    "b",
    "c",
    "rest",
    ways=[(START, "a"), edge("a", "rest", "else")],
    routes=[Route(source="a", name="r", targets=("b", "c", END))],
)


@pytest.mark.parametrize(
    ("routed", "running"),
    [
        (("b",), ["b"]),
        (("c", "b", "c"), ["c", "b"]),
        ((END,), []),
        ((), ["rest"]),
    ],
)
def test_a_route_picks_among_its_targets_and_else_is_the_rest(
    routed: tuple[str, ...], running: list[str]
) -> None:
    run = Drive(ROUTED)
    run.finish("a", routed=routed)

    assert run.running == running


def test_a_route_and_a_condition_both_count() -> None:
    spec = graph(
        "a",
        "b",
        "c",
        ways=[(START, "a"), edge("a", "c", {"x": 1})],
        routes=[Route(source="a", name="r", targets=("b",))],
    )
    both, only_condition = Drive(spec), Drive(spec)
    both.finish("a", {"x": 1}, routed=("b",))
    only_condition.finish("a", {"x": 1}, routed=())

    assert (both.running, only_condition.running) == (["c", "b"], ["c"])


@pytest.mark.parametrize("chosen", [{"routed": ("rest",)}, {"goto": "b"}, {"goto": "nowhere"}])
def test_a_target_that_was_not_declared_fails_the_visit(chosen: dict[str, Any]) -> None:
    run = Drive(ROUTED)
    run.finish("a", **chosen)

    code, message, address = run.error
    assert (code, address) == ("unknown_node", "graph:g;node:a")
    assert repr(next(iter(chosen.values()))).strip("(,)") in message
    assert "'END'" in message


# after a gate

GATED = graph(
    gate("ask", answer_to="log"),
    "yes",
    "no",
    ways=[(START, "ask")],
    routes=[Route(source="ask", name="r", targets=("yes", "no"))],
)


def test_a_gate_without_a_field_asks_its_route_on_the_values_as_they_are() -> None:
    spec = graph(
        gate("ask"), ways=[(START, "ask")], routes=[Route(source="ask", name="r", targets=(END,))]
    )
    run = Drive(spec, values={"x": 1})
    run.answer("ask", 5)
    run.finish("ask", routed=(END,))

    assert (run.status, run.values, run.state.root.version) == ("completed", {"x": 1}, 1)


@pytest.mark.parametrize("spec", [GATED, chain(gate("ask", answer_to="log"))])
def test_an_answer_that_its_field_cannot_take_fails_the_visit(spec: GraphSpec) -> None:
    run = Drive(spec)
    run.answer("ask", "no list")

    code, message, address = run.error
    assert (code, address) == ("invalid_patch", "graph:g;node:ask")
    assert "'log' merges by 'append'" in message
    assert run.settled("ask").status == "answered"
