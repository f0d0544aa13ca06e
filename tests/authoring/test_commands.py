"""Commands of people, as events of the core."""

from __future__ import annotations

from typing import Any

import pytest
from core_drive import ADA, T0, Drive, gate, graph

from abeyance import commands
from abeyance.commands import as_events
from abeyance.core import events, machine
from abeyance.core.ledger import Ledger
from abeyance.core.spec import END, START, GoTo, Halt, ResumeRun
from abeyance.errors import Code, Refusal

BOOL = {"type": "boolean"}


def asking(*gates: str) -> Drive:
    return Drive(
        graph(
            *(gate(name, schema=BOOL if name.startswith("typed") else None) for name in gates),
            ways=[(START, name) for name in gates],
        )
    )


def responded(book: Ledger, **order: Any) -> Any:
    return as_events.responded(commands.Respond(principal=ADA, **order), book, T0)


def test_a_bare_answer_means_the_only_open_interrupt() -> None:
    run = asking("ask")

    assert responded(run.state.ledger, response=None).answers == {run.open("ask").id: None}


def test_an_id_that_is_given_is_the_one_that_is_meant() -> None:
    run = asking("ask")
    order = commands.Respond.model_construct(
        {"interrupt_id", "response"}, interrupt_id="", response=True, principal=ADA
    )

    event = as_events.responded(order, run.state.ledger, T0)
    assert event.answers == {"": True}
    with pytest.raises(Refusal) as caught:
        machine.check(run.state, event)
    assert caught.value.code is Code.UNKNOWN_INTERRUPT


def test_each_answer_is_validated_against_the_schema_of_its_interrupt() -> None:
    run = asking("typed1", "typed2", "free")
    one, two, free = (run.open(name).id for name in ("typed1", "typed2", "free"))
    event = responded(run.state.ledger, responses={one: True, two: "yes", free: 5, "gone": 1})

    assert {id_: len(faults) for id_, faults in event.schema_faults.items()} == {one: 0, two: 1}
    assert event.schema_faults[two][0].message == '"yes" is not of type "boolean"'


@pytest.mark.parametrize("answer", [float("inf"), float("nan")])
def test_an_answer_that_is_not_json_is_refused(answer: Any) -> None:
    run = asking("typed")
    event = responded(run.state.ledger, response=answer)

    with pytest.raises(Refusal) as caught:
        machine.check(run.state, event)
    assert caught.value.code is Code.INVALID_ANSWER
    assert "is not JSON" in caught.value.message


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("resume", ResumeRun()),
        ("halt", Halt()),
        ("goto:a:b", GoTo(node="a:b")),
        (f"goto:{END}", GoTo(node=END)),
    ],
)
def test_the_deadline_policy_of_a_pause_is_parsed(text: str, policy: Any) -> None:
    event = as_events.control(commands.Pause(on_timeout=text, timeout=60, reason="lunch"), T0)

    assert isinstance(event, events.Paused)
    assert (event.on_timeout, event.timeout, event.reason) == (policy, 60.0, "lunch")


def test_an_answer_that_was_taken_once_is_not_held_against_its_schema_again() -> None:
    run = asking("typed", "free")
    typed, free = (run.open(name).id for name in ("typed", "free"))
    order = commands.Respond(responses={typed: "of an earlier schema", free: 5}, principal=ADA)
    event = as_events.responded(order, run.state.ledger, T0, is_checked=True)

    assert event.schema_faults == {typed: ()}
    machine.check(run.state, event)
