"""What an author is told about graphs in a graph, and about nodes that a person is to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core_drive import chain, edge, gate, graph, nested

from abeyance.authoring.validation import faults_of
from abeyance.core.spec import END, START, AskHuman, FunctionNode, GoTo, GraphSpec

INNER = chain("deep", name="inner", fields={"own": "last"})


def outer(inner: GraphSpec = INNER, **kwargs: Any) -> GraphSpec:
    spec = chain("a", fields={"x": "last"})
    node = nested("n", inner, **kwargs)
    edges = (*spec.edges, edge(START, "n"), edge("n", END))
    return replace(spec, nodes={**spec.nodes, "n": node}, edges=edges)


LOST = replace(INNER, edges=(edge(START, "deep"), edge("deep", "lost")))
TIDY = chain("deep", name="inner", finally_=["tidy"])

FAULTY = {
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


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_told_and_nothing_else_is(fault: str) -> None:
    assert faults_of(FAULTY[fault]) == (fault,)


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
def test_what_is_possible_has_no_fault(spec: GraphSpec) -> None:
    assert faults_of(spec) == ()


def test_a_graph_knows_the_questions_of_the_graphs_in_it() -> None:
    inner = chain(gate("deep"), name="inner")
    spec = graph(gate("ask"), nested("n", inner), ways=[(START, "ask"), ("ask", "n")])

    assert [question.name for question in spec.questions] == ["ask", "deep"]
