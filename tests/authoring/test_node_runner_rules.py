"""Running the code of one visit whose graph has rules with CLIPS text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from one_visit import visit
from pydantic import BaseModel

from abeyance import START, Graph, append
from abeyance.errors import Blocked


class State(BaseModel):
    amount: int = 0
    log: Annotated[list[str], append] = []


def graph_of(function: Callable[..., Any]) -> Graph:
    """Return a graph whose node `a` is the function, and may go to `b`."""
    graph = Graph("g", state=State)
    graph.node(name="a", to=["b"])(function)
    graph.node(name="b")(lambda: None)
    graph.edge(START, "a")
    return graph


def ruled(ran: list[str]) -> Graph:
    graph = graph_of(lambda: ran.append("a") or {"amount": 7})  # type: ignore[func-returns-value]
    high = {"kind": "assert", "fact": "high"}
    graph.rule("seven", when='(amount (value "7"))', then=[high])
    graph.rule("mapped", when={"node": "a", "amount": 7}, then=[high, {"kind": "halt"}])
    graph.rule("then", when="(high)", then=[{"kind": "goto", "node": "b"}])
    graph.rule("elsewhere", when="(node-id (id b))(high)", then=[{"kind": "halt"}])
    return graph


@pytest.mark.parametrize(("kind", "amount"), [("visit", 0), ("routes", 7)])
async def test_rules_that_fire_on_the_merged_values_are_reported(kind: str, amount: int) -> None:
    ran: list[str] = []
    graph = ruled(ran)
    rules = graph.build().rules_on("a")
    outcome = await visit(graph, {"amount": amount}, kind=kind, rules=rules)

    assert outcome.fired_rules == ("seven", "then")
    assert ran == ["a"] * (kind == "visit")


@pytest.mark.parametrize("kind", ["visit", "routes"])
async def test_a_worker_that_cannot_evaluate_rules_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ran: list[str] = []
    graph = ruled(ran)
    rules = graph.build().rules_on("a")
    monkeypatch.setitem(sys.modules, "clips", None)

    with pytest.raises(
        Blocked, match=r"rule 'seven' has CLIPS text .* pip install 'abeyance\[rules\]'"
    ) as caught:
        await visit(graph, {}, kind=kind, rules=rules)
    assert caught.value.code == "extra_missing"
    assert ran == []


async def test_a_visit_without_such_rules_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(lambda: {"amount": 7})
    monkeypatch.setitem(sys.modules, "clips", None)

    assert (await visit(graph)).fired_rules == ()


@pytest.mark.parametrize("kind", ["visit", "routes"])
async def test_rules_that_cannot_be_evaluated_fail_for_good(kind: str) -> None:
    graph = graph_of(lambda: {"log": ["a"]})
    graph.rule("sum", when="(log (value ?l&:(> (string-to-field ?l) 1)))", then=[{"kind": "halt"}])
    rules = graph.build().rules_on("a")
    outcome = await visit(graph, {"log": ["x"]}, kind=kind, rules=rules)

    assert (outcome.kind, outcome.code) == ("failed", "node_failed")
    assert outcome.message.startswith(
        "the rules cannot be evaluated after 'a': the rule 'sum' cannot be evaluated on these values"
    )
