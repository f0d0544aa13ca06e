"""Retired nodes: the code of nodes that are no longer in the graph."""

from __future__ import annotations

from typing import Any

import pytest
from graph_faults import only_fault
from pydantic import BaseModel

from abeyance import START, Agent, Graph


class State(BaseModel):
    amount: int = 0


def nothing() -> None:
    """Do nothing."""


def way(state: State) -> str:
    return "a"


def graph_of(name: str = "g") -> Graph:
    graph = Graph(name, state=State)
    graph.node(name="a")(nothing)
    graph.edge(START, "a")
    return graph


def agent() -> Agent:
    return Agent("clerk", model="test")


def test_retired_nodes_do_not_change_the_graph_of_new_runs() -> None:
    graph = graph_of()
    graph.retired("pay")(nothing)
    graph.retired("nested")(graph_of("inner"))
    graph.retired("triage")(agent(), input="amount")
    graph.retired("review")(None, routes={"way": way})

    assert graph.build() == graph_of().build()
    assert graph.build().version == graph_of().build().version


def test_retiring_a_function_returns_it_so_that_it_is_a_decorator() -> None:
    graph = graph_of()

    @graph.retired("pay")
    def pay(state: State) -> dict[str, Any]:
        return {"amount": state.amount + 1}

    assert pay(State(amount=1)) == {"amount": 2}


def test_a_route_may_be_retired_from_a_node_that_stays() -> None:
    graph = graph_of()
    graph.retired("a")(None, routes={"way": way})

    assert graph.build().routes == ()


def twice(graph: Graph) -> None:
    graph.retired("pay")(nothing)
    graph.retired("pay")(nothing)


def both(graph: Graph) -> None:
    graph.retired("a")(nothing)


def both_routes(graph: Graph) -> None:
    graph.route("a", way, to=["a"])
    graph.retired("a")(None, routes={"way": way})


def faulty_inside(graph: Graph) -> None:
    graph.retired("old")(Graph("inner"))


def itself(graph: Graph) -> None:
    graph.retired("old")(graph)


def three(state: Any, ctx: Any, more: Any) -> None:
    """Take more than a node is given."""


@pytest.mark.parametrize(
    ("declare", "fault"),
    [
        (twice, "the retired node 'pay' is declared twice: remove one"),
        (both, "the retired node 'a' is also in the graph: remove one of the two, or rename it"),
        (
            both_routes,
            (
                "the retired node 'a' has a route 'way' that is also in the graph: remove one of the "
                "two, or rename it"
            ),
        ),
        (faulty_inside, "the retired graph 'old': there are no nodes: add one"),
        (itself, "the retired graph 'old' contains this graph: remove the cycle"),
        (
            lambda graph: graph.retired("pay")(three),
            "the retired node 'pay' must take (state), (state, ctx) or nothing",
        ),
        (
            lambda graph: graph.retired("ask")(None, routes={"way": three}),
            f"the retired node 'ask', the route 'way': {three!r} cannot be called with (state)",
        ),
        (
            lambda graph: graph.retired("triage")(agent()),
            "the retired node 'triage' is an agent: pass its input=, as for agent()",
        ),
        (
            lambda graph: graph.retired("triage")(agent(), input="text"),
            (
                "the retired node 'triage': the agent 'triage', input=: the state has no field 'text': "
                "name a field, or pass a function"
            ),
        ),
    ],
)
def test_a_wrongly_retired_node_is_a_fault(declare: Any, fault: str) -> None:
    graph = graph_of()
    declare(graph)

    assert only_fault(graph) == fault


def test_only_code_can_be_retired() -> None:
    with pytest.raises(TypeError, match="5 is not"):
        graph_of().retired("pay")(5)
