"""Calls and turns that are stopped: by a pause, a hand-over, a cancellation, or by being skipped."""

from __future__ import annotations

import pytest
from core_agents import (
    CLERK,
    asks,
    call,
    done,
    failed,
    gated,
    question,
    results,
    reviewing,
    said,
    turn,
)
from core_drive import Drive

from abeyance.core import events
from abeyance.core.items import transcripts
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Interrupted, Stopped
from abeyance.core.spec import END, GoTo

YES = {"approved": True}
PAY = f"{CLERK};tool:pay:c1"


def approved() -> Drive:
    """An approved call runs, and beside it one that nobody gates."""
    run = reviewing()
    turn(run, gated("c1"), call("c2", "delete"), transcript="t1")
    said(run, "c1", YES)
    return run


@pytest.mark.parametrize("how", ["pause", "rotation"])
def test_a_call_that_may_run_only_once_is_waited_for_where_others_are_stopped(how: str) -> None:
    run = approved()
    if how == "pause":
        run.pause(actor="bob", mode="now")
    else:
        run.feed(events.RotationDue, hard=True)

    assert run.stops == [(f"{CLERK};tool:delete:c2", how, False)]
    done(run, "c1", {"content": 1})
    run.stopped("delete", {"step": 1})
    assert (run.running, run.ready) == ([], ["delete"])
    run.feed(events.Resumed if how == "pause" else events.Restored, **_who(how))
    assert run.orders("delete")[-1].journal == {"step": 1}
    done(run, "c2", {"content": 2})
    assert results(run) == [{"content": 1}, {"content": 2}]
    assert len(run.orders("pay")) == 1


def _who(how: str) -> dict[str, str]:
    return {"actor": "bob"} if how == "pause" else {}


def test_a_call_that_may_run_only_once_is_stopped_when_the_run_is_cancelled() -> None:
    run = approved()
    run.cancel()

    assert run.stops == [
        (PAY, "ending", False),
        (f"{CLERK};tool:delete:c2", "ending", False),
    ]
    run.stopped("pay")
    run.stopped("delete")
    assert run.status == "cancelled"


@pytest.mark.parametrize("when", ["it is stopped", "it asks", "it is answered"])
@pytest.mark.parametrize("patch", [{"transcript": "t1"}, {"nonsense": 1}])
def test_what_a_turn_had_done_counts_when_the_run_ends_and_hides_no_cancellation(
    when: str, patch: dict[str, Json]
) -> None:
    run = reviewing()
    model = run.visit("model").address
    if when != "it is stopped":
        run.end(Interrupted, visit=model, interrupts=(question("q", "question"),), patch=patch)
        assert transcripts(run.state) == {}
    if when == "it is answered":
        run.answer("q", True)
    run.cancel()
    if when != "it asks":
        run.end(Stopped, visit=model, patch=patch if when == "it is stopped" else {})

    assert run.status == "cancelled"
    assert transcripts(run.state) == ({CLERK: "t1"} if "transcript" in patch else {})
    told = [each.code for each in run.ending.secondary_errors]
    assert told == ([] if "transcript" in patch else ["invalid_patch"])


def test_what_a_turn_had_done_by_then_does_not_count_when_it_begins_again() -> None:
    run = reviewing()
    address = run.visit("model").address
    run.pause(actor="bob", mode="now")
    run.end(Stopped, visit=address, patch={"transcript": "half"})
    run.resume(actor="bob")

    assert run.orders("model")[-1].address == address
    assert "transcript" not in run.orders("model")[-1].values


@pytest.mark.parametrize(
    ("asked", "result"),
    [
        (question("approve"), {"rejected": None}),
        (
            question("which", "question", timeout=60.0, on_timeout=GoTo(node=END)),
            {"unanswered": "which"},
        ),
        (question("which", "question"), {"error": "it broke", "code": "node_failed"}),
    ],
    ids=["is rejected", "is ended by a deadline", "fails"],
)
def test_what_a_call_had_changed_when_it_asked_counts_if_it(asked: Asked, result: Json) -> None:
    run = reviewing()
    turn(run, call("c1"))
    asks(run, "c1", asked, patch={"agent_state": {"trusted": True}})
    assert "agent_state" not in run.state.scopes[CLERK].values
    run.tick(60)
    if asked.question.timeout is None:
        said(run, "c1", {"approved": False}, asked.question.name)
    if "error" in result:
        failed(run, "c1")

    assert results(run) == [result]
    assert run.orders("model")[-1].values["agent_state"] == {"trusted": True}


def test_what_a_call_changed_when_it_asked_and_cannot_be_merged_is_its_failure() -> None:
    run = reviewing()
    turn(run, call("c1"), call("c2"))
    asks(run, "c1", question("approve"), patch={"nonsense": 1})
    late = question("which", "question", timeout=60.0, on_timeout=GoTo(node=END))
    asks(run, "c2", late, patch={"nonsense": 1})
    said(run, "c1", {"approved": False})
    run.tick(60)

    assert [each["code"] for each in results(run)] == ["invalid_patch", "invalid_patch"]
