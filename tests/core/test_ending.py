"""The end of a run: its reason, the code that is stopped or still runs, and evictions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from core_drive import Drive, at, busy, chain, gate

from abeyance.core import events, lifecycle
from abeyance.core.effects import Finish
from abeyance.core.outcome import Finished
from abeyance.core.state import Ending, Limits
from abeyance.core.visit import Failure

# the reason


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


def test_the_first_reason_decides_and_others_are_secondary_once() -> None:
    run = Drive(busy())
    run.fail("two", "first")
    run.cancel(reason="enough")
    run.cancel(reason="more than enough")
    run.cancel()
    run.fail("one", "second")

    ending = run.ending
    assert (run.status, ending.reason, run.started) == ("failed", "first", ["one", "two"])
    assert ending.error == Failure(code="node_failed", message="first", address="graph:g;node:two")
    assert ending.secondary_errors == (
        Failure(code="cancelled", message="enough"),
        Failure(code="node_failed", message="second", address="graph:g;node:one"),
    )
    assert run.state.counters.cancel_count == 3


def test_the_patch_of_an_asking_visit_is_merged_or_a_secondary_error_at_the_end() -> None:
    run = Drive(busy())
    run.ask("one", "q", patch={"x": 1})
    run.ask("two", "q", patch={"nope": 1})
    run.cancel()

    assert (run.status, run.values) == ("cancelled", {"x": 1})
    (failure,) = run.ending.secondary_errors
    assert (failure.code, failure.address) == ("invalid_patch", "graph:g;node:two")
    assert "'nope'" in failure.message


# code that still runs


def test_the_patch_of_a_stopped_visit_is_merged_at_the_end() -> None:
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


def test_after_the_grace_an_outcome_counts_for_a_retry_alone() -> None:
    run = Drive(chain("a", "b"))
    run.cancel()
    run.tick(30)
    before = run.seen()
    run.end(Finished, visit="graph:g;node:a", patch={"x": "late"})

    assert run.seen() == replace(before, ending=run.ending)
    run.start_again()
    assert (run.running, run.values) == (["b"], {"x": "late"})


def test_a_visit_that_a_pause_is_stopping_is_not_stopped_twice() -> None:
    run = Drive(chain("a"))
    run.pause(mode="now")
    run.cancel()
    assert run.stops == [("graph:g;node:a", "pause", False)]

    run.stopped("a")
    assert run.status == "cancelled"


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled", "halted"])
def test_finally_nodes_run_one_after_another_after_every_kind_of_end_and_know_it(
    outcome: str,
) -> None:
    run = Drive(chain(gate("ask", timeout=10), "a", finally_=["last", "least"]))
    if outcome == "halted":
        run.tick(10)
    else:
        run.answer("ask")
        match outcome:
            case "completed":
                run.finish("a", {"x": 1})
            case "failed":
                run.fail("a")
            case _:
                run.cancel(mode="now")

    (order,) = run.orders("last")
    assert (order.outcome, order.values) == (outcome, run.values)
    assert (run.status, run.running) == ("ending", ["last"])
    run.finish("last", {"log": ["last"]})
    assert run.running == ["least"]
    run.finish("least", {"log": ["least"]})
    assert (run.status, run.values["log"]) == (outcome, ["last", "least"])


def test_finally_nodes_wait_for_what_is_being_stopped() -> None:
    run = Drive(busy("cleanup"))
    run.cancel()
    run.stopped("one")
    assert run.orders("cleanup") == []

    run.finish("two")
    assert run.running == ["cleanup"]
    assert run.state.next_deadline() is None


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
    run.cancel()
    run.tick(3600)
    assert (run.stops, run.running) == ([], ["first"])

    run.finish("first")
    run.finish("second")
    assert run.status == "completed"
    assert run.ending.secondary_errors == (Failure(code="cancelled", message="cancelled"),)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_finally_node_that_is_stopped_is_not_started_again(cancelled: bool) -> None:
    run = Drive(chain("a", finally_=["first", "second"]))
    run.finish("a")
    if cancelled:
        run.cancel(mode="now")
    else:
        run.stopped("first")
        run.finish("second")

    assert (run.status, run.ending.finally_pending) == ("completed", ())
    assert run.stops == ([("graph:g;node:first", "ending", True)] if cancelled else [])
    assert run.started == ["a", "first", *([] if cancelled else ["second"])]


@pytest.mark.parametrize("first", ["now", "graceful"])
def test_a_cancel_now_abandons_what_runs_and_stays_one_and_the_next_ends_finally_nodes_too(
    first: str,
) -> None:
    run = Drive(busy("cleanup"))
    run.cancel(mode=first)
    if first == "graceful":
        run.cancel(mode="now")
    run.cancel()
    assert (run.ending.mode, run.running) == ("now", ["cleanup"])
    assert run.stops[-2:] == [
        ("graph:g;node:one", "ending", True),
        ("graph:g;node:two", "ending", True),
    ]

    run.cancel(mode="now")
    assert run.status == "cancelled"


def test_a_finally_node_is_not_bounded_by_max_visits() -> None:
    run = Drive(chain("a", finally_=["cleanup"]), limits=Limits(max_visits=0))
    assert run.ending.error is not None

    run.finish("cleanup")
    assert run.status == "failed"
    assert run.started == ["cleanup"]


def test_an_evicted_run_is_halted_with_its_leftovers_listed() -> None:
    run = Drive(chain(gate("ask", timeout=60)))
    run.send("m1")
    run.feed(events.Evicted, actor="janitor")

    assert (run.status, run.ending.outcome, run.ending.reason) == ("halted", "halted", "evicted")
    assert run.ending.actor == "janitor"
    assert not run.state.ledger.open
    (left,) = run.state.mailbox.undelivered
    assert (left.message_id, left.reason) == ("m1", "halted")


def test_a_run_that_was_active_later_or_waits_until_a_deadline_stays() -> None:
    for run in (Drive(chain(gate("ask"))), Drive(chain(gate("ask", timeout=3_600)))):
        run.wait(60)
        before = run.seen()
        has_deadline = before.next_deadline() is not None
        earlier = events.Evicted(
            now=run.now, actor="j", inactive_since=before.last_activity_at - timedelta(seconds=1)
        )
        since = events.Evicted(now=run.now, actor="j", inactive_since=before.last_activity_at)
        assert not lifecycle.may_evict(before, earlier)
        assert lifecycle.may_evict(before, since) is not has_deadline
        run.feed(events.Evicted, actor="j", inactive_since=before.last_activity_at)
        assert run.status == ("awaiting-input" if has_deadline else "halted")
