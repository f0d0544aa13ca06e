"""Ways that user code decides."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import Drive, chain, edge, gate, graph

from abeyance.core.spec import END, START, GraphSpec, Route

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


def test_a_route_that_picks_nothing_without_an_else_has_no_way_out() -> None:
    route = Route(source="a", name="r", targets=(END,))
    run = Drive(graph("a", ways=[(START, "a")], routes=[route]))
    run.finish("a", routed=())

    assert run.error[0] == "no_way_out"


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
