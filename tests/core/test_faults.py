"""What an author is told about an impossible graph, before it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_drive import edge, gate

from abeyance.authoring.validation import faults_of
from abeyance.core.json import Json
from abeyance.core.spec import (
    END,
    START,
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
    "the edge from 'END' to 'a' starts at END, where a branch is over: remove it": of(
        edge(END, "a")
    ),
    "the edge from 'b' to 'a' starts at an unknown node 'b'": of(edge("b", "a")),
    "the edge from 'a' to 'START' leads to START, which is entered only once: name a node": of(
        edge("a", START)
    ),
    "the edge from 'a' to 'b' leads to an unknown node 'b'": of(edge("a", "b")),
    "the edge from 'a', 'a' to 'b' names a source twice: remove one": of(
        edge(("a", "a"), "b"), nodes=(B,)
    ),
    "an edge to 'a' has no source: name one": of(edge((), "a")),
    "the edge from 'a', 'b' to 'END' is a join before END: remove it, a run ends once all its "
    "branches have ended": of(edge("a", "b"), edge(("a", "b"), END), nodes=(B,)),
    "the join 'a+b>a' is declared twice: remove one": of(
        edge("a", "b"), edge(("a", "b"), "a"), edge(("a", "b"), "a", join="arrived"), nodes=(B,)
    ),
    "the edge from 'a' to 'END' has an empty condition: name a field, or leave out `when`": of(
        edge("a", END, {})
    ),
    "the edge from 'a' to 'END' has `else`, but no other condition beside it: add one": of(
        edge("a", END, "else")
    ),
    "the edge from 'a', 'b' to 'c' has `else`, but no other condition beside it: add one": of(
        edge("a", "b", {"x": 1}),
        edge(("a", "b"), "c", "else"),
        nodes=(B, FunctionNode(id="c")),
    ),
    "the route 'r' from 'START' starts at START, which runs no code: use edge(START, ..., when=...)": of(
        routes=(Route(source=START, name="r", targets=("a",)),)
    ),
    "the route 'r' from 'b' starts at an unknown node": of(
        routes=(Route(source="b", name="r", targets=("a",)),)
    ),
    "the route 'r' from 'a' has no targets: name them with to=[...]": of(
        routes=(Route(source="a", name="r", targets=()),)
    ),
    "the route 'r' from 'a' leads to an unknown node 'b'": of(
        routes=(Route(source="a", name="r", targets=("b",)),)
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
    "the interrupt 'ask' has on_timeout but no timeout: add a timeout": of(
        edge("a", "ask"), nodes=(gate("ask", on_timeout=Default(answer=None)),)
    ),
    "the interrupt 'ask', on_timeout, leads to an unknown node 'b'": of(
        edge("a", "ask"), nodes=(gate("ask", timeout=1, on_timeout=GoTo(node="b")),)
    ),
    "the interrupt 'ask' has answer_to='y', which is not a field of the state": of(
        edge("a", "ask"), nodes=(gate("ask", answer_to="y"),)
    ),
    "the node 'a' has a timeout of -1 s: it must be positive and finite": of(
        nodes=(function("a", timeout=-1),)
    ),
    "the node 'a' has a heartbeat of 0 s: it must be positive and finite": of(
        nodes=(function("a", heartbeat=0),)
    ),
    "the node 'a', to=, leads to an unknown node 'b'": of(nodes=(function("a", to=("b",)),)),
    "the node 'a', on_error, leads to an unknown node 'b'": of(
        nodes=(function("a", on_error="b"),)
    ),
    "the node 'a', on_error, leads to the finally node 'after', which runs only after the end": of(
        nodes=(function("a", on_error="after"), AFTER), finally_=("after",)
    ),
    "finally names an unknown node 'after'": of(finally_=("after",)),
    "the finally node 'ask' may not ask a person: the run is over by then": of(
        nodes=(gate("ask"),), finally_=("ask",)
    ),
    "finally names a node twice: remove one": of(nodes=(AFTER,), finally_=("after", "after")),
    "the finally node 'after' may not be part of an edge: it runs after the end": of(
        edge("a", "after"), nodes=(AFTER,), finally_=("after",)
    ),
    "the node 'b' is unreachable from START: add an edge, route or goto to it": of(nodes=(B,)),
    "there are no nodes: add one": GraphSpec(name="g"),
    "nothing starts: add an edge from START": GraphSpec(
        name="g", nodes={"a": FunctionNode(id="a")}
    ),
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


def test_all_faults_are_told_at_once_in_reading_order_and_each_once() -> None:
    default: Json = {"approved": True}
    spec = of(
        edge("a", "ask"),
        edge("a", "nowhere"),
        edge("a", "nowhere"),
        nodes=(
            function("a", heartbeat=-1, on_error="nowhere"),
            gate("ask", on_timeout=Default(answer=default), answer_to="y"),
            FunctionNode(id="island"),
        ),
        routes=(Route(source="a", name="r", targets=()),),
        finally_=("after",),
        name="",
    )

    assert [fault.split(" must ")[0] for fault in faults_of(spec)] == [
        "the graph name ''",
        "the edge from 'a' to 'nowhere' leads to an unknown node 'nowhere'",
        "the route 'r' from 'a' has no targets: name them with to=[...]",
        "the node 'a' has a heartbeat of -1 s: it",
        "the node 'a', on_error, leads to an unknown node 'nowhere'",
        "the interrupt 'ask' has on_timeout but no timeout: add a timeout",
        "the interrupt 'ask' has answer_to='y', which is not a field of the state",
        "finally names an unknown node 'after'",
        "the node 'island' is unreachable from START: add an edge, route or goto to it",
    ]
