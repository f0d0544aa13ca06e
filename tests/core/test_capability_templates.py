"""A capability with a field in it: filled once when its question opens, guarded as a pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import Drive, chain, gate
from core_rules import ask, rule

from abeyance.core import events
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.errors import Code

RED = Principal(subject="rose", capabilities=("approve:red",))
BOSS = Principal(subject="boss", capabilities=("*",))
BLUE = Principal(subject="bill", capabilities=("approve:blue",))


def asking(**values: Any) -> Drive:
    """A run that asks for the approval of its team."""
    spec = chain(gate("ask", capability="approve:{team}"), "work")
    return Drive(replace(spec, open_values=True), values=values)


def answers(run: Drive, principal: Principal) -> dict[str, Any]:
    return run.response({run.open("ask").id: True}, principal=principal)


def test_only_who_has_the_capability_that_was_filled_in_may_answer() -> None:
    run = asking(team="red")
    assert run.open("ask").requested_capability == "approve:red"
    assert run.refused(events.Responded, **answers(run, BLUE)).code is Code.CAPABILITY_REQUIRED

    run.feed(events.Responded, **answers(run, RED))
    assert run.running == ["work"]


def test_an_edit_of_the_field_does_not_hand_an_open_question_to_others() -> None:
    run = asking(team="red")
    run.edit(BOSS, team="blue")

    assert run.open("ask").requested_capability == "approve:red"


def test_numbers_and_paths_fill_a_capability_too() -> None:
    spec = chain(gate("ask", capability="approve:{team.id}-{level}"))
    run = Drive(spec, values={"team": {"id": "red"}, "level": 7})

    assert run.open("ask").requested_capability == "approve:red-7"


@pytest.mark.parametrize(
    "team", [None, "", "*", "re*", "red:all", "red blue", "red,blue", "red\n", True, 1.5, ["red"]]
)
def test_a_value_that_could_mean_another_capability_fails_the_visit(team: Json) -> None:
    run = asking(team=team)

    code, message, address = run.error
    assert (code, address) == ("undeclared_capability", "graph:g;node:ask")
    assert "'approve:{team}'" in message
    assert not run.asking


def test_a_field_that_is_missing_fails_the_visit() -> None:
    assert asking().error[0] == "undeclared_capability"


def test_a_change_of_course_takes_every_capability_that_fits() -> None:
    run = asking(team="red")
    assert run.state.spec.guarded_by == ("approve:*",)

    everything_but = Principal(subject="cleo", capabilities=("runs:control", "approve:red"))
    refusal = run.refused(events.ValuesEdited, patch={"x": 1}, version=1, principal=everything_but)
    assert refusal.details["capabilities"] == ["approve:*"]


def test_a_rule_fills_its_capability_or_asks_nobody() -> None:
    rules = [
        rule("first", "work", ask("first", capability="approve:{team}")),
        rule("second", "work", ask("second", capability="audit:{office}")),
    ]
    run = Drive(chain("work", rules=rules), values={"team": "red", "office": "bonn"})
    run.finish("work")
    assert run.open("first").requested_capability == "approve:red"
    assert run.open("second").requested_capability == "audit:bonn"

    run = Drive(chain("work", rules=rules), values={"team": "red"})
    run.finish("work")
    assert (run.error[0], run.asking) == ("undeclared_capability", [])
