"""The terms of a question, as authors write them: the same in Python, in tools, in rules and in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from abeyance import (
    START,
    Backoff,
    Budget,
    Calendar,
    Escalation,
    Graph,
    GraphError,
    Interrupt,
    Quorum,
    Remember,
    load,
    tool,
)
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.authoring.interrupts import lowered
from abeyance.core import terms as core
from abeyance.core.spec import Ask, GraphSpec, InterruptNode
from abeyance.core.terms import BusinessTime, Terms
from abeyance.errors import Fatal

BOOLEAN = {"type": "boolean"}

ALL: dict[str, Any] = {
    "assignees": ["ada", "group:finance"],
    "assignees_only": True,
    "priority": "high",
    "risk": 80,
    "remind": ["1d", "-2h"],
    "escalate": [Escalation(after="2bd", to=["group:directors"], requested_capability="direct")],
    "calendar": Calendar(days="mon-thu", hours="08:00-16:30", timezone="Europe/Berlin"),
    "quorum": Quorum(2, of=["group:finance"], veto=False),
    "hold": "10m",
    "not_by": ["@starter"],
}
LOWERED = Terms(
    assignees=("ada", "group:finance"),
    assignees_only=True,
    priority="high",
    risk=80,
    remind=(86_400.0, -7200.0),
    escalate=(
        core.Escalation(
            after=BusinessTime(2, "bd"), to=("group:directors",), requested_capability="direct"
        ),
    ),
    calendar=core.Calendar(
        name="mon-thu 08:00-16:30",
        timezone="Europe/Berlin",
        days=(0, 1, 2, 3),
        opens=8 * 60,
        closes=16 * 60 + 30,
    ),
    quorum=core.Quorum(count=2, of=("group:finance",), veto=False),
    hold=600.0,
    not_by=("@starter",),
)


class Careless(BaseModel):
    """An answer that says nothing approves."""

    approved: bool = True


class Careful(BaseModel):
    """An answer that says nothing rejects."""

    approved: bool = False
    comment: str = ""


def asking(**options: Any) -> GraphSpec:
    """Return a graph with one question."""
    graph = Graph("shop")
    graph.interrupt("ask", prompt="?", **{"response": bool, **options})
    graph.edge(START, "ask")
    return graph.build()


def asked_by(spec: GraphSpec) -> Terms | None:
    """Return the terms of the question `ask` of a graph."""
    node = spec.nodes["ask"]
    assert isinstance(node, InterruptNode)
    return node.question.terms


def test_a_question_has_the_terms_that_its_author_wrote() -> None:
    assert asked_by(asking(timeout="3d", **ALL)) == LOWERED
    question = lowered(Interrupt("ask", response=bool, timeout="3d", **ALL)).question
    assert question.terms == LOWERED


def test_an_approval_has_the_terms_of_its_tool() -> None:
    @tool(approve=True, approval_timeout="3d", **ALL)
    def pay(amount: int) -> int:
        return amount

    assert pay.question.terms == LOWERED


def test_a_rule_that_asks_has_terms() -> None:
    graph = Graph("shop")
    graph.node(name="price")(lambda: None)
    graph.edge(START, "price")
    ask = {"kind": "interrupt", "prompt": "?", "response": bool, "timeout": "3d", **ALL}
    graph.rule("r", when={"node": "price"}, then=[ask])

    (action,) = graph.build().rules[0].actions
    assert isinstance(action, Ask)
    assert action.question.terms == LOWERED


def test_a_question_in_yaml_has_the_same_terms(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """
id: shop
nodes:
  - id: ask
    kind: interrupt
    config:
      prompt: "?"
      response: {type: boolean}
      timeout: 3d
      assignees: [ada, "group:finance"]
      assignees_only: true
      priority: high
      risk: 80
      remind: [1d, -2h]
      escalate:
        - {after: 2bd, to: ["group:directors"], requested_capability: direct}
      calendar: {days: mon-thu, hours: "08:00-16:30", timezone: Europe/Berlin}
      quorum: {count: 2, of: ["group:finance"], veto: false}
      hold: 10m
      not_by: ["@starter"]
edges:
  - [START, ask]
"""
    )
    assert asked_by(load(file).build()) == LOWERED


def test_a_single_name_and_a_number_stand_for_themselves() -> None:
    terms = asked_by(asking(assignees="ada", quorum=2, remind="1d", not_by="@starter"))

    assert terms == Terms(
        assignees=("ada",), quorum=core.Quorum(count=2), remind=(86_400.0,), not_by=("@starter",)
    )


def test_a_question_that_names_no_terms_has_none() -> None:
    assert asked_by(asking()) is None


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"assignees": ["a b"]}, "assignees=: 'a b' is neither a subject nor a group"),
        ({"assignees": ["@starter"]}, "assignees=: '@starter' is neither a subject nor a group"),
        ({"assignees": "group:"}, "'group:' is neither a subject nor a group"),
        ({"assignees": [7]}, "assignees= should be a valid string, not 7"),
        ({"assignees_only": "yes"}, "assignees_only= should be a valid boolean, not 'yes'"),
        ({"priority": "urgent"}, "priority= should be 'high', 'normal' or 'low', not 'urgent'"),
        ({"risk": 101}, "risk= should be less than or equal to 100, not 101"),
        ({"remind": ["soon"]}, "remind=: 'soon' is not a duration"),
        ({"hold": 0, "response": bool}, "hold=: 0 s is not a length of time: write '10m'"),
        ({"hold": -60, "response": bool}, "hold=: -60 s is not a length of time"),
        (
            {"not_by": ["@start"]},
            "not_by=: '@start' is not a rule: write '@starter', or the name of a",
        ),
        ({"escalate": "2d"}, "escalate= should be {after, to, requested_capability}, or a list of"),
        ({"escalate": Escalation(after="2d")}, "names nobody: set to= or requested_capability="),
        ({"quorum": 0}, "quorum= should be greater than or equal to 1, not 0"),
        ({"quorum": "2"}, "quorum= should be a number, or {count, of, veto}, not '2'"),
        (
            {"quorum": Quorum(3, of=["ada", "bob"])},
            "quorum=3 cannot be reached by ada, bob: nobody",
        ),
        (
            {"quorum": 2, "response": None},
            "has quorum, and its answer is not a yes or no: use response=",
        ),
        (
            {"hold": "1m", "response": str},
            "has hold, and its answer is not a yes or no: use response=",
        ),
        (
            {"hold": "1m", "quorum": 2, "response": Careless},
            "has quorum and hold, and its answer is",
        ),
        (
            {"hold": "1m", "response": {"properties": {"approved": True}}},
            "has hold, and its answer",
        ),
        ({"timeout": "-2bd"}, "has a timeout of -2bd: it must be positive and finite"),
        ({"assignee": "ada"}, "the interrupt 'ask' has no option 'assignee': it has assignees"),
        ({"assignees_only": True}, "is for nobody"),
        (
            {"assignees": ["ada"], "assignees_only": True, "quorum": 2},
            "quorum=2 cannot be reached by ada: nobody else may answer, so name more",
        ),
        (
            {
                "assignees": ["ada", "group:a"],
                "quorum": Quorum(2, of=["ada"]),
                "escalate": Escalation(after="1d", to="ada"),
            },
            "quorum=2 cannot be reached by ada: nobody else may answer, so name more",
        ),
        (
            {"assignees": "ada", "assignees_only": True, "quorum": Quorum(1, of=["bob"])},
            "none of them is in assignees=",
        ),
        ({"timeout": "2bd"}, "2bd needs calendar=: write calendar='DE-BY', or a Calendar"),
        ({"remind": "3bh"}, "3bh needs calendar="),
        ({"escalate": Escalation(after="1bd", to="ada")}, "1bd needs calendar="),
        ({"remind": "-2h"}, "remind=: -7200 s is before the deadline, and the question has none"),
        ({"remind": "0s"}, "remind=: 0 s is not a length of time: write '1d' or '-2h'"),
        ({"remind": "0bd"}, "remind=: 0bd is not a length of time"),
        (
            {"escalate": Escalation(after="-1d", to="ada")},
            "escalate=, after=-86400 s: it must be positive and finite",
        ),
        ({"timout": "5m"}, "the interrupt 'ask' has no option 'timout': write timeout="),
    ],
)
def test_a_fault_names_the_value_and_what_to_write(options: dict[str, Any], fault: str) -> None:
    with pytest.raises(GraphError) as raised:
        asking(**options)
    assert fault in str(raised.value)


def test_all_faults_of_a_question_are_listed() -> None:
    with pytest.raises(GraphError) as raised:
        asking(
            risk=101,
            priority="urgent",
            assignees=["a b"],
            not_by="@start",
            hold="1m",
            remind="-2h",
            calendar="Bavaria, DE",
            timeout=-1,
            response=str,
        )

    told = [fault.partition("'ask'")[2] for fault in raised.value.faults]
    for each in ("risk=", "priority=", "'a b'", "'@start'", "has hold", "timeout", "calendar="):
        assert any(each in fault for fault in told), (each, told)


def test_a_calendar_that_cannot_be_read_is_the_only_fault_of_times_that_need_it() -> None:
    with pytest.raises(GraphError) as raised:
        asking(calendar=7, remind="2bd")
    assert len(raised.value.faults) == 1


def test_the_terms_of_a_tool_without_an_approval_have_no_effect() -> None:
    with pytest.raises(ToolDeclarationError, match="assignees= has no effect without an approval"):
        tool(name="pay", assignees="ada")(lambda: None)


@pytest.mark.parametrize(
    "response", [bool, Careful, {"$ref": "#/$defs/a", "$defs": {"a": BOOLEAN}}]
)
def test_a_yes_or_no_answer_can_be_voted_on_and_held(response: Any) -> None:
    terms = asked_by(asking(response=response, quorum=2, hold="1m"))

    assert terms == Terms(quorum=core.Quorum(count=2), hold=60.0)


def test_a_question_of_code_that_nobody_can_approve_takes_no_votes() -> None:
    with pytest.raises(Fatal, match="has quorum, and its answer is not a yes or no"):
        lowered(Interrupt("ask", response=str, quorum=2))


@pytest.mark.parametrize(
    "terms",
    [
        {"assignees": "group:a", "quorum": 2},
        {
            "assignees": "ada",
            "quorum": Quorum(2, of=["ada"]),
            "escalate": Escalation(after="1d", to="bob"),
        },
        {"escalate": Escalation(after="1d", requested_capability="direct")},
    ],
)
def test_a_group_or_an_escalation_may_be_somebody(terms: dict[str, Any]) -> None:
    asking(assignees_only=True, **terms)


@pytest.mark.parametrize(
    ("kind", "options", "fault"),
    [
        (Quorum, {"count": 0}, "count\n  Input should be greater than or equal to 1"),
        (Quorum, {"count": "2"}, "count\n  Input should be a valid integer"),
        (Escalation, {"after": "soon"}, "'soon' is not a duration"),
        (Calendar, {"land": "DE"}, "land\n  Unexpected keyword argument"),
        (Backoff, {"factor": 0.5}, "factor\n  Input should be greater than or equal to 1"),
        (Backoff, {"factor": float("inf")}, "factor\n  Input should be a finite number"),
        (Backoff, {"first": 0}, "first\n  Value error, 0 is not greater than 0"),
        (Budget, {"usd": 0}, "usd\n  Input should be greater than 0"),
        (Budget, {"usd": True}, "usd\n  Input should be a valid number"),
        (Budget, {"tokens": 1.5}, "tokens\n  Input should be a valid integer"),
        (Budget, {"time": "soon"}, "'soon' is not a duration"),
        (Budget, {"turns": -1}, "turns\n  Input should be greater than 0"),
        (Remember, {"most": "91d"}, "use at most 90d"),
        (Remember, {"most": "7d", "where": ["all"]}, "Input should be 'run' or 'graph'"),
        (Remember, {"most": "7d", "where": []}, "at least 1 item"),
        (Remember, {"most": "7d", "below": {"amount": "3"}}, "Input should be a valid number"),
    ],
)
def test_a_value_that_no_declaration_can_have_is_refused_where_it_is_made(
    kind: Any, options: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        kind(**options)
    assert fault in str(raised.value)
