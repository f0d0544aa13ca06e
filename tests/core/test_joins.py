"""Joins: when a node starts at which branches meet."""

from __future__ import annotations

import pytest
from core_drive import Drive, edge, gate, graph

from abeyance.core.spec import END, START
from abeyance.core.visit import Token

JOINED = graph(
    "a",
    "b",
    "c",
    ways=[(START, "a"), (START, "b"), (("a", "b"), "c")],
)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_join_starts_once_when_every_source_has_come(order: tuple[str, str]) -> None:
    run = Drive(JOINED)
    run.finish(order[0])
    assert run.running == [order[1]]

    run.finish(order[1])
    assert run.running == ["c"]
    assert run.state.root.tokens == {}
    run.finish("c")
    assert run.status == "completed"


def test_start_may_be_a_source_of_a_join() -> None:
    run = Drive(graph("a", "c", ways=[(START, "a"), ((START, "a"), "c")]))
    assert (run.running, run.state.root.tokens) == (
        ["a"],
        {"START+a>c": {START: (Token(visit="graph:g"),)}},
    )
    run.finish("a")

    assert run.running == ["c"]


LOOPED = graph(
    "a",
    "b",
    "c",
    ways=[
        (START, "a"),
        (START, "b"),
        edge("a", "a", {"x": "again"}),
        edge("a", END, "else"),
        (("a", "b"), "c"),
        edge("b", "b", {"x": "b again"}),
        edge("b", END, "else"),
    ],
)


def token(node: str) -> Token:
    return Token(visit=f"graph:g;node:{node}")


def test_a_join_in_a_loop_pairs_what_came_first_with_what_came_first() -> None:
    run = Drive(LOOPED)
    run.finish("a", {"x": "again"})
    run.finish("a", {"x": None})
    assert run.state.root.tokens == {"a+b>c": {"a": (token("a"), token("a:2"))}}

    run.finish("b", {"x": "b again"})
    assert run.state.root.tokens == {"a+b>c": {"a": (token("a:2"),)}}
    run.finish("b", {"x": None})
    assert run.running == ["c", "c"]
    assert run.state.root.tokens == {}


def test_a_join_that_can_never_be_complete_fails_the_run() -> None:
    run = Drive(LOOPED)
    run.finish("b")
    run.finish("a", {"x": "again"})
    run.finish("a", {"x": None})
    assert run.status == "running"
    run.finish("c")

    code, message, address = run.error
    assert (code, address) == ("join_starved", "graph:g")
    assert (
        "the join of 'a', 'b' into 'c' waits for 'b', which cannot come any more; 'a' did"
        in message
    )


def test_a_join_starves_only_when_nothing_else_can_happen() -> None:
    spec = graph(
        "a",
        "b",
        "c",
        gate("ask"),
        ways=[
            (START, "a"),
            (START, "ask"),
            edge("ask", "b", {"x": "go"}),
            edge("ask", END, "else"),
            (("a", "b"), "c"),
        ],
    )
    run = Drive(spec)
    run.finish("a")
    assert run.status == "awaiting-input"

    run.pause()
    run.answer("ask")
    assert run.status == "paused"
    run.resume()
    assert run.error[0] == "join_starved"


ARRIVED = graph(
    *("a", "b", "c", "d"),
    ways=[
        *((START, "a"), (START, "d")),
        *(edge("a", "a", {"x": "again"}), edge("a", "b", {"x": "b"}), edge("a", END, "else")),
        edge(("a", "b"), "c", join="arrived"),
    ],
)


def test_a_join_of_what_arrived_starts_in_the_end_once_for_each_that_came() -> None:
    run = Drive(ARRIVED)
    run.finish("a", {"x": "again"})
    run.finish("a", {"x": None})
    assert run.running == ["d"]

    run.finish("d")
    for _ in range(2):
        assert run.running == ["c"]
        run.finish("c")
    assert (run.status, run.state.root.tokens) == ("completed", {})


def test_a_join_of_what_arrived_starts_at_once_when_all_have_come() -> None:
    run = Drive(ARRIVED)
    run.finish("a", {"x": "b"})
    run.finish("b")

    assert run.running == ["d", "c"]


def test_a_join_of_what_arrived_goes_before_one_that_starves() -> None:
    ways = [
        edge(START, "a"),
        edge("a", "b", {"x": 1}),
        edge("a", END, "else"),
        edge(("a", "b"), "starving"),
        edge(("b", "a"), "c", join="arrived"),
        edge("c", "b"),
    ]
    run = Drive(graph("a", "b", "c", "starving", ways=ways))
    run.finish("a")
    assert run.running == ["c"]

    run.finish("c")
    run.finish("b")
    assert run.running == ["starving"]


def test_a_condition_on_a_join_decides_whether_its_source_has_come() -> None:
    ways = [
        edge(START, "a"),
        edge(START, "b"),
        edge(("a", "b"), "c", {"x": 1}),
        edge("a", END, "else"),
        edge("b", END, "else"),
    ]
    run = Drive(graph("a", "b", "c", ways=ways))
    run.finish("a", {"x": 1})
    run.finish("b")

    assert run.running == ["c"]
