"""What an author is told about an impossible graph, before it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import chain, edge, gate, graph, nested

from abeyance.authoring.validation import faults_of
from abeyance.core.spec import (
    END,
    START,
    AskHuman,
    Default,
    Edge,
    FieldSpec,
    FunctionNode,
    GoTo,
    GraphSpec,
    Node,
    Route,
)


def of(
    *edges: Edge,
    nodes: tuple[Node, ...] = (),
    routes: tuple[Route, ...] = (),
    finally_: tuple[str, ...] = (),
    name: str = "g",
    open_values: bool = False,
) -> GraphSpec:
    """START leads to `a`, a function, and the rest is as a test says."""
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


@pytest.mark.parametrize(
    "spec",
    [
        GraphSpec(name="nothing_to_do", edges=(edge(START, END),)),
        of(),
        of(edge("a", END)),
        of(edge("a", "a", {"x": 1}), edge("a", END, "else")),
        of(edge("a", "b", {"x.deep.er": 1}), nodes=(B,)),
        of(edge("a", "b", {"any": 1}), nodes=(B,), open_values=True),
        of(edge(START, "b"), edge(("a", "b"), "c"), nodes=(B, FunctionNode(id="c"))),
        of(nodes=(B,), routes=(Route(source="a", name="r", targets=("b", END)),)),
        of(
            edge("a", END, "else"),
            nodes=(B,),
            routes=(Route(source="a", name="r", targets=("b",)),),
        ),
        of(nodes=(AFTER,), finally_=("after",)),
        of(nodes=(function("a", to=("b", END), on_error=END), B)),
        of(nodes=(function("a", on_error="b"), B)),
        of(edge("a", "ask"), nodes=(gate("ask", timeout=1, on_timeout=GoTo(node="b")), B)),
        of(edge("a", "ask"), nodes=(gate("ask", timeout=1, on_timeout=Default(answer=1)),)),
        of(edge("a", "ask"), nodes=(gate("ask", answer_to="x"),)),
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
    "finally names a node twice: remove one": of(nodes=(AFTER,), finally_=("after", "after")),
    "there are no nodes: add one": GraphSpec(name="g"),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_told_and_nothing_else_is(fault: str) -> None:
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


def test_a_node_is_reached_in_every_way_that_a_run_may_take() -> None:
    spec = of(
        edge("a", "ask"),
        edge(("a", "by_goto"), "by_join"),
        nodes=(
            function("a", to=("by_goto",), on_error="by_error"),
            gate("ask", timeout=1, on_timeout=GoTo(node="by_deadline")),
            *(
                FunctionNode(id=name)
                for name in ("by_goto", "by_error", "by_deadline", "by_join", "by_route")
            ),
        ),
        routes=(Route(source="by_deadline", name="r", targets=("by_route",)),),
    )

    assert faults_of(spec) == ()


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
def test_a_fault_inside_is_told_and_nothing_else_is(fault: str) -> None:
    assert faults_of(FAULTY_INSIDE[fault]) == (fault,)


@pytest.mark.parametrize(
    "spec",
    [
        outer(input={"own": "x"}, output={"x": "own"}),
        outer(on_error=GoTo(node="a")),
        outer(replace(INNER, open_values=True), input={"any": "x"}, output={"x": "any"}),
        replace(outer(), interrupt_before=("a", "n"), interrupt_after=("n",)),
        outer(chain(nested("m", INNER), name="middle")),
    ],
)
def test_what_is_possible_inside_has_no_fault(spec: GraphSpec) -> None:
    assert faults_of(spec) == ()


def test_a_graph_knows_the_questions_of_the_graphs_in_it() -> None:
    inner = chain(gate("deep"), name="inner")
    spec = graph(gate("ask"), nested("n", inner), ways=[(START, "ask"), ("ask", "n")])

    assert [question.name for question in spec.questions] == ["ask", "deep"]
