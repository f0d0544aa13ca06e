"""Round and round, but not for ever."""

from __future__ import annotations

from core_drive import Drive, gate, graph

from abeyance.core.spec import START
from abeyance.core.state import Limits


def loop(limit: int) -> Drive:
    """`a` and a gate, round and round."""
    return Drive(
        graph("a", gate("ask"), ways=[(START, "a"), ("a", "ask"), ("ask", "a")]),
        limits=Limits(max_visits=limit),
    )


def test_each_time_round_is_a_visit_of_its_own() -> None:
    run = loop(5)
    for _ in range(3):
        run.finish("a")
        run.answer("ask")

    assert [order.address for order in run.orders("a")] == [
        "graph:g;node:a",
        *(f"graph:g;node:a:{ordinal}" for ordinal in (2, 3, 4)),
    ]


def test_a_loop_without_people_is_bounded() -> None:
    spec = graph("a", ways=[(START, "a"), ("a", "a")])
    run = Drive(spec, limits=Limits(max_visits=3))
    for _ in range(3):
        assert run.status == "running"
        run.finish("a")

    code, message, address = run.error
    assert (code, address) == ("max_visits", "graph:g;node:a:4")
    assert "'a' has been visited 3 times" in message
    assert "max_visits" in message
    assert run.started == ["a"] * 3


def test_an_answer_starts_the_count_anew() -> None:
    run = loop(1)
    for _ in range(4):
        run.finish("a")
        run.answer("ask")

    assert run.running == ["a"]


def test_a_message_starts_the_count_anew() -> None:
    spec = graph("a", ways=[(START, "a"), ("a", "a")])
    run = Drive(spec, limits=Limits(max_visits=1))
    run.send("m")
    run.finish("a")
    assert run.running == ["a"]

    run.send("m")
    run.finish("a")
    assert run.error[0] == "max_visits"


def test_too_many_visits_end_the_run_although_other_ways_were_open() -> None:
    ways = [(START, "a"), ("a", "a"), ("a", "b")]
    run = Drive(graph("a", "b", ways=ways), limits=Limits(max_visits=1))
    run.finish("a")

    assert run.error[0] == "max_visits"
    assert run.started == ["a"]
