"""Deadlines of questions and pauses take effect, whichever event comes first after them."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import CONTROL, Drive, at, chain, gate, graph

from abeyance.core import events
from abeyance.core.json import rfc3339, sha256
from abeyance.core.outcome import Finished
from abeyance.core.spec import (
    START,
    Default,
    GoTo,
    GraphSpec,
    Halt,
    OnPauseTimeout,
    OnTimeout,
    ResumeRun,
)
from abeyance.core.state import Limits, Pause
from abeyance.core.step import Step
from abeyance.errors import Code


def asking(on_timeout: OnTimeout, **options: Any) -> Drive:
    """Start a run of a gate with a deadline in ten seconds, then `next`; a goto leads to `late`."""
    ask = gate("ask", timeout=10, on_timeout=on_timeout, **options)
    return Drive(chain(ask, "next", "late"))


HALTING = chain(gate("ask", timeout=10), "next")


# interrupts


def test_a_deadline_is_absolute_and_at_it_the_run_halts() -> None:
    run = Drive(HALTING)
    id_, before = run.open("ask").id, run.seen()
    assert (run.open("ask").deadline, run.state.next_deadline()) == (at(10), at(10))
    run.tick(9.999999)
    assert (run.seen(), run.last) == (before, ())
    run.tick(0.000001)

    assert (run.status, run.started, run.state.next_deadline()) == ("halted", [], None)
    assert (run.ending.reason, run.ending.actor) == ("interrupt-timeout", "timeout")
    settled = run.settled("ask")
    assert (settled.status, settled.by, settled.settled_at) == ("expired", "timeout", at(10))
    (fact,) = run.facts("interrupt.expired")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", "timeout")
    assert fact.data == {"id": id_, "name": "ask"}


@pytest.mark.parametrize("paused", [False, True])
def test_a_deadline_goes_to_its_node_once_the_run_is_not_paused(
    paused: bool,
) -> None:
    run = asking(GoTo(node="late"))
    if paused:
        run.pause(timeout=60)
    run.tick(10)
    if paused:
        assert (run.status, run.ready) == ("paused", ["late"])
        run.resume()

    assert run.settled("ask").status == "expired"
    assert (run.running, run.waiting) == (["late"], [])
    run.finish("late")
    assert (run.status, run.started) == ("completed", ["late"])


def test_a_deadline_answers_with_its_default() -> None:
    run = asking(Default(answer={"approved": False}), answer_to="x")
    run.tick(10)

    settled = run.settled("ask")
    assert (settled.status, settled.by, settled.answer, settled.settled_at) == (
        "answered",
        "timeout",
        {"approved": False},
        at(10),
    )
    assert run.values["x"] == {"approved": False}
    assert run.running == ["next"]
    (fact,) = run.facts("interrupt.answered")
    hash_ = sha256({"approved": False})
    assert (fact.actor, settled.answer_sha256) == ("timeout", hash_)
    assert fact.data == {"id": settled.id, "name": "ask", "answer_sha256": hash_}


def test_a_default_does_not_make_a_loop_a_steered_one() -> None:
    spec = graph(
        gate("ask", timeout=1, on_timeout=Default(answer=None)),
        ways=[(START, "ask"), ("ask", "ask")],
    )
    run = Drive(spec, limits=Limits(max_visits=2))
    run.tick(1)
    assert run.waiting == ["ask"]

    run.tick(1)
    assert run.error[0] == "max_visits"


# an answer against its deadline


@pytest.mark.parametrize(
    ("on_timeout", "code"),
    [
        (Halt(), Code.EXPIRED),
        (GoTo(node="late"), Code.EXPIRED),
        (Default(answer=1), Code.ALREADY_ANSWERED),
    ],
)
def test_an_answer_at_the_deadline_is_late_although_nobody_has_noticed(
    on_timeout: OnTimeout, code: Code
) -> None:
    run = asking(on_timeout)
    run.wait(10)

    refusal = run.refused_answer("ask", 1)
    assert refusal.code is code
    assert run.waiting == ["ask"]


def test_any_event_notices_a_deadline_and_happens_after_it() -> None:
    run = asking(Default(answer=1))
    run.wait(10)
    run.pause()

    assert [fact.type for fact in run.facts("interrupt.answered") + run.facts("run.paused")] == [
        "interrupt.answered",
        "run.paused",
    ]
    assert (run.status, run.running) == ("paused", ["next"])


# several at once


def both(first: float, second: float) -> Drive:
    """Start a run of the gates `one` and `two` with these timeouts, both answered by a default."""
    return Drive(
        graph(
            gate("one", timeout=first, on_timeout=Default(answer="one"), answer_to="log"),
            gate("two", timeout=second, on_timeout=Default(answer="two"), answer_to="log"),
            ways=[(START, "one"), (START, "two")],
            fields={"log": "last"},
        )
    )


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [(5, 3, ["two", "one"]), (3, 5, ["one", "two"]), (4, 4, ["one", "two"])],
)
def test_deadlines_that_passed_meanwhile_take_effect_in_their_order(
    first: float, second: float, order: list[str]
) -> None:
    run = both(first, second)
    run.tick(60)

    assert [fact.data["name"] for fact in run.facts("interrupt.answered")] == order
    assert run.status == "completed"


def test_the_first_deadline_that_ends_the_run_withdraws_the_other() -> None:
    spec = graph(
        gate("one", timeout=5), gate("two", timeout=4), ways=[(START, "one"), (START, "two")]
    )
    run = Drive(spec)
    run.tick(60)

    assert (run.settled("two").status, run.settled("one").status) == ("expired", "cancelled")
    assert run.ending.secondary_errors == ()


# a paused run


def paused(
    on_timeout: OnPauseTimeout, *, timeout: float | None = 10, limits: Limits | None = None
) -> Drive:
    """Return a paused run with a node at work, a gate that waits, and a join with one of two tokens."""
    spec: GraphSpec = graph(
        "work",
        "came",
        gate("ask"),
        "joined",
        "away",
        ways=[
            (START, "work"),
            (START, "came"),
            (START, "ask"),
            (("came", "ask"), "joined"),
            ("work", "away"),
        ],
    )
    run = Drive(spec, limits=limits)
    run.finish("came")
    run.pause(capabilities=CONTROL, timeout=timeout, on_timeout=on_timeout)
    return run


def test_a_pause_says_until_when_and_without_a_timeout_takes_that_of_the_run() -> None:
    run = paused(Halt())
    (fact,) = run.facts("run.paused")
    assert fact.data == {"reason": None, "mode": "after-node", "deadline": rfc3339(at(10))}
    assert run.state.next_deadline() == at(10)
    assert run.state.pause == Pause(
        since=at(0),
        actor="ada",
        reason=None,
        mode="after-node",
        deadline=at(10),
        on_timeout=Halt(),
    )
    assert paused(Halt(), timeout=None).state.next_deadline() is None
    bounded = paused(Halt(), timeout=None, limits=Limits(pause_timeout=99))
    assert bounded.state.next_deadline() == at(99)
    assert paused(Halt(), limits=Limits(pause_timeout=99)).state.next_deadline() == at(10)


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_deadline_of_a_pause_resumes_the_run_unless_somebody_did(
    by_hand: bool,
) -> None:
    run = paused(ResumeRun())
    run.finish("work")
    assert run.running == []
    if by_hand:
        run.resume()
    run.tick(10)

    assert (run.status, run.running, run.waiting) == ("running", ["away"], ["ask"])
    (fact,) = run.facts("run.resumed")
    told = (
        ("ada", {"reason": None})
        if by_hand
        else ("timeout", {"reason": "the pause's deadline passed"})
    )
    assert (fact.actor, fact.data) == told
    assert (run.state.counters.resume_count, run.state.next_deadline()) == (1, None)


def test_the_deadline_of_a_pause_can_halt_the_run() -> None:
    run = paused(Halt())
    run.tick(10)

    assert (run.status, run.stops) == ("ending", [("graph:g;node:work", "ending", False)])
    run.stopped("work")
    assert run.status == "halted"
    assert (run.ending.reason, run.ending.actor) == ("pause-timeout", "timeout")


def test_the_deadline_of_a_pause_can_leave_all_branches_for_one_node() -> None:
    run = paused(GoTo(node="away"))
    left = run.visit("work").address
    run.tick(10)

    assert (run.status, run.running, run.waiting) == ("running", ["away"], [])
    assert run.stops == [("graph:g;node:work", "ending", True)]
    assert (run.settled("ask").status, run.settled("ask").by) == ("cancelled", "timeout")
    (gone,) = run.facts("interrupt.cancelled")
    assert "left every branch" in str(gone.data["reason"])
    assert run.state.root.tokens == {}
    (fact,) = run.facts("run.resumed")
    assert (fact.actor, "going to 'away'" in str(fact.data["reason"])) == ("timeout", True)

    before = run.seen()
    run.end(Finished, visit=left, patch={"x": "late"})
    assert run.seen() == before
    run.finish("away")
    assert run.status == "completed"


def test_a_passed_deadline_takes_effect_before_a_persons_request() -> None:
    run = Drive(chain("work"))
    run.pause(timeout=10)
    run.finish("work")
    run.wait(10)

    message = events.Message(message_id="m", text="hello", sender="ada")
    refusal = run.refused(events.MessageSent, message=message)
    assert (refusal.code, run.status) == (Code.NOT_RUNNING, "paused")
    run.pause()
    assert run.status == "completed"


@pytest.mark.parametrize("node", ["nowhere", "cleanup"])
def test_a_pause_may_not_go_where_no_way_leads(node: str) -> None:
    run = Drive(chain("work", finally_=["cleanup"]))

    refusal = run.refused(
        events.Paused, actor="ada", capabilities=CONTROL, timeout=1, on_timeout=GoTo(node=node)
    )
    assert refusal.code is Code.UNKNOWN_NODE
    assert repr(node) in refusal.message
    assert refusal.message.endswith("use one of 'work', 'END'.")


def test_an_interrupt_due_together_with_a_pause_comes_first() -> None:
    run = asking(Default(answer=1))
    run.pause(capabilities=CONTROL, timeout=10, on_timeout=GoTo(node="late"))
    run.tick(10)

    assert run.settled("ask").status == "answered"
    assert run.running == ["late"]


# odd lengths of time


@pytest.mark.parametrize(
    ("seconds", "deadline"),
    [
        (-5, at(0)),
        (0.5, at(0.5)),
        (1e300, at(100 * 365 * 86400)),
        (float("inf"), at(100 * 365 * 86400)),
        (float("nan"), at(100 * 365 * 86400)),
    ],
)
def test_a_length_of_time_that_no_calendar_holds_ends_with_the_calendar(
    seconds: float, deadline: object
) -> None:
    run = Drive(chain("work"))
    assert Step(run.state, at(0)).after(seconds) == deadline

    run.pause(timeout=seconds)
    assert run.state.next_deadline() == deadline


def test_a_grace_that_is_over_before_it_began_is_over_at_the_next_look() -> None:
    run = Drive(chain("work"))
    run.cancel(actor="ada", grace=-1)
    assert run.status == "ending"

    run.tick()
    assert run.status == "cancelled"
