"""How a run ends: what decides, what is stopped, and what still runs."""

from __future__ import annotations

import pytest
from core_drive import Drive, at, busy, chain, gate, graph

from abeyance.core.effects import Finish
from abeyance.core.outcome import Finished
from abeyance.core.spec import START
from abeyance.core.state import Ending, Limits
from abeyance.core.visit import Failure

# what decides


def test_a_run_that_has_nothing_left_to_do_completes() -> None:
    run = Drive(chain("a"))
    run.wait(5)
    run.finish("a")

    assert run.status == "completed"
    assert run.last == (Finish(),)
    ended = Ending(outcome="completed", reason=None, since=at(5), before=run.ending.before)
    assert run.ending == ended


def test_a_cancel_says_who_why_and_how() -> None:
    run = Drive(chain(gate("ask")))
    run.cancel(reason="a mistake", native=True)

    ending = run.ending
    assert (run.status, ending.outcome, ending.reason) == ("cancelled", "cancelled", "a mistake")
    assert (ending.actor, ending.mode, ending.native) == ("bob", "graceful", True)
    assert run.last[-1] == Finish()
    (fact,) = run.facts("interrupt.cancelled")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", "bob")
    assert fact.data["reason"] == "the run ended: cancelled"
    assert fact.data["name"] == "ask"


def test_from_then_on_nothing_starts_and_nobody_is_asked() -> None:
    run = Drive(busy())
    run.cancel()
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
    run.cancel()
    run.stopped("a")

    assert (run.status, run.started) == ("cancelled", ["a"])


def test_the_first_reason_decides_and_the_others_stand_beside_it() -> None:
    run = Drive(busy())
    run.fail("two", "first")
    run.fail("one", "second")

    assert run.status == "failed"
    ending = run.ending
    assert ending.reason == "first"
    assert ending.error == Failure(code="node_failed", message="first", address="graph:g;node:two")
    assert ending.secondary_errors == (
        Failure(code="node_failed", message="second", address="graph:g;node:one"),
    )
    assert run.started == ["one", "two"]


def test_a_cancel_of_a_failing_run_stands_beside_it_once() -> None:
    run = Drive(busy())
    run.fail("two", "first")
    run.cancel(reason="enough")
    run.cancel(reason="more than enough")
    run.cancel()
    run.stopped("one")

    assert run.status == "failed"
    assert run.ending.secondary_errors == (Failure(code="cancelled", message="enough"),)
    assert run.state.counters.cancel_count == 3


def test_a_repeated_cancel_changes_nothing_but_its_count() -> None:
    run = Drive(busy())
    run.cancel(reason="first")
    once = run.ending
    run.wait(1)
    run.cancel(reason="second", grace=500)

    assert run.ending == once
    assert run.last == ()
    assert run.state.counters.cancel_count == 2


def test_a_late_bad_patch_of_an_ending_run_is_told() -> None:
    run = Drive(busy())
    run.cancel()
    run.finish("one", {"nope": 1})
    run.finish("two", goto="nowhere")

    assert run.status == "cancelled"
    assert [(f.code, f.address) for f in run.ending.secondary_errors] == [
        ("invalid_patch", "graph:g;node:one"),
        ("unknown_node", "graph:g;node:two"),
    ]


def test_what_a_visit_had_changed_when_it_asked_is_kept_or_told() -> None:
    run = Drive(busy())
    run.ask("one", "q", patch={"x": 1})
    run.ask("two", "q", patch={"nope": 1})
    run.cancel()

    assert (run.status, run.values) == ("cancelled", {"x": 1})
    (failure,) = run.ending.secondary_errors
    assert (failure.code, failure.address) == ("invalid_patch", "graph:g;node:two")
    assert "'nope'" in failure.message


def test_a_cancelled_pause_is_over() -> None:
    run = Drive(busy())
    run.pause(timeout=100)
    run.cancel()

    assert (run.status, run.state.pause) == ("ending", None)
    run.pause()
    assert (run.status, run.state.pause) == ("ending", None)


# what still runs


def test_what_a_visit_changed_before_it_was_stopped_stays() -> None:
    run = Drive(busy())
    run.cancel()
    run.finish("one", {"log": ["half"], "x": 1})
    run.stopped("two")

    assert (run.status, run.values) == ("cancelled", {"log": ["half"], "x": 1})
    assert list(run.ending.outcomes) == ["graph:g;node:one", "graph:g;node:two"]


@pytest.mark.parametrize(
    ("limits", "grace", "until"), [(None, None, 30), (Limits(grace=7), None, 7), (None, 2, 2)]
)
def test_the_grace_is_that_of_the_cancel_or_of_the_run(
    limits: Limits | None, grace: float | None, until: float
) -> None:
    run = Drive(chain("a"), limits=limits)
    run.cancel(grace=grace)
    run.tick(until - 0.001)
    assert run.status == "ending"

    run.tick(0.001)
    assert run.status == "cancelled"
    assert run.stops == [("graph:g;node:a", "ending", False), ("graph:g;node:a", "ending", True)]


def test_after_the_grace_a_late_outcome_counts_for_nothing() -> None:
    run = Drive(chain("a"))
    run.cancel()
    run.tick(30)
    before = run.seen()
    run.end(Finished, visit="graph:g;node:a", patch={"x": "late"})

    assert run.seen() == before


def test_cancel_now_makes_a_graceful_end_quick() -> None:
    run = Drive(busy())
    run.cancel()
    run.cancel(mode="now")

    assert run.status == "cancelled"
    assert run.ending.mode == "now"
    assert run.stops[2:] == [
        ("graph:g;node:one", "ending", True),
        ("graph:g;node:two", "ending", True),
    ]


def test_cancel_now_is_not_made_weaker_again() -> None:
    run = Drive(busy("cleanup"))
    run.cancel(mode="now")
    run.cancel()

    assert run.ending.mode == "now"
    assert run.running == ["cleanup"]


def test_a_visit_that_a_pause_is_stopping_is_not_stopped_twice() -> None:
    run = Drive(chain("a"))
    run.pause(mode="now")
    run.cancel()
    assert run.stops == [("graph:g;node:a", "pause", False)]

    run.stopped("a")
    assert run.status == "cancelled"
