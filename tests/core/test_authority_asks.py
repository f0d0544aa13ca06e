"""A question asks for its own capability if its node declares it, else for one that its node declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_agents import agent_node, asks, call, question, tool, turn
from core_drive import Drive, asked, chain, gate
from core_graphs import ask, rule

from abeyance.core import events, policy
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.spec import FunctionNode, Node
from abeyance.core.terms import Escalation, Terms
from abeyance.errors import Code


@pytest.mark.parametrize(
    ("capability", "declared", "does_fit"),
    [
        ("approve", "approve", True),
        ("approve", "Approve", False),
        ("approve", "approve:all", False),
        ("tenant:7:approve", "tenant:*:approve", True),
        ("tenant::approve", "tenant:*:approve", False),
        ("tenant:7:8:approve", "tenant:*:approve", False),
        ("tenant:7:reject", "tenant:*:approve", False),
        ("tenant:eu-7:approve", "tenant:eu-*:approve", True),
        ("tenant:us-7:approve", "tenant:eu-*:approve", False),
        ("a[1]?", "a[1]?", True),
        ("a1b", "a[1]?", False),
        ("a[12]x", "a[*]?", False),
        ("a[12]?", "a[*]?", True),
    ],
)
def test_a_capability_fits_the_declared_name_or_pattern(
    capability: str, declared: str, *, does_fit: bool
) -> None:
    assert policy.fits(capability, declared) is does_fit


LATER = Terms(escalate=(Escalation(after=60, requested_capability="cfo"),))


def asking(*asks: str, **about: Any) -> Drive:
    run = Drive(chain(FunctionNode(id="work", asks=asks), "next"))
    run.ask("work", asked("sure", **about))
    return run


def test_a_question_asks_for_what_it_says_if_its_node_declares_it() -> None:
    run = asking("approve", "tenant:*:approve", requested_capability="tenant:7:approve")

    assert run.open("sure").requested_capability == "tenant:7:approve"


def test_a_question_without_a_capability_asks_for_the_first_but_for_what_it_escalates_to() -> None:
    assert asking("approve", "audit").open("sure").requested_capability == "approve"
    assert asking().open("sure").requested_capability is None
    assert asking("cfo", terms=LATER).open("sure").requested_capability is None
    assert asking("cfo", "approve", terms=LATER).open("sure").requested_capability == "approve"


@pytest.mark.parametrize("asks", [(), ("audit",), ("approve:*",)])
def test_a_question_that_asks_for_something_else_fails_its_visit(asks: tuple[str, ...]) -> None:
    code, message, address = asking(*asks, requested_capability="approve").error

    assert (code, address) == ("undeclared_capability", "graph:g;node:work")
    assert "asks=['approve']" in message


def test_a_question_without_a_capability_cannot_fill_a_pattern() -> None:
    code, message, _ = asking("tenant:*:approve").error

    assert code == "undeclared_capability"
    assert "'tenant:*:approve'" in message


def test_a_question_that_escalates_to_something_else_fails_its_visit() -> None:
    code, message, _ = asking("approve", terms=LATER).error

    assert code == "undeclared_capability"
    assert "asks=['cfo']" in message


@pytest.mark.parametrize(
    "node", [FunctionNode(id="work", asks=("approve",)), gate("work", capability="approve")]
)
def test_a_rule_that_names_no_capability_asks_for_that_of_its_node(node: Node) -> None:
    run = Drive(chain(node, "next", rules=[rule("sure", "work", ask("sure"))]))
    if isinstance(node, FunctionNode):
        run.finish("work")
    else:
        run.answer("work", principal=Principal(subject="ada", capabilities=("approve",)))

    assert run.open("sure").requested_capability == "approve"


@pytest.mark.parametrize("is_before", [True, False])
def test_a_tool_that_asks_for_what_it_does_not_declare_is_the_authors_to_mend(
    *, is_before: bool
) -> None:
    run = Drive(chain(agent_node("clerk", tool("wire"))))
    sure = question("sure", requested_capability="approve")
    if is_before:
        turn(run, call("c1", "wire", sure))
    else:
        turn(run, call("c1", "wire"))
        asks(run, "c1", sure)

    assert run.error[0] == "undeclared_capability"


RED = Principal(subject="rose", capabilities=("approve:red",))
BOSS = Principal(subject="boss", capabilities=("*",))
BLUE = Principal(subject="bill", capabilities=("approve:blue",))


def asking_of_team(**values: Any) -> Drive:
    """Start a run that asks for the approval of its team."""
    spec = chain(gate("ask", capability="approve:{team}"), "work")
    return Drive(replace(spec, open_values=True), values=values)


def answers(run: Drive, principal: Principal) -> dict[str, Any]:
    return run.response({run.open("ask").id: True}, principal=principal)


def test_only_who_has_the_capability_that_was_filled_in_may_answer() -> None:
    run = asking_of_team(team="red")
    assert run.open("ask").requested_capability == "approve:red"
    assert run.refused(events.Responded, **answers(run, BLUE)).code is Code.CAPABILITY_REQUIRED

    run.feed(events.Responded, **answers(run, RED))
    assert run.running == ["work"]


def test_an_edit_of_the_field_does_not_hand_an_open_question_to_others() -> None:
    run = asking_of_team(team="red")
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
    run = asking_of_team(team=team)

    code, message, address = run.error
    assert (code, address) == ("undeclared_capability", "graph:g;node:ask")
    assert "'approve:{team}'" in message
    assert not run.asking


def test_a_field_that_is_missing_fails_the_visit() -> None:
    assert asking_of_team().error[0] == "undeclared_capability"


def test_a_change_of_course_takes_every_capability_that_fits() -> None:
    run = asking_of_team(team="red")
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
