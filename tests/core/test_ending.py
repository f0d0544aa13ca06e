"""How a run ends: what decides, what is stopped, and what still runs."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import START, Drive, at, chain, gate, graph

from abeyance.core import events
from abeyance.core.effects import Finish, RunNode, StopNode
from abeyance.core.model import FunctionNode, GoTo
from abeyance.core.state import Ending, Failure, Limits


def busy(*finally_: str) -> Drive:
    """A run with two nodes at work, a third to come, and a person to ask."""
    return Drive(
        graph(
            FunctionNode(id="one", on_error=GoTo(node="next")),
            "two",
            "next",
            gate("ask"),
            ways=[(START, "one"), (START, "two"), (START, "ask"), ("one", "next")],
            finally_=finally_,
        )
    )


def cancel(run: Drive, **fields: Any) -> None:
    run.feed(events.CancelRequested, actor="bob", **fields)


def ending_of(run: Drive) -> Ending:
    assert run.state.ending is not None
    return run.state.ending


# what decides


def test_a_run_that_has_nothing_left_to_do_completes() -> None:
    run = Drive(chain("a"))
    run.wait(5)
    run.finish("a")

    assert run.status == "completed"
    assert run.last == (Finish(),)
    assert ending_of(run) == Ending(outcome="completed", reason=None, since=at(5))


def test_a_cancel_says_who_why_and_how() -> None:
    run = Drive(chain(gate("ask")))
    cancel(run, reason="a mistake", native=True)

    ending = ending_of(run)
    assert (run.status, ending.outcome, ending.reason) == ("cancelled", "cancelled", "a mistake")
    assert (ending.actor, ending.mode, ending.native) == ("bob", "graceful", True)
    assert run.last[-1] == Finish()
    (fact,) = run.facts("interrupt.cancelled")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", "bob")
    assert fact.data["reason"] == "the run ended: cancelled"
    assert fact.data["name"] == "ask"


def test_from_then_on_nothing_starts_and_nobody_is_asked() -> None:
    run = busy()
    cancel(run)
    assert (run.status, run.waiting, run.ready) == ("ending", [], [])
    run.finish("one")
    assert run.status == "ending"
    run.finish("two")

    assert run.status == "cancelled"
    assert run.started == ["one", "two"]
    assert len(run.wanted(Finish)) == 1


def test_what_was_ready_never_starts() -> None:
    run = Drive(
        graph("a", "b", ways=[(START, "a"), (START, "b")]), limits=Limits(max_parallel_visits=1)
    )
    assert run.ready == ["b"]
    cancel(run)
    run.stopped("a")

    assert (run.status, run.started) == ("cancelled", ["a"])


def test_the_first_reason_decides_and_the_others_stand_beside_it() -> None:
    run = busy()
    run.fail("two", "first")
    run.fail("one", "second")

    assert run.status == "failed"
    ending = ending_of(run)
    assert ending.reason == "first"
    assert ending.error == Failure(code="node_failed", message="first", address="graph:g;node:two")
    assert ending.beside == (
        Failure(code="node_failed", message="second", address="graph:g;node:one"),
    )
    assert run.started == ["one", "two"]


def test_a_cancel_of_a_failing_run_stands_beside_it_once() -> None:
    run = busy()
    run.fail("two", "first")
    cancel(run, reason="enough")
    cancel(run, reason="more than enough")
    cancel(run)
    run.stopped("one")

    assert run.status == "failed"
    assert ending_of(run).beside == (Failure(code="cancelled", message="enough"),)
    assert run.state.counters.cancel_count == 3


def test_a_repeated_cancel_changes_nothing_but_its_count() -> None:
    run = busy()
    cancel(run, reason="first")
    once = ending_of(run)
    run.wait(1)
    cancel(run, reason="second", grace=500)

    assert ending_of(run) == once
    assert run.last == ()
    assert run.state.counters.cancel_count == 2


def test_a_late_bad_patch_of_an_ending_run_is_told() -> None:
    run = busy()
    cancel(run)
    run.finish("one", {"nope": 1})
    run.finish("two", goto="nowhere")

    assert run.status == "cancelled"
    assert [(f.code, f.address) for f in ending_of(run).beside] == [
        ("invalid_patch", "graph:g;node:one"),
        ("unknown_node", "graph:g;node:two"),
    ]


def test_a_cancelled_pause_is_over() -> None:
    run = busy()
    run.feed(events.Paused, actor="ada", timeout=100)
    cancel(run)

    assert (run.status, run.state.pause) == ("ending", None)
    run.feed(events.Paused, actor="ada")
    assert (run.status, run.state.pause) == ("ending", None)


# what still runs


def test_what_runs_is_stopped_and_waited_for() -> None:
    run = busy()
    cancel(run)

    assert [stop for stop in run.last if isinstance(stop, StopNode)] == [
        StopNode(visit="graph:g;node:one", reason="ending"),
        StopNode(visit="graph:g;node:two", reason="ending"),
    ]
    assert run.state.next_deadline() == at(30)


def test_what_a_visit_changed_before_it_was_stopped_stays() -> None:
    run = busy()
    cancel(run)
    run.finish("one", {"log": ["half"], "x": 1})
    run.stopped("two")

    assert (run.status, run.values) == ("cancelled", {"log": ["half"], "x": 1})


@pytest.mark.parametrize(("limits", "grace", "until"), [(None, None, 30), (Limits(grace=7), None, 7), (None, 2, 2)])
def test_the_grace_is_that_of_the_cancel_or_of_the_run(
    limits: Limits | None, grace: float | None, until: float
) -> None:
    run = Drive(chain("a"), limits=limits)
    cancel(run, grace=grace)
    run.tick(until - 0.001)
    assert run.status == "ending"

    run.tick(0.001)
    assert run.status == "cancelled"
    assert run.stops == [("graph:g;node:a", "ending", False), ("graph:g;node:a", "ending", True)]


def test_after_the_grace_a_late_outcome_counts_for_nothing() -> None:
    run = Drive(chain("a"))
    cancel(run)
    run.tick(30)
    before = run.state
    run.feed(events.NodeFinished, visit="graph:g;node:a", patch={"x": "late"})

    assert run.state is before


def test_cancel_now_waits_for_nobody() -> None:
    run = busy()
    cancel(run, mode="now")

    assert run.status == "cancelled"
    assert run.stops == [("graph:g;node:one", "ending", True), ("graph:g;node:two", "ending", True)]


def test_cancel_now_makes_a_graceful_end_quick() -> None:
    run = busy()
    cancel(run)
    cancel(run, mode="now")

    assert run.status == "cancelled"
    assert ending_of(run).mode == "now"
    assert run.stops[2:] == [("graph:g;node:one", "ending", True), ("graph:g;node:two", "ending", True)]


def test_cancel_now_is_not_made_weaker_again() -> None:
    run = busy("cleanup")
    cancel(run, mode="now")
    cancel(run)

    assert ending_of(run).mode == "now"
    assert run.running == ["cleanup"]


def test_a_visit_that_a_pause_is_stopping_is_not_stopped_twice() -> None:
    run = Drive(chain("a"))
    run.feed(events.Paused, actor="ada", mode="now")
    cancel(run)
    assert run.stops == [("graph:g;node:a", "pause", False)]

    run.stopped("a")
    assert run.status == "cancelled"


# finally


def test_finally_nodes_run_one_after_another_in_the_order_of_declaration() -> None:
    run = Drive(chain("a", finally_=["last", "least"]))
    run.finish("a", {"x": 1})
    assert (run.status, run.running) == ("ending", ["last"])

    run.finish("last", {"log": ["last"]})
    assert run.running == ["least"]
    run.finish("least", {"log": ["least"]})
    assert (run.status, run.values) == ("completed", {"x": 1, "log": ["last", "least"]})
    assert run.started == ["a", "last", "least"]


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "halted"])
def test_finally_nodes_run_after_every_kind_of_end_and_know_it(outcome: str) -> None:
    run = Drive(chain(gate("ask", timeout=10), "a", finally_=["cleanup"]))
    if outcome == "halted":
        run.tick(10)
    else:
        run.answer("ask")
        match outcome:
            case "completed":
                run.finish("a")
            case "failed":
                run.fail("a")
            case _:
                cancel(run, mode="now")

    (order,) = run.orders("cleanup")
    assert (order.outcome, order.values) == (outcome, run.values)
    run.finish("cleanup")
    assert run.status == outcome


def test_a_node_before_the_end_knows_no_outcome() -> None:
    (order,) = Drive(chain("a")).orders("a")

    assert order.outcome is None


def test_finally_nodes_wait_for_what_is_being_stopped() -> None:
    run = busy("cleanup")
    cancel(run)
    run.stopped("one")
    assert run.orders("cleanup") == []

    run.finish("two")
    assert run.running == ["cleanup"]
    assert run.state.next_deadline() is None


@pytest.mark.parametrize(("timeout", "given"), [(None, 60.0), (5.0, 5.0)])
def test_a_finally_node_has_a_timeout_of_its_own_or_that_of_the_run(
    timeout: float | None, given: float
) -> None:
    cleanup = FunctionNode(id="cleanup", timeout=timeout)
    run = Drive(graph("a", cleanup, ways=[(START, "a")], finally_=["cleanup"]))
    run.finish("a")

    assert run.orders("a")[0].node.timeout is None
    assert run.orders("cleanup")[0].node.timeout == given


def test_the_run_bounds_its_finally_nodes() -> None:
    run = Drive(chain("a", finally_=["cleanup"]), limits=Limits(finally_timeout=3))
    run.finish("a")

    assert run.orders("cleanup")[0].node.timeout == 3


def test_a_finally_node_that_fails_hides_nothing_and_stops_nothing() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.fail("a", "the reason")
    run.fail("first", "another")
    assert run.running == ["second"]

    run.finish("second", {"nope": 1})
    assert run.status == "failed"
    ending = ending_of(run)
    assert ending.reason == "the reason"
    assert [(f.code, f.address) for f in ending.beside] == [
        ("node_failed", "graph:g;node:first"),
        ("invalid_patch", "graph:g;node:second"),
    ]


def test_a_finally_node_may_not_lead_on() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.finish("a")
    run.finish("cleanup", goto="a")

    assert run.status == "completed"
    assert [f.code for f in ending_of(run).beside] == ["unknown_node"]
    assert run.started == ["a", "cleanup"]


def test_neither_pause_nor_cancel_holds_up_a_finally_node() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    run.feed(events.Paused, actor="ada", mode="now")
    cancel(run, reason="too late")
    run.tick(3600)
    assert (run.stops, run.running) == ([], ["first"])

    run.finish("first")
    run.finish("second")
    assert run.status == "completed"
    assert ending_of(run).beside == (Failure(code="cancelled", message="too late"),)


def test_cancel_now_stops_the_finally_nodes_too() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    cancel(run, mode="now")

    assert run.status == "completed"
    assert run.stops == [("graph:g;node:first", "ending", True)]
    assert "second" not in run.started
    assert ending_of(run).finally_left == ()


def test_the_first_cancel_now_still_runs_them() -> None:
    run = busy("cleanup")
    cancel(run, mode="now")
    assert run.running == ["cleanup"]

    cancel(run, mode="now")
    assert run.status == "cancelled"


def test_a_finally_node_that_was_stopped_is_not_started_again() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.finish("a")
    run.stopped("cleanup")

    assert run.status == "completed"
    assert len(run.orders("cleanup")) == 1


def test_a_finally_node_is_not_bounded_by_max_visits() -> None:
    run = Drive(chain("a", finally_=["cleanup"]), limits=Limits(max_visits=0))
    assert ending_of(run).error is not None

    run.finish("cleanup")
    assert run.status == "failed"
    assert run.started == ["cleanup"]


def test_a_run_is_finished_once() -> None:
    run = busy("cleanup")
    cancel(run, mode="now")
    run.finish("cleanup")
    before = run.state
    cancel(run, mode="now")
    run.tick(1)

    assert run.state is before
    assert len(run.wanted(Finish)) == 1
    assert [order.visit for order in run.wanted(RunNode)] == [
        "graph:g;node:one",
        "graph:g;node:two",
        "graph:g;node:cleanup",
    ]
