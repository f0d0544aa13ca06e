"""The faults of an impossible graph and its rules, which its author is told before it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import Drive, chain, edge, gate, graph, nested
from core_graphs import GO, STOP, after_work, ask, rule, ruled

from abeyance.authoring.validation import faults_of
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Assert,
    Clips,
    Default,
    Edge,
    FieldSpec,
    FunctionNode,
    GoTo,
    GraphSpec,
    HaltRun,
    Node,
    Parallel,
    Retract,
    Retry,
    Route,
    Rule,
)


def of(
    *edges: Edge,
    nodes: tuple[Node, ...] = (),
    routes: tuple[Route, ...] = (),
    finally_: tuple[str, ...] = (),
    name: str = "g",
    open_values: bool = False,
) -> GraphSpec:
    """Return a graph whose START leads to the function `a`, and the rest is as a test says."""
    all_nodes: dict[str, Node] = {"a": FunctionNode(id="a")}
    all_nodes.update({node.id: node for node in nodes})
    return GraphSpec(
        name=name,
        fields={"x": FieldSpec()},
        open_values=open_values,
        nodes=all_nodes,
        edges=(edge(START, "a"), *edges),
        routes=routes,
        finally_nodes=finally_,
    )


def function(
    id_: str,
    *,
    to: tuple[str, ...] = (),
    on_error: str | None = None,
    timeout: float | None = None,
    heartbeat: float = 5.0,
) -> FunctionNode:
    node = FunctionNode(id=id_, to=to, timeout=timeout, heartbeat=heartbeat)
    return node if on_error is None else replace(node, on_error=GoTo(node=on_error))


B = FunctionNode(id="b")
AFTER = FunctionNode(id="after")


# `core_drive.graph` checks that its graphs have no fault. These graphs are not built by it.
@pytest.mark.parametrize(
    "spec",
    [
        of(edge("a", "b", {"any": 1}), nodes=(B,), open_values=True),
        of(edge("a", "ask"), nodes=(gate("ask", answer_to="any"),), open_values=True),
    ],
)
def test_a_possible_graph_has_no_fault(spec: GraphSpec) -> None:
    assert faults_of(spec) == ()


FAULTY = {
    "the node name 'no way' must start with a letter or underscore and have at most 100 letters, "
    "digits, '_', '-' or '.'": of(edge("a", "no way"), nodes=(FunctionNode(id="no way"),)),
    "the graph name '1st' must start with a letter or underscore and have at most 100 letters, "
    "digits, '_', '-' or '.'": of(name="1st"),
    "'Notification' is a workflow type of Abeyance's own in Temporal, where each run has its graph's "
    "name as its type: give the graph another name": of(name="Notification"),
    "'END' is a reserved word: give the node another name": of(nodes=(FunctionNode(id=END),)),
    "the edge from 'a', 'b' to 'END' is a join before END: remove it, a run ends once all its "
    "branches have ended": of(edge("a", "b"), edge(("a", "b"), END), nodes=(B,)),
    "the join 'a+b>a' is declared twice: remove one": of(
        edge("a", "b"), edge(("a", "b"), "a"), edge(("a", "b"), "a", join="arrived"), nodes=(B,)
    ),
    "the edge from 'a', 'b' to 'c' has `else`, but no other condition beside it: add one": of(
        edge("a", "b", {"x": 1}),
        edge(("a", "b"), "c", "else"),
        nodes=(B, FunctionNode(id="c")),
    ),
    "the route 'r' from 'START' starts at START, which runs no code: use edge(START, ..., when=...)": of(
        routes=(Route(source=START, name="r", targets=("a",)),)
    ),
    "the route 'r' from 'a' leads to the finally node 'after', which runs only after the end": of(
        nodes=(AFTER,),
        finally_=("after",),
        routes=(Route(source="a", name="r", targets=("after",)),),
    ),
    "the interrupt 'ask' has a timeout of 0 s: it must be positive and finite": of(
        edge("a", "ask"), nodes=(gate("ask", timeout=0),)
    ),
    "the interrupt 'ask' has a timeout of inf s: it must be positive and finite": of(
        edge("a", "ask"), nodes=(gate("ask", timeout=float("inf")),)
    ),
    "the node 'a', on_error, leads to the finally node 'after', which runs only after the end": of(
        nodes=(function("a", on_error="after"), AFTER), finally_=("after",)
    ),
    "the finally node 'ask' may not ask a person: the run is over by then": of(
        nodes=(gate("ask"),), finally_=("ask",)
    ),
    "the interrupt 'ask' has no prompt: describe the decision": of(
        edge("a", "ask"), nodes=(gate("ask", prompt=""),)
    ),
    "finally names a node twice: remove one": of(nodes=(AFTER,), finally_=("after", "after")),
    "there are no nodes: add one": GraphSpec(name="g"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_faulty_graph_has_exactly_its_fault(fault: str) -> None:
    unreachable = "is unreachable"
    told = [
        found for found in faults_of(FAULTY[fault]) if unreachable not in found or fault == found
    ]

    assert told == [fault]


@pytest.mark.parametrize(
    "spec",
    [
        of(nodes=(function("after", to=("a",)),), finally_=("after",)),
        of(nodes=(function("after", on_error="a"),), finally_=("after",)),
        of(
            nodes=(AFTER,),
            finally_=("after",),
            routes=(Route(source="after", name="r", targets=("a",)),),
        ),
    ],
)
def test_a_finally_node_may_not_lead_on(spec: GraphSpec) -> None:
    assert faults_of(spec) == (
        "the finally node 'after' may not lead to another node: nothing runs after it",
    )


def test_a_finally_node_with_an_edge_of_its_own_has_two_faults() -> None:
    assert faults_of(of(edge("after", "a"), nodes=(AFTER,), finally_=("after",))) == (
        "the finally node 'after' may not lead to another node: nothing runs after it",
        "the finally node 'after' may not be part of an edge: it runs after the end",
    )


INNER = chain("deep", name="inner", fields={"own": "last"})


def outer(inner: GraphSpec = INNER, **kwargs: Any) -> GraphSpec:
    spec = chain("a", fields={"x": "last"})
    node = nested("n", inner, **kwargs)
    edges = (*spec.edges, edge(START, "n"), edge("n", END))
    return replace(spec, nodes={**spec.nodes, "n": node}, edges=edges)


LOST = replace(INNER, edges=(edge(START, "deep"), edge("deep", "lost")))
TIDY = chain("deep", name="inner", finally_=["tidy"])

FAULTY_INSIDE = {
    "the nested graph 'n': the edge from 'deep' to 'lost' leads to an unknown node 'lost'": outer(
        LOST
    ),
    "the nested graph 'n' has finally nodes, which run once a run has ended: move them to "
    "'g'": outer(TIDY),
    "the nested graph 'n', input=: 'x' is not a field of the state of 'inner'": outer(
        input={"x": "x"}
    ),
    "the nested graph 'n', input=: 'own' is not a field of the state": outer(input={"own": "own"}),
    "the nested graph 'n', output=: 'own' is not a field of the state": outer(
        output={"own": "own"}
    ),
    "the nested graph 'n', output=: 'x' is not a field of the state of 'inner'": outer(
        output={"x": "x"}
    ),
    "the nested graph 'n', on_error, leads to an unknown node 'b'": outer(on_error=GoTo(node="b")),
    "interrupt_before names an unknown node 'b'": replace(outer(), interrupt_before=("b",)),
    "interrupt_after names an unknown node 'b'": replace(outer(), interrupt_after=("a", "b")),
    "interrupt_after names the finally node 'tidy': a run that has ended asks nobody": replace(
        chain("a", finally_=["tidy"]), interrupt_after=("tidy",)
    ),
    "the finally node 'tidy' may not lead to another node: nothing runs after it": replace(
        chain("a"),
        nodes={"a": FunctionNode(id="a"), "tidy": FunctionNode(id="tidy", on_error=AskHuman())},
        finally_nodes=("tidy",),
    ),
    "the finally node 'n' may not ask a person: the run is over by then": replace(
        chain("a"),
        nodes={"a": FunctionNode(id="a"), "n": nested("n", INNER)},
        finally_nodes=("n",),
    ),
}


@pytest.mark.parametrize("fault", FAULTY_INSIDE)
def test_a_faulty_nested_graph_has_exactly_its_fault(fault: str) -> None:
    assert faults_of(FAULTY_INSIDE[fault]) == (fault,)


def test_a_graph_knows_its_questions_and_those_of_its_rules_and_of_the_graphs_in_it() -> None:
    inner = chain(gate("deep"), name="inner")
    ways = [(START, "ask"), ("ask", "n")]
    spec = graph(gate("ask"), nested("n", inner), ways=ways, rules=[rule("r", "ask", ask("sure"))])
    assert [question.name for question in spec.questions] == ["ask", "sure", "deep"]


# rules


def test_the_targets_of_rules_are_reached() -> None:
    spec = ruled(
        rule("a", "work", ask("a", timeout=1, on_timeout=GoTo(node="late"))),
        rule("b", None, GoTo(node="other"), x=1),
        rule("c", "other", Parallel(nodes=("next", END))),
        rule("d", "next", Retry(), STOP, ask("d")),
        nodes=("work", "next", "other", "late"),
        ways=[(START, "work"), (START, "idle")],
    )

    assert spec.successors("work") == {"late", "other"}
    assert spec.successors("next") == {"next", "other"}
    assert spec.successors(START) == {"work", "idle"}


FAULTY_RULES = {
    "the rule name 'no way' must start with a letter or underscore and have at most 100 letters, "
    "digits, '_', '-' or '.'": [rule("no way", "work", GO)],
    "two rules are named 'r'": [rule("r", "work", GO), rule("r", "next", GO)],
    "the rule 'r' has an empty condition: name a node or a field": [rule("r", None, GO)],
    "the rule 'r' looks at an unknown node 'nowhere'": [rule("r", "nowhere", GO)],
    "the rule 'r' looks at the finally node 'after': rules do not run after the end": [
        rule("r", "after", Retry())
    ],
    "the rule 'r' has no actions: add one to `then`": [rule("r", "work")],
    "the rule 'r', goto, leads to an unknown node 'nowhere'": [
        rule("r", "work", GoTo(node="nowhere"))
    ],
    "the rule 'r', goto, leads to the finally node 'after', which runs only after the end": [
        rule("r", "work", GoTo(node="after"))
    ],
    "the rule 'r', parallel, leads to an unknown node 'nowhere'": [
        rule("r", "work", Parallel(nodes=("next", "nowhere")))
    ],
    "the rule 'r', parallel, names no nodes: add some": [rule("r", "work", Parallel(nodes=()))],
    "the rule 'r', parallel, names a node twice: remove one": [
        rule("r", "work", Parallel(nodes=("next", "next")))
    ],
    "the rule 'r' changes facts, but no rule has CLIPS text: only such rules read facts": [
        rule("r", "work", Assert(fact="(seen)"))
    ],
    "the rule 'r' has 2 interrupts: a rule may have one": [rule("r", "work", ask("r"), ask("r"))],
    "the rule 'asked' has the name of the interrupt node 'asked': rename one": [
        rule("asked", "work", ask("asked"))
    ],
    "the rule 'r' has no prompt: describe the decision": [rule("r", "work", ask("r", prompt=" "))],
    "the rule 'r' has a timeout of 0 s: it must be positive and finite": [
        rule("r", "work", ask("r", timeout=0))
    ],
    "the rule 'r' has on_timeout but no timeout: add a timeout": [
        rule("r", "work", ask("r", on_timeout=Default(answer=1)))
    ],
    "the rule 'r', on_timeout, leads to an unknown node 'nowhere'": [
        rule("r", "work", ask("r", timeout=1, on_timeout=GoTo(node="nowhere")))
    ],
    "the rule 'r' has answer_to='y', which is not a field of the state": [
        rule("r", "work", ask("r", answer_to="y"))
    ],
}


@pytest.mark.parametrize("fault", FAULTY_RULES)
def test_a_faulty_rule_has_exactly_its_fault(fault: str) -> None:
    spec = graph(
        "work",
        "next",
        "other",
        gate("asked"),
        ways=[(START, "work"), ("work", "next"), ("next", "other"), ("other", "asked")],
        finally_=["after"],
    )

    assert faults_of(replace(spec, rules=tuple(FAULTY_RULES[fault]))) == (fault,)


def test_a_rule_that_changes_facts_decides_nothing_by_that() -> None:
    facts = rule("facts", "work", Assert(fact="(a)"), Retract(fact="(b)"))
    other = Rule(id="other", condition=Clips(text="(a)"), actions=(HaltRun(reason="a"),))
    run = Drive(ruled(facts, other))
    run.finish("work")

    assert after_work(run) == ["next"]
