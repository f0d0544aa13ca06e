"""What people may change in a run that has stopped, and what would be a way around a gate."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import ADA, Drive, asked, at, chain, gate, graph

from abeyance.core import events
from abeyance.core.business_time import moment
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.spec import START, Default, GoTo, Halt, InterruptNode, InterruptSpec, OnTimeout
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


def move(run: Drive, who: Principal, seconds: float | None, **more: Any) -> None:
    (interrupt,) = run.state.ledger.open.values()
    deadline = None if seconds is None else at(seconds)
    run.feed(
        events.DeadlineEdited,
        principal=who,
        interrupt_id=interrupt.id,
        moves=True,
        deadline=deadline,
        **more,
    )


def code_of(call: Any, *arguments: Any, **options: Any) -> Code:
    with pytest.raises(Refusal) as refused:
        call(*arguments, **options)
    return refused.value.code


def edit(run: Drive, who: Principal, patch: dict[str, Json], version: int = 1) -> None:
    run.feed(events.ValuesEdited, principal=who, patch=patch, version=version)


def test_an_edit_sets_fields_whatever_their_reducers_and_makes_a_new_version() -> None:
    run = waiting()
    edit(run, BOSS, {"log": ["one"]})
    edit(run, BOSS, {"log": ["two"], "x": 3}, version=2)

    assert run.state.root.values == {"log": ["two"], "x": 3}
    assert run.state.root.version == 3
    told = run.facts("run.values_edited")[-1]
    assert (told.actor, told.data) == ("boss", {"fields": ["log", "x"], "version": 3})


def test_an_edit_beside_an_open_gate_asks_for_the_gates_capability() -> None:
    run = waiting()

    assert code_of(edit, run, ADA, {"x": 1}) is Code.CAPABILITY_REQUIRED
    assert run.state.root.version == 1


def test_an_edit_of_what_is_no_field_is_refused() -> None:
    assert code_of(edit, waiting(), BOSS, {"nope": 1}) is Code.INVALID_INPUT


@pytest.mark.parametrize("seconds", [60, 7200, None])
def test_a_deadline_is_moved_by_those_who_may_approve(seconds: float | None) -> None:
    run = waiting()
    assert code_of(move, run, ADA, seconds) is Code.CAPABILITY_REQUIRED
    move(run, BOSS, seconds)

    assert run.state.next_deadline() == (None if seconds is None else at(seconds))
    assert [fact.actor for fact in run.facts("interrupt.deadline_edited")] == ["boss"]


def test_a_deadline_can_be_removed() -> None:
    run = waiting()
    move(run, BOSS, None)
    run.tick(10_000_000)

    assert run.state.ledger.open


def test_a_deadline_in_the_past_is_refused() -> None:
    run = waiting()
    run.wait(10)

    assert code_of(move, run, BOSS, 10) is Code.INVALID_BODY


def test_what_happens_at_the_deadline_can_be_changed_but_not_to_a_default() -> None:
    run = waiting()
    assert code_of(move, run, ADA, 7200, on_timeout=Halt()) is Code.CAPABILITY_REQUIRED
    assert code_of(move, run, BOSS, 60, on_timeout=GoTo(node="no")) is Code.UNKNOWN_NODE
    assert code_of(move, run, BOSS, None, on_timeout=Halt()) is Code.INVALID_BODY
    assert code_of(move, run, BOSS, 60, on_timeout=Default(answer=True)) is Code.INVALID_BODY
    move(run, BOSS, 60, on_timeout=GoTo(node="next"))
    run.tick(60)

    assert [visit.node for visit in run.state.visits.values()] == ["next"]
    assert run.state.ending is None


def test_a_deadline_is_moved_by_the_calendar_of_its_question_or_not_at_all() -> None:
    def asks(name: str, terms: Terms | None) -> InterruptNode:
        return InterruptNode(id=name, question=InterruptSpec(name=name, prompt="?", terms=terms))

    weekdays = Calendar(name="five")
    terms = {"worked": Terms(calendar=weekdays), "plain": None, "free": Terms(priority="high")}
    nodes = [asks(name, each) for name, each in terms.items()]
    run = Drive(graph(*nodes, ways=[(START, name) for name in terms]))
    about = {"principal": BOSS, "moves": True, "timeout": BusinessTime(6, "bd")}
    for name in ("plain", "free"):
        refusal = run.refused(events.DeadlineEdited, **about, interrupt_id=run.open(name).id)
        assert (refusal.code, refusal.details["errors"][0]["pointer"]) == (
            Code.INVALID_BODY,
            "/timeout",
        )
    run.feed(events.DeadlineEdited, **about, interrupt_id=run.open("worked").id)

    assert run.open("worked").deadline == moment(run.now, BusinessTime(6, "bd"), weekdays)


def test_what_is_not_there_cannot_be_moved() -> None:
    run = waiting()
    with pytest.raises(Refusal) as refused:
        run.feed(events.DeadlineEdited, principal=BOSS, interrupt_id="r.0", moves=True)

    assert refused.value.code is Code.UNKNOWN_INTERRUPT


def test_an_edit_has_nothing_to_do_for_code_that_goes_on_anyway() -> None:
    run = Drive(chain("a"))
    run.ask("a", asked("ok", "p1"), asked("ok", "p2"), composite=True)
    run.feed(events.Paused, actor="ada")
    first, second = run.state.ledger.open
    run.feed(events.Responded, **run.response({first: True}))
    edit(run, BOSS, {"x": 3})

    assert (run.ready, list(run.state.ledger.open)) == (["a"], [second])
