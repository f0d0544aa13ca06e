"""What a question asks for: what it says itself, if its node declares it, else what its node declares."""

from __future__ import annotations

from typing import Any

import pytest
from core_agents import agent_node, asks, call, question, tool, turn
from core_drive import Drive, asked, chain, gate
from core_rules import ask, rule

from abeyance.core import policy
from abeyance.core.policy import Principal
from abeyance.core.spec import FunctionNode, Node
from abeyance.core.terms import Escalation, Terms


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
def test_what_a_declared_capability_stands_for(
    capability: str, declared: str, *, does_fit: bool
) -> None:
    assert policy.fits(capability, declared) is does_fit


def asking(*asks: str, **about: Any) -> Drive:
    run = Drive(chain(FunctionNode(id="work", asks=asks), "next"))
    run.ask("work", asked("sure", **about))
    return run


def test_a_question_asks_for_what_it_says_if_its_node_declares_it() -> None:
    run = asking("approve", "tenant:*:approve", requested_capability="tenant:7:approve")

    assert run.open("sure").requested_capability == "tenant:7:approve"


def test_a_question_without_a_capability_asks_for_the_first_that_its_node_declares() -> None:
    assert asking("approve", "audit").open("sure").requested_capability == "approve"
    assert asking().open("sure").requested_capability is None


@pytest.mark.parametrize("asks", [(), ("audit",), ("approve:*",)])
def test_a_question_that_asks_for_something_else_fails_its_visit(asks: tuple[str, ...]) -> None:
    code, message, address = asking(*asks, requested_capability="approve").error

    assert (code, address) == ("undeclared_capability", "graph:g;node:work")
    assert "asks=['approve']" in message


def test_a_question_without_a_capability_cannot_fill_a_pattern() -> None:
    code, message, _ = asking("tenant:*:approve").error

    assert code == "undeclared_capability"
    assert "'tenant:*:approve'" in message


LATER = Terms(escalate=(Escalation(after=60, requested_capability="cfo"),))


def test_a_question_that_escalates_to_something_else_fails_its_visit() -> None:
    code, message, _ = asking("approve", terms=LATER).error

    assert code == "undeclared_capability"
    assert "asks=['cfo']" in message


def test_a_question_without_a_capability_does_not_ask_for_what_it_escalates_to() -> None:
    assert asking("cfo", terms=LATER).open("sure").requested_capability is None
    assert asking("cfo", "approve", terms=LATER).open("sure").requested_capability == "approve"


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
