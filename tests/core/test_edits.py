"""Edits of a stopped run: what people may change, and which edits would lead around a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import ADA, Drive, asked, at, chain, gate, graph

from abeyance.core import events
from abeyance.core.deadlines import moment
from abeyance.core.json import rfc3339, why_not_json
from abeyance.core.policy import Principal
from abeyance.core.spec import (
    START,
    Default,
    FieldSpec,
    GoTo,
    Halt,
    InterruptNode,
    InterruptSpec,
    OnTimeout,
)
from abeyance.core.terms import BusinessTime, Calendar, Terms
from abeyance.errors import Code, Refusal

BOSS = Principal(subject="boss", capabilities=("runs:control", "pay"))


def waiting(
    *,
    timeout: float | None = 3600,
    capability: str | None = "pay",
    on_timeout: OnTimeout | None = None,
) -> Drive:
    asked = gate("ask", timeout=timeout, capability=capability, on_timeout=on_timeout)
    return Drive(graph(asked, "next", ways=[(START, "ask"), ("ask", "next")]))


def moved(run: Drive, who: Principal, seconds: float | None, **more: Any) -> dict[str, Any]:
    """Return the fields of an edit of the only question's deadline."""
    (interrupt,) = run.state.ledger.open.values()
    deadline = None if seconds is None else at(seconds)
    about = {"principal": who, "interrupt_id": interrupt.id, "moves": True, "deadline": deadline}
    return {**about, **more}


def code_of(call: Any, *arguments: Any, **options: Any) -> Code:
    with pytest.raises(Refusal) as refused:
        call(*arguments, **options)
    return refused.value.code


def test_an_edit_sets_fields_whatever_their_reducers_and_makes_a_new_version() -> None:
    run = waiting()
    run.edit(BOSS, log=["one"])
    run.edit(BOSS, log=["two"], x=3)

    assert run.state.root.values == {"log": ["two"], "x": 3}
    assert run.state.root.version == 3
    told = run.facts("run.values_edited")[-1]
    assert (told.address, told.actor) == ("graph:g", "boss")
    assert told.data == {"fields": ["log", "x"], "version": 3}


def test_a_refused_edit_of_values_says_why() -> None:
    run = waiting()
    busy, paused = Drive(chain("work")), Drive(chain("work"))
    paused.pause()
    over = Drive(chain("work"))
    over.cancel()
    no_field = {"errors": [{"pointer": "/nope", "message": "is not in the state of 'g'"}]}
    fault = f"is not JSON: {why_not_json(float('inf'))}"
    no_json = {"errors": [{"pointer": "/x", "message": fault}]}
    for each, patch, version, expected, said in (
        (run, {"nope": 1}, 1, (Code.INVALID_INPUT, no_field), "'nope' is not in the state of 'g'."),
        (run, {"x": float("inf")}, 1, (Code.INVALID_INPUT, no_json), f"the field 'x' {fault}."),
        (run, {"x": 1}, 7, (Code.STALE, {"version": 1}), "version 7 of the values, and they"),
        (busy, {"x": 1}, 1, (Code.NOT_STOPPED, {"run_status": "running"}), "pause it first, which"),
        (
            paused,
            {"x": 1},
            1,
            (Code.NOT_STOPPED, {"run_status": "paused"}),
            "code still runs: wait",
        ),
        (over, {"x": 1}, 1, (Code.NOT_RUNNING, {"run_status": over.status}), "cannot be edited."),
    ):
        about: dict[str, Any] = {"principal": BOSS, "patch": patch, "version": version}
        refusal = each.refused(events.ValuesEdited, **about)
        assert (refusal.code, refusal.details) == expected
        assert said in refusal.message


def test_an_edit_that_the_graph_of_the_run_does_not_take_is_refused() -> None:
    kinds = FieldSpec(kinds=("string", "null"))
    run = Drive(replace(chain(gate("ask")), fields={"x": kinds, "y": kinds}))
    about: dict[str, Any] = {"principal": BOSS, "version": 1}
    refusal = run.refused(events.ValuesEdited, patch={"x": "one", "y": 5}, **about)

    fault = "takes string or null, and not integer"
    assert refusal.code is Code.INVALID_INPUT
    assert refusal.details == {"errors": [{"pointer": "/y", "message": fault}]}
    run.feed(events.ValuesEdited, patch={"x": "one", "y": None}, **about)
    assert run.values == {"x": "one", "y": None}


@pytest.mark.parametrize("seconds", [60, 7200, None])
def test_a_deadline_is_moved_by_those_who_may_approve(seconds: float | None) -> None:
    run = waiting()
    assert code_of(run.move, ADA, seconds) is Code.CAPABILITY_REQUIRED
    run.move(BOSS, seconds)

    assert run.state.next_deadline() == (None if seconds is None else at(seconds))
    (fact,) = run.facts("interrupt.deadline_edited")
    assert (fact.address, fact.actor) == ("graph:g;node:ask", "boss")
    assert fact.data == {
        "id": run.open("ask").id,
        "name": "ask",
        "deadline": None if seconds is None else rfc3339(at(seconds)),
        "was": rfc3339(at(3600)),
        "on_timeout": "halt",
    }


def test_a_deadline_in_the_past_is_refused() -> None:
    run = waiting()
    run.wait(10)

    refusal = run.refused(events.DeadlineEdited, **moved(run, BOSS, 10))
    assert refusal.code is Code.INVALID_BODY
    assert rfc3339(at(10)) in refusal.message
    assert refusal.details == {"errors": [{"pointer": "/deadline", "message": refusal.message}]}


def test_a_deadline_policy_can_be_edited_but_not_to_a_default() -> None:
    run = waiting()
    assert code_of(run.move, ADA, 7200, on_timeout=Halt()) is Code.CAPABILITY_REQUIRED
    for seconds, on_timeout, code, said in (
        (60, GoTo(node="no"), Code.UNKNOWN_NODE, "cannot go to 'no' in 'g': use one of 'ask', "),
        (None, Halt(), Code.INVALID_BODY, "requires a deadline"),
        (60, Default(answer=True), Code.INVALID_BODY, "only be declared in the graph"),
    ):
        edit = moved(run, BOSS, seconds, on_timeout=on_timeout)
        refusal = run.refused(events.DeadlineEdited, **edit)
        assert refusal.code is code
        assert said in refusal.message
    run.move(BOSS, 60, on_timeout=GoTo(node="next"))
    run.tick(60)

    assert [visit.node for visit in run.state.visits.values()] == ["next"]
    assert run.state.ending is None


def test_a_deadline_is_moved_by_the_calendar_of_its_question_or_not_at_all() -> None:
    def asks(name: str, terms: Terms | None) -> InterruptNode:
        return InterruptNode(id=name, question=InterruptSpec(name=name, prompt="?", terms=terms))

    weekdays = Calendar(name="five", holidays=("2026-03-03",))
    terms = {"worked": Terms(calendar=weekdays), "plain": None, "free": Terms(priority="high")}
    nodes = [asks(name, each) for name, each in terms.items()]
    run = Drive(graph(*nodes, ways=[(START, name) for name in terms]))
    about = {"principal": BOSS, "moves": True, "timeout": BusinessTime(6, "bd")}
    for name in ("plain", "free"):
        refusal = run.refused(events.DeadlineEdited, **about, interrupt_id=run.open(name).id)
        assert refusal.code is Code.INVALID_BODY
        assert f"'{name}' has no calendar" in refusal.message
        assert refusal.details == {"errors": [{"pointer": "/timeout", "message": refusal.message}]}
    run.feed(events.DeadlineEdited, **about, interrupt_id=run.open("worked").id)

    assert run.open("worked").deadline == moment(run.now, BusinessTime(6, "bd"), weekdays)


def test_the_deadline_of_an_unknown_question_cannot_be_moved() -> None:
    about = {"principal": BOSS, "interrupt_id": "r.0", "moves": True}
    refusal = waiting().refused(events.DeadlineEdited, **about)

    assert refusal.code is Code.UNKNOWN_INTERRUPT
    assert refusal.details == {"interrupt_id": "r.0"}


def test_an_edit_has_nothing_to_do_for_code_that_goes_on_anyway() -> None:
    run = Drive(chain("a"))
    run.ask("a", asked("ok", "p1"), asked("ok", "p2"), composite=True)
    run.pause()
    first, second = run.state.ledger.open
    run.respond({first: True})
    run.edit(BOSS, x=3)

    assert (run.ready, list(run.state.ledger.open)) == (["a"], [second])
