"""What still runs after the end has begun, and when it is over."""

from __future__ import annotations

import pytest
from core_drive import Drive, busy, chain, gate, graph

from abeyance.core.effects import Finish, RunNode
from abeyance.core.spec import START, FunctionNode
from abeyance.core.state import Limits
from abeyance.core.visit import Failure


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
                run.cancel(mode="now")

    (order,) = run.orders("cleanup")
    assert (order.outcome, order.values) == (outcome, run.values)
    run.finish("cleanup")
    assert run.status == outcome


def test_finally_nodes_wait_for_what_is_being_stopped() -> None:
    run = Drive(busy("cleanup"))
    run.cancel()
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

    assert run.orders("a")[0].timeout is None
    assert run.orders("cleanup")[0].timeout == given


def test_a_finally_node_that_fails_hides_nothing_and_stops_nothing() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.fail("a", "the reason")
    run.fail("first", "another")
    assert run.running == ["second"]

    run.finish("second", {"nope": 1})
    assert run.status == "failed"
    ending = run.ending
    assert ending.reason == "the reason"
    assert [(f.code, f.address) for f in ending.secondary_errors] == [
        ("node_failed", "graph:g;node:first"),
        ("invalid_patch", "graph:g;node:second"),
    ]


def test_a_finally_node_may_not_lead_on() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.finish("a")
    run.finish("cleanup", goto="a")

    assert run.status == "completed"
    assert [f.code for f in run.ending.secondary_errors] == ["unknown_node"]
    assert run.started == ["a", "cleanup"]


def test_neither_pause_nor_cancel_holds_up_a_finally_node() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    run.pause(mode="now")
    run.cancel(reason="too late")
    run.tick(3600)
    assert (run.stops, run.running) == ([], ["first"])

    run.finish("first")
    run.finish("second")
    assert run.status == "completed"
    assert run.ending.secondary_errors == (Failure(code="cancelled", message="too late"),)


def test_cancel_now_stops_the_finally_nodes_too() -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    run.cancel(mode="now")

    assert run.status == "completed"
    assert run.stops == [("graph:g;node:first", "ending", True)]
    assert "second" not in run.started
    assert run.ending.finally_pending == ()


def test_the_first_cancel_now_still_runs_them() -> None:
    run = Drive(busy("cleanup"))
    run.cancel(mode="now")
    assert run.running == ["cleanup"]

    run.cancel(mode="now")
    assert run.status == "cancelled"


def test_a_cancel_now_of_what_is_being_stopped_still_runs_them() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.cancel()
    run.cancel(mode="now")

    assert run.running == ["cleanup"]


def test_a_cancel_without_a_reason_is_on_record_beside_another_end() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.finish("a")
    run.cancel()

    assert run.ending.secondary_errors == (Failure(code="cancelled", message="cancelled"),)


def test_a_finally_node_that_was_stopped_is_not_started_again() -> None:
    run = Drive(chain("a", finally_=["cleanup"]))
    run.finish("a")
    run.stopped("cleanup")

    assert run.status == "completed"
    assert len(run.orders("cleanup")) == 1


def test_a_finally_node_is_not_bounded_by_max_visits() -> None:
    run = Drive(chain("a", finally_=["cleanup"]), limits=Limits(max_visits=0))
    assert run.ending.error is not None

    run.finish("cleanup")
    assert run.status == "failed"
    assert run.started == ["cleanup"]


def test_a_run_is_finished_once() -> None:
    run = Drive(busy("cleanup"))
    run.cancel(mode="now")
    run.finish("cleanup")
    before = run.seen()
    run.cancel(mode="now")
    run.tick(1)

    assert run.seen() == before
    assert len(run.wanted(Finish)) == 1
    assert [order.input.address for order in run.wanted(RunNode)] == [
        "graph:g;node:one",
        "graph:g;node:two",
        "graph:g;node:cleanup",
    ]
