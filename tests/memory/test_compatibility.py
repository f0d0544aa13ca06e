"""What of an open run's graph and values the code of today does not fit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from scripted_agents import Script, desk

from abeyance import START, Agent, Graph, Send, tool
from abeyance.runtime.compatibility import compare
from abeyance.testing import InMemoryRun


class State(BaseModel):
    amount: int = 5
    approved: bool | None = None


class Required(State):
    iban: str


class Textual(BaseModel):
    amount: int = 5
    approved: str | None = None


def nothing() -> None:
    """Do nothing."""


Way = Callable[[Graph], None]


def graph_of(*nodes: str, state: type[BaseModel] = State, name: str = "g") -> Graph:
    """These nodes one after another; those that begin with `ask` ask."""
    graph = Graph(name, state=state)
    for node in nodes:
        if node.startswith("ask"):
            graph.interrupt(node, prompt="Well?")
        else:
            graph.node(name=node)(nothing)
    for source, target in zip((START, *nodes), nodes, strict=False):
        graph.edge(source, target)
    return graph


async def started(graph: Graph) -> InMemoryRun:
    run = InMemoryRun(graph, {})
    await run.start()
    return run


async def codes(before: Graph, after: Graph | None, *, everywhere: bool = False) -> list[str]:
    """`node: code` of each block, of a run of one graph on the code of another."""
    run = await started(before)
    graphs = {} if after is None else {after.name: after}
    found = compare(run.state, graphs, everywhere=everywhere)
    return [f"{block.node}: {block.code}" for block in found]


async def test_the_code_that_a_run_was_started_with_blocks_nothing() -> None:
    graph = graph_of("a", "ask", "b")

    assert await codes(graph, graph) == []
    assert await codes(graph, graph, everywhere=True) == []


async def test_a_graph_that_is_not_served_blocks_all_its_runs() -> None:
    assert await codes(graph_of("ask", "b"), None) == ["g: code_missing"]


async def test_a_graph_of_questions_alone_goes_on_where_it_is_not_served() -> None:
    assert await codes(graph_of("ask"), None) == []


async def test_a_node_behind_which_the_run_is_counts_only_for_every_run_of_the_graph() -> None:
    before, after = graph_of("a", "ask", "b"), graph_of("ask", "b")

    assert await codes(before, after) == []
    assert await codes(before, after, everywhere=True) == ["g.a: code_missing"]


async def test_a_node_to_which_the_run_may_still_come_counts() -> None:
    assert await codes(graph_of("ask", "b", "c"), graph_of("ask", "b")) == ["g.c: code_missing"]


async def test_a_node_behind_a_join_at_which_a_branch_waits_counts() -> None:
    before = Graph("g", state=State)
    for node in ("left", "after", "other"):
        before.node(name=node)(nothing)
    before.interrupt("ask", prompt="Well?")
    before.edge(START, "left")
    before.edge(START, "ask")
    before.edge(["left", "ask"], "after")
    before.edge(START, "other")

    assert await codes(before, graph_of("ask")) == ["g.after: code_missing"]


async def test_a_node_behind_a_fan_out_counts_while_an_item_asks() -> None:
    before = Graph("g", state=State)
    before.node(name="spread", to=["ask"])(lambda: [Send("ask", 1)])
    before.interrupt("ask", prompt="Well?")
    before.node(name="gather")(nothing)
    before.edge(START, "spread")
    before.edge(["ask"], "gather")

    assert await codes(before, graph_of("ask")) == ["g.gather: code_missing"]


async def test_a_finally_node_counts_wherever_the_run_is() -> None:
    before = graph_of("ask")
    before.node(name="clean")(nothing)
    before.finally_("clean")

    assert await codes(before, graph_of("ask")) == ["g.clean: code_missing"]


async def test_of_a_run_that_is_ending_only_the_finally_nodes_count() -> None:
    before = graph_of("ask", "b")
    before.interrupt("late", prompt="Well?", timeout="1h", on_timeout="halt")
    before.node(name="clean")(nothing)
    before.finally_("clean")
    before.edge(START, "late")
    run = await started(before)
    await run.advance("2h")

    assert run.status == "halted"
    assert compare(run.state, {"g": graph_of("ask", "clean")}) == ()


def outer(inner: Graph, *, state: type[BaseModel] = State, ask: str = "ask") -> Graph:
    graph = Graph("g", state=state)
    graph.interrupt(ask, prompt="Well?")
    graph.subgraph("inside", inner)
    graph.edge(START, ask)
    graph.edge(ask, "inside")
    return graph


def entered(inner: Graph) -> Graph:
    graph = Graph("g", state=State)
    graph.subgraph("inside", inner)
    graph.edge(START, "inside")
    return graph


async def test_a_node_of_a_nested_graph_counts_before_it_is_entered_and_until_it_is_passed() -> (
    None
):
    before, after = graph_of("a", "ask", name="i"), graph_of("ask", name="i")

    assert await codes(outer(before), outer(after)) == ["g.inside.a: code_missing"]
    assert await codes(entered(before), entered(after)) == []
    assert await codes(entered(before), graph_of("a")) == ["g.inside: code_missing"]


async def test_a_loop_leads_into_a_nested_graph_again() -> None:
    before, after = entered(graph_of("a", "ask", name="i")), entered(graph_of("ask", name="i"))
    for graph in (before, after):
        graph.node(name="again")(nothing)
        graph.edge("inside", "again")
        graph.edge("again", "inside")

    assert await codes(before, after) == ["g.inside.a: code_missing"]


async def test_values_count_if_code_that_is_ahead_reads_them() -> None:
    asking = graph_of("ask")

    assert await codes(graph_of("ask", "b"), graph_of("ask", "b", state=Required)) == [
        "g: values_incompatible"
    ]
    assert await codes(asking, graph_of("ask", state=Required)) == []


async def test_a_new_field_of_a_nested_graph_counts_if_the_run_has_no_value_for_it() -> None:
    before, after = graph_of("a", name="i"), graph_of("a", name="i", state=Required)
    mapped = Graph("g", state=Required)
    mapped.interrupt("ask", prompt="Well?")
    mapped.subgraph("inside", after, input={"iban": "iban"})
    mapped.edge(START, "ask")
    mapped.edge("ask", "inside")

    assert await codes(outer(before), mapped) == ["g.inside: values_incompatible"]


async def test_an_answer_that_the_field_no_longer_takes_counts() -> None:
    def asking(state: type[BaseModel]) -> Graph:
        graph = Graph("g", state=state)
        graph.interrupt("ask", prompt="Well?", answer_to="approved")
        graph.edge(START, "ask")
        return graph

    assert await codes(asking(State), asking(Textual)) == ["g.ask: values_incompatible"]


async def test_a_missing_library_for_rules_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = graph_of("ask", "b")
    before.rule(
        "r", when='(node-id (id b)) (amount (value "7"))', then=[{"kind": "halt", "reason": "no"}]
    )
    run = await started(before)
    monkeypatch.setitem(sys.modules, "clips", None)
    (block,) = compare(run.state, {"g": before})

    assert (block.node, block.code) == ("g.b", "extra_missing")
    assert block.remedy == "pip install 'abeyance[rules]'"


@tool(approve=True)
def send(to: str) -> str:
    """Send it."""
    return "sent"


@tool
def look() -> str:
    """Look."""
    return "seen"


def clerk(*tools: Any) -> Graph:
    model = Script([("send", {"to": "bob"})], "Done.")
    return desk(Agent("clerk", model=model, tools=list(tools)))


async def test_a_removed_tool_counts_only_where_a_call_of_it_waits() -> None:
    assert await codes(clerk(send), clerk()) == ["desk.clerk.send: code_missing"]
    assert await codes(clerk(send, look), clerk(send)) == []
    (block,) = compare((await started(clerk(send))).state, {"desk": clerk()})
    assert (block.text, block.remedy) == (
        "a call of the tool 'send' waits, and the agent has no such tool",
        "keep the tool until its calls are over",
    )


async def test_a_new_tool_counts_because_the_model_may_call_it() -> None:
    assert await codes(clerk(send), clerk(send, look)) == ["desk.clerk.model: target_unknown"]
