"""The way through a graph."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from core_drive import Drive, chain, edge, gate, graph

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.outcome import Failed, Finished, Stopped
from abeyance.core.spec import END, START, FunctionNode, GoTo, GraphSpec
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


def test_a_run_starts_once_however_often_it_is_told_to() -> None:
    run = Drive(chain("work"))
    run.feed(events.Started)
    assert run.started == ["work"]

    run.finish("work")
    run.feed(events.Started)
    assert run.started == ["work"]


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
def test_what_is_missing_is_null_to_a_condition(values: Mapping[str, Json]) -> None:
    spec = graph("a", "b", ways=[edge(START, "a", {"x.deep.er": None}), edge(START, "b", "else")])

    assert Drive(spec, values=values).started == ["a"]


def test_conditions_look_at_the_values_after_the_patch() -> None:
    run = Drive(chain_with_condition(), values={"x": "before"})
    run.finish("a", {"x": "after"})

    assert run.running == ["b"]


def chain_with_condition() -> GraphSpec:
    return graph("a", "b", ways=[(START, "a"), edge("a", "b", {"x": "after"})])


def test_a_node_whose_conditions_all_fail_has_no_way_out() -> None:
    run = Drive(chain_with_condition())
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


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({"nope": 1}, "sets 'nope'"),
        ({"log": 1}, "'log' merges by 'append'"),
        ({"x": float("nan")}, "'x'"),
    ],
)
def test_a_bad_patch_fails_the_visit_and_changes_nothing(
    patch: Mapping[str, Json], told: str
) -> None:
    run = Drive(chain("a", "b"), values={"x": 1})
    run.finish("a", {"x": 2, **patch})

    code, message, address = run.error
    assert (code, address) == ("invalid_patch", "graph:g;node:a")
    assert told in message
    assert (run.values, run.state.root.version) == ({"x": 1}, 1)


# what comes late


def test_an_outcome_that_comes_twice_or_for_what_does_not_run_counts_for_nothing() -> None:
    ways = [(START, "a"), (START, "ask"), ("a", "c")]
    run = Drive(graph("a", gate("ask"), "c", ways=ways))
    visit = run.visit("a").address
    run.finish("a", {"log": [1]})
    before = run.seen()

    run.end(Finished, visit=visit, patch={"log": [2]})
    run.end(Failed, visit=visit, code="node_failed", message="late")
    run.end(Stopped, visit=visit)
    run.end(Finished, visit="graph:g;node:never")
    run.end(Finished, visit=run.open("ask").visit)

    assert run.seen() == before
    assert run.last == ()


# round and round, but not for ever


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
