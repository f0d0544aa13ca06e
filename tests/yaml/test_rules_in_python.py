"""Rules have the same shape in Python as in YAML."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from abeyance import START, Graph, GraphError
from abeyance.core.spec import Ask, GoTo, Halt, HaltRun, Matches, Parallel, Retry, Rule
from abeyance.core.terms import Escalation, Terms


class State(BaseModel):
    amount: int = 0
    ok: bool | None = None


def shop() -> Graph:
    graph = Graph("shop", state=State)
    for name in ("price", "order"):
        graph.node(name=name)(lambda: None)
    graph.edge(START, "price")
    graph.edge("price", "order")
    return graph


def test_a_rule_is_a_condition_and_actions() -> None:
    graph = shop()
    graph.rule(
        "large",
        when={"node": "price", "amount": 9},
        then=[
            {"kind": "interrupt", "prompt": "Spend {amount}?", "answer_to": "ok", "timeout": "2d"},
            {"kind": "goto", "node": "order"},
            {"kind": "halt"},
            {"kind": "retry"},
            {"kind": "parallel", "nodes": ["order", "price"]},
        ],
    )

    (rule,) = graph.build().rules
    ask, *others = rule.actions
    assert (rule.id, rule.condition) == ("large", Matches(node="price", equals={"amount": 9}))
    assert isinstance(ask, Ask)
    assert (ask.question.name, ask.question.timeout, ask.question.on_timeout, ask.answer_to) == (
        "large", 172_800, Halt(), "ok",
    )  # fmt: skip
    assert ask.question.response_schema == {"type": "boolean"}, "as the field that it answers to"
    assert others == [
        GoTo(node="order"),
        HaltRun(reason="large"),
        Retry(),
        Parallel(nodes=("order", "price")),
    ]


def test_a_gate_without_a_prompt_is_asked_by_its_rule_whichever_comes_first() -> None:
    first, last = Graph("g"), Graph("g")
    last.interrupt("gate")
    for graph in (first, last):
        graph.rule("r", when={"node": "gate"}, then=[{"kind": "interrupt", "prompt": "Go?"}])
        graph.edge(START, "gate")
    first.interrupt("gate")

    assert first.build() == last.build()
    assert first.build().rules == ()
    assert [question.prompt for question in first.build().questions] == ["Go?"]


@pytest.mark.parametrize(
    ("when", "then", "fault"),
    [
        (5, [], "the rule 'r': when=5 is invalid: use a mapping or CLIPS text"),
        ({"node": 5}, [{"kind": "halt"}], "the rule 'r', when=: 5 is not the name of a node"),
        ({"x": {1}}, [{"kind": "halt"}], "the rule 'r', when=: set is not a JSON value"),
        ("(x (value 1))", [{"kind": "halt"}], "the rule 'r': CLIPS says: A literal restriction"),
        (" ", [{"kind": "halt"}], "the rule 'r', when=: it is empty"),
        ({"node": "price"}, {"kind": "halt"}, "the rule 'r': then={'kind': 'halt'} is not a list"),
        ({"node": "price"}, 5, "the rule 'r': then=5 is not a list of actions"),
        ({"node": "price"}, ["halt"], "the rule 'r', then[0] should be a mapping, not 'halt'"),
        ({"node": "price"}, [{"node": "a"}], "the rule 'r', then[0]: 'kind' is missing"),
        (
            {"node": "price"},
            [{"kind": "stop"}],
            "then[0]: the kind 'stop' is unknown: use one of 'assert', 'goto', 'halt',",
        ),
        (
            {"node": "price"},
            [{"kind": "halt", "why": "a"}],
            "the rule 'r', then[0]: 'why' is not a key here: use kind, reason",
        ),
        (
            {"node": "price"},
            [{"kind": "retry", "times": 3}],
            "the rule 'r', then[0]: 'times' is not a key here: use kind, node, backoff",
        ),
        ("(x)", [{"kind": "assert"}], "the rule 'r', then[0], fact= is missing"),
        ("(x)", [{"kind": "retract"}], "the rule 'r', then[0], pattern= is missing"),
        ("(x)", [{"kind": "assert", "fact": "y", "slots": 5}], "slots= should be a valid dictionary"),
        ("(x)", [{"kind": "assert", "fact": "y", "slots": {"a": {1}}}], "slots=: set is not a JSON"),
        ("(x)", [{"kind": "assert", "fact": "(y)", "slots": {"a": 1}}], "has slots both in the text"),
        ({"node": "price"}, [{"kind": "goto"}], "the rule 'r', then[0], node= is missing"),
        ({"node": "price"}, [{"kind": "parallel"}], "the rule 'r', then[0], nodes= is missing"),
        (
            {"node": "price"},
            [{"kind": "parallel", "nodes": ["price", 5]}],
            "the rule 'r', then[0], nodes= should be a valid string, not 5",
        ),
        ({"node": "price"}, [{"kind": "halt", "reason": 5}], "then[0], reason= should be a valid string"),
        (
            {"node": "price"},
            [{"kind": "interrupt", "prompt": "?", "timeout": "soon"}],
            "the rule 'r', then[0], timeout=: 'soon' is not a duration",
        ),
        (
            {"node": "price"},
            [{"kind": "interrupt", "prompt": "?", "payload": 1, "interrupt_payload": 1}],
            "then[0]: 'interrupt_payload' and 'payload' are the same: write one",
        ),
        (
            {"node": "price"},
            [{"kind": "interrupt", "prompt": "?", "timeout": 5, "on_timeout": {"default": "x"},
              "answer_to": "ok"}],
            "the rule 'r' has a default answer that does not fit",
        ),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_read_is_a_fault(when: Any, then: Any, fault: str) -> None:
    graph = shop()
    graph.rule("r", when=when, then=then)

    with pytest.raises(GraphError) as caught:
        graph.build()
    assert len(caught.value.faults) == 1
    assert fault in caught.value.faults[0]


def test_one_node_and_one_escalation_need_no_list() -> None:
    graph = shop()
    escalation = {"after": "1h", "to": "ada"}
    ask = {"kind": "interrupt", "prompt": "?", "response": bool | None, "escalate": escalation}
    then = (MappingProxyType({"kind": "parallel", "nodes": "order"}), ask)
    graph.rule("r", when={"node": "price"}, then=then)

    (rule,) = graph.build().rules
    branches, asked = rule.actions
    assert branches == Parallel(nodes=("order",))
    assert isinstance(asked, Ask)
    assert asked.question.terms == Terms(escalate=(Escalation(after=3600, to=("ada",)),))
    assert asked.question.response_schema == {"anyOf": [{"type": "boolean"}, {"type": "null"}]}


def test_a_payload_has_the_name_that_stargraph_gives_it_too() -> None:
    graph = shop()
    ask = {"kind": "interrupt", "prompt": "?", "interrupt_payload": {"a": 1}}
    graph.rule("r", when={"node": "price"}, then=[ask])

    assert [question.payload for question in graph.build().questions] == [{"a": 1}]


def test_later_changes_of_a_condition_do_not_reach_the_rule() -> None:
    graph, when = shop(), {"node": "price", "amount": 1}
    graph.rule("r", when=when, then=[{"kind": "halt"}])
    when["amount"] = 2

    assert graph.build().rules == (
        Rule(
            id="r",
            condition=Matches(node="price", equals={"amount": 1}),
            actions=(HaltRun(reason="r"),),
        ),
    )
    assert when == {"node": "price", "amount": 2}
