"""What becomes in the run of the visits that a hop through fused nodes has made."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_budgets import budget
from core_drive import (
    ADA,
    CONTROL,
    Drive,
    Ways,
    asked,
    at,
    chain,
    edge,
    gate,
    graph,
    nested,
    restored,
)
from core_fusing import WAYS, abc, address, comes_back, fused, log, order, ran

from abeyance.core import events, snapshots
from abeyance.core.effects import StopNode
from abeyance.core.outcome import (
    AttemptFailed,
    Failed,
    Finished,
    Stopped,
)
from abeyance.core.retries import Attempts
from abeyance.core.spec import (
    START,
    GoTo,
)
from abeyance.core.visit import Running


def test_what_was_done_counts_although_the_run_was_paused_meanwhile() -> None:
    drive = Drive(abc())
    first = order(drive)
    drive.feed(events.Paused, actor="ada")
    drive.state = restored(drive.state)
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), log("b"))))

    assert (first.address, "boundary", False) in drive.stops
    assert drive.status == "paused"
    assert drive.values["log"] == ["a", "b"]
    assert drive.ready == ["c"]
    drive.feed(events.Resumed, actor="ada")
    assert drive.started == ["a", "c"]


def test_a_message_and_a_directive_bring_a_hop_back_once_and_come_after_what_was_done() -> None:
    drive = Drive(abc())
    drive.direct("skip")
    drive.send("m1")
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), log("b"))))

    assert drive.stops == [(address("a"), "boundary", False)]
    # It is obeyed where the branch is now, and not where the run thought that it was.
    assert drive.values["log"] == ["a", "b"]
    assert drive.started == ["a"]
    assert drive.status == "completed"


def test_a_pause_now_stops_a_hop_that_was_told_to_come_back() -> None:
    drive = Drive(abc())
    drive.send("m1")
    drive.feed(events.Paused, actor="ada", mode="now")
    running = drive.state.visits[address("a")].state
    assert isinstance(running, Running)

    assert [reason for _, reason, _ in drive.stops] == ["boundary", "pause"]
    assert running.stopping


def test_a_visit_that_was_stopped_in_a_hop_goes_on_where_it_was() -> None:
    drive = Drive(abc())
    drive.feed(events.Paused, actor="ada", mode="now")
    left = Stopped(journal={"step": 1}, attempts=Attempts(count=2, seconds=3.0))
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), left)))
    drive.feed(events.Resumed, actor="ada")

    again = order(drive)
    assert (again.node, again.journal, again.attempts.count) == ("b", {"step": 1}, 2)
    assert again.activation == 2
    assert again.hop is not None


def test_a_failure_in_a_hop_is_retried_as_any_other() -> None:
    drive = Drive(abc())
    failed = AttemptFailed(message="no", attempts=Attempts(count=1, seconds=1.0), pause=1.0)
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), failed)))
    assert drive.running == []
    drive.tick(1.0)
    assert (order(drive).node, order(drive).attempts.count) == ("b", 1)
    drive.end(Failed, visit=address("b"), code="node_failed", message="no")

    assert drive.error[0] == "node_failed"


def test_a_run_that_was_cancelled_keeps_what_was_done_and_a_retry_does_none_of_it_again() -> None:
    drive = Drive(abc(finally_=["f"]))
    drive.feed(events.CancelRequested, actor="ada")
    left = Failed(code="node_failed", message="no", journal={"step": 1}, patch={"log": ["half"]})
    comes_back(
        drive,
        (ran(address("a"), log("a")), ran(address("b"), log("b")), ran(address("c"), left)),
    )
    assert drive.values["log"] == ["a", "b", "half"]
    drive.finish("f", {"log": ["f"]})
    assert drive.status == "cancelled"

    again = snapshots.retried(
        restored(drive.state),
        now=drive.now,
        principal=ADA,
        versions=("1", "1"),
        patch={},
        renames={},
    )
    drive.state = restored(again)
    drive.feed(events.Restored)

    assert drive.values["log"] == ["a", "b"]
    assert (order(drive).node, order(drive).journal) == ("c", {"step": 1})


def test_a_run_that_does_not_wait_for_a_hop_waits_for_the_report_of_what_was_done() -> None:
    drive = Drive(abc(finally_=["f"]))
    drive.feed(events.CancelRequested, actor="ada", mode="now")
    drive.feed(events.CancelRequested, actor="ada", mode="now")

    assert [each.reason for each in drive.wanted(StopNode)] == ["left"]
    assert drive.running == ["a"]

    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), Stopped())))
    assert drive.values["log"] == ["a"]
    assert drive.running == ["f"]


def test_a_fork_of_a_run_that_was_cancelled_keeps_what_was_done() -> None:
    drive = Drive(abc())
    drive.feed(events.CancelRequested, actor="ada")
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), log("b"))))

    forked = snapshots.forked(
        drive.state, run_id="r2", salt="s", back=0, now=drive.now, principal=ADA
    )
    drive.state = restored(forked)
    drive.feed(events.Restored)

    assert drive.values["log"] == ["a", "b"]
    assert drive.running == ["c"]


def test_the_changes_of_a_visit_that_the_run_does_not_enter_are_kept() -> None:
    spec = graph(
        fused("a"),
        fused("b"),
        fused("other"),
        ways=[(START, "a"), edge("a", "b", {"x": 1}), edge("a", "other", "else")],
    )
    drive = Drive(spec)
    done = (ran(address("a"), log("a")), ran(address("b"), log("b")))
    comes_back(drive, done)

    assert drive.running == ["other"]
    assert drive.values["log"] == ["a", "b"]


def test_changes_that_cannot_be_kept_are_said() -> None:
    drive = Drive(abc())
    drive.feed(events.CancelRequested, actor="ada")
    bad = ran(address("b"), Finished(patch={"nowhere": 1}))
    comes_back(drive, (ran(address("a"), log("a")), bad))

    assert drive.status == "cancelled"
    (error,) = drive.ending.secondary_errors
    assert (error.code, error.address) == ("invalid_patch", address("b"))
    assert "'nowhere'" in error.message


def test_changes_that_cannot_be_kept_fail_a_nested_graph_at_once() -> None:
    ways: Ways = [(START, "a"), edge("a", "b", {"x": 1}), edge("a", "other", "else")]
    inner = graph(fused("a"), fused("b"), fused("other"), ways=ways, name="inner")
    drive = Drive(chain(nested("sub", inner, on_error=GoTo(node="mend")), "mend"))
    first = order(drive).address
    bad = ran(f"{first[:-1]}b", Finished(patch={"nowhere": 1}))
    comes_back(drive, (ran(first, log("a")), bad))

    assert drive.running == ["mend"]


def test_the_time_of_visits_in_a_hop_is_charged_to_the_budget_around_them() -> None:
    drive = Drive(replace(abc(), budget=budget(time=60.0)))
    second = replace(ran(address("b"), log("b")), ended=at(2.0))
    comes_back(drive, (ran(address("a"), log("a")), second))

    assert drive.state.root.account is not None
    assert drive.state.root.account.used.time == 2.0


def test_changes_in_a_graph_that_is_over_are_dropped_with_it() -> None:
    inner = chain(fused("i1"), fused("i2"), name="inner", fields={"log": "append"})
    drive = Drive(chain(nested("sub", inner, on_error=GoTo(node="b")), "b"))
    first = order(drive)
    bad = ran(first.address, Finished(patch={"nowhere": 1}))
    comes_back(drive, (bad, ran(f"{first.address[:-1]}2", log("i2"))))

    assert drive.running == ["b"]
    assert drive.values == {}


@pytest.mark.parametrize(
    "visit", [address("ask"), address("unknown"), "graph:g;node:sub;graph:inner;node:b"]
)
def test_a_worker_cannot_say_that_anything_else_has_run(visit: str) -> None:
    drive = Drive(graph(fused("a"), fused("b"), gate("ask"), ways=[*WAYS, ("b", "ask")]))
    forged = ran(visit, Finished(patch={"x": "forged"}))
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), log("b")), forged))

    assert drive.waiting == ["ask"]
    assert drive.values == {"log": ["a", "b"]}


def test_what_follows_a_visit_that_had_no_hop_is_not_taken() -> None:
    drive = Drive(chain("a", fused("b"), fused("c")))
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), log("forged"))))

    assert drive.running == ["b"]


def test_a_run_is_not_migrated_while_a_hop_runs() -> None:
    drive = Drive(abc())
    spec = chain("a", "b", "x", "c")
    refusal = drive.refused(
        events.Migrated, principal=ADA, spec=spec, patch={}, renames={}, versions=("1", "2")
    )

    assert refusal.code == "cannot_migrate"
    assert refusal.message.startswith(f"The run cannot be migrated now: {address('a')} runs, and ")
    assert refusal.details["obstacles"] == [
        {
            "what": "visit",
            "name": "a",
            "why": "fused nodes run after it in the same activity",
            "remedy": "pause the run, and migrate it when no code runs",
            "address": address("a"),
        }
    ]
    drive.feed(events.Paused, actor="ada")
    comes_back(drive, (ran(address("a"), log("a")),))
    drive.feed(events.Migrated, principal=ADA, spec=spec, patch={}, renames={}, versions=("1", "2"))
    assert drive.state.spec == spec


def paused_until_it_goes_to(drive: Drive, node: str) -> None:
    about = {"actor": "ada", "capabilities": CONTROL, "timeout": 3.0}
    drive.feed(events.Paused, **about, on_timeout=GoTo(node=node))


def test_the_deadline_of_a_pause_that_leads_elsewhere_comes_after_what_was_done_in_a_hop() -> None:
    spec = graph(
        *(fused("a"), fused("b"), fused("c"), gate("ask"), "x"),
        ways=[(START, "a"), ("a", "b"), ("b", "c"), ("c", "ask"), ("ask", "x")],
    )
    drive = Drive(spec)
    paused_until_it_goes_to(drive, "x")
    drive.tick(3.0)
    # It is over: nobody can resume or prolong it.
    drive.feed(events.Resumed, actor="ada")
    drive.feed(events.Paused, actor="ada")
    drive.state = restored(drive.state)

    assert [reason for _, reason, _ in drive.stops] == ["boundary", "left"]
    assert (drive.status, drive.running) == ("paused", ["a"])

    done = (ran(address("a"), log("a")), ran(address("b"), log("b")), ran(address("c"), Stopped()))
    comes_back(drive, done)
    assert drive.values["log"] == ["a", "b"]
    assert (drive.status, drive.running, drive.ready) == ("running", ["x"], [])
    assert drive.facts("run.resumed")[0].data["reason"].startswith("the pause's deadline passed")


def test_a_cancel_ends_a_run_whose_pause_is_over_and_that_has_to_go_elsewhere() -> None:
    drive = Drive(abc())
    paused_until_it_goes_to(drive, "c")
    drive.tick(3.0)
    drive.cancel(mode="now")
    comes_back(drive, (ran(address("a"), log("a")), ran(address("b"), Stopped())))

    assert (drive.status, drive.values["log"]) == ("cancelled", ["a"])


def test_no_hop_begins_while_a_question_of_its_visit_is_open_that_may_be_asked_no_more() -> None:
    drive = Drive(graph(fused("a"), fused("b"), "x", ways=[*WAYS, ("b", "x")]))
    late = asked("ok", "p2", timeout=60, on_timeout=GoTo(node="x"))
    drive.ask("a", asked("ok", "p1"), late, composite=True)
    drive.answer("ok", True)

    assert (order(drive).node, order(drive).hop) == ("a", None)


@pytest.mark.parametrize("action", ["rerun", "go_back", "skip"])
def test_a_directive_waits_for_a_hop_beside_a_question_and_leaves_none(action: str) -> None:
    inner = chain(fused("i1"), fused("i2"), name="inner", fields={"log": "append"})
    late = gate("ask", timeout=5.0, on_timeout=GoTo(node="x"))
    spec = graph(
        *("s", nested("sub", inner), late, "x"),
        ways=[(START, "s"), ("s", "sub"), ("s", "ask")],
    )
    drive = Drive(spec)
    drive.finish("s")
    first = order(drive)
    assert first.hop is not None
    drive.direct(action, target="ask")
    drive.direct(action, target=first.address)
    # The directive on the branch beside is refused, and the deadline there leaves only that branch.
    drive.tick(5.0)

    assert [id_ for id_, _ in drive.rejected()] == ["d1"]
    assert [reason for _, reason, _ in drive.stops] == ["boundary"]
    second = f"{first.address[:-1]}2"
    comes_back(drive, (ran(first.address, log("i1")), ran(second, log("i2"))))
    assert drive.values["log"] == ["i1", "i2"]
