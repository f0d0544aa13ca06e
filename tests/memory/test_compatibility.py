"""Parts of an open run's graph and values that do not fit the code of today."""

from __future__ import annotations

import sys
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


def graph_of(*nodes: str, state: type[BaseModel] = State, name: str = "g") -> Graph:
    """Return a graph of these nodes one after another; those that begin with `ask` ask."""
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
    """Return `node: code` for each block of a run of one graph on the code of another."""
    run = await started(before)
    graphs = {} if after is None else {after.name: after}
    found = compare(run.state, graphs, everywhere=everywhere)
    return [f"{block.node}: {block.code}" for block in found]


def joined() -> Graph:
    """Return a graph with a node behind a join at which a branch waits, and a node that has run."""
    graph = Graph("g", state=State)
    for node in ("left", "after", "other"):
        graph.node(name=node)(nothing)
    graph.interrupt("ask", prompt="Well?")
    for source in ("left", "ask", "other"):
        graph.edge(START, source)
    graph.edge(["left", "ask"], "after")
    return graph


def fanned_out() -> Graph:
    graph = Graph("g", state=State)
    graph.node(name="spread", to=["ask"])(lambda: [Send("ask", 1)])
    graph.interrupt("ask", prompt="Well?")
    graph.node(name="gather")(nothing)
    graph.edge(START, "spread")
    graph.edge(["ask"], "gather")
    return graph


def cleaning(*nodes: str) -> Graph:
    graph = graph_of(*nodes)
    graph.node(name="clean")(nothing)
    graph.finally_("clean")
    return graph


def outer(inner: Graph, *, state: type[BaseModel] = State, **options: Any) -> Graph:
    """Return a graph that asks before it enters another one."""
    graph = Graph("g", state=state)
    graph.interrupt("ask", prompt="Well?")
    graph.subgraph("inside", inner, **options)
    graph.edge(START, "ask")
    graph.edge("ask", "inside")
    return graph


def entered(inner: Graph) -> Graph:
    """Return a graph that enters another one at its start."""
    graph = Graph("g", state=State)
    graph.subgraph("inside", inner)
    graph.edge(START, "inside")
    return graph


def looped(inner: Graph) -> Graph:
    graph = entered(inner)
    graph.node(name="again")(nothing)
    graph.edge("inside", "again")
    graph.edge("again", "inside")
    return graph


def asking(state: type[BaseModel]) -> Graph:
    graph = Graph("g", state=state)
    graph.interrupt("ask", prompt="Well?", answer_to="approved")
    graph.edge(START, "ask")
    return graph


LONG, SHORT = graph_of("a", "ask", name="i"), graph_of("ask", name="i")
STRICT = graph_of("a", name="i", state=Required)
BLOCKED: dict[str, tuple[Graph, Graph | None, list[str]]] = {
    "the code that a run was started with": (graph_of("a", "ask"), graph_of("a", "ask"), []),
    "a graph that is not served": (graph_of("ask", "b"), None, ["g: code_missing"]),
    "a graph of questions alone that is not served": (graph_of("ask"), None, []),
    "a node behind which the run is": (graph_of("a", "ask", "b"), graph_of("ask", "b"), []),
    "a node that is ahead": (
        graph_of("ask", "b", "c"),
        graph_of("ask", "b"),
        ["g.c: code_missing"],
    ),
    "a node behind a join": (joined(), graph_of("ask"), ["g.after: code_missing"]),
    "a node behind a fan-out": (fanned_out(), graph_of("ask"), ["g.gather: code_missing"]),
    "a finally node": (cleaning("ask"), graph_of("ask"), ["g.clean: code_missing"]),
    "a node of a graph ahead": (outer(LONG), outer(SHORT), ["g.inside.a: code_missing"]),
    "a node of a graph that is passed": (entered(LONG), entered(SHORT), []),
    "a nested graph": (entered(LONG), graph_of("a"), ["g.inside: code_missing"]),
    "a node of a graph that a loop enters again": (
        looped(LONG),
        looped(SHORT),
        ["g.inside.a: code_missing"],
    ),
    "values that code ahead reads": (
        graph_of("ask", "b"),
        graph_of("ask", "b", state=Required),
        ["g: values_incompatible"],
    ),
    "values that nobody reads": (graph_of("ask"), graph_of("ask", state=Required), []),
    "a new field of a nested graph": (
        outer(graph_of("a", name="i")),
        outer(STRICT, state=Required, input={"iban": "iban"}),
        ["g.inside: values_incompatible"],
    ),
    "an answer that its field no longer takes": (
        asking(State),
        asking(Textual),
        ["g.ask: values_incompatible"],
    ),
}


@pytest.mark.parametrize("case", BLOCKED)
async def test_missing_code_ahead_of_a_run_blocks_it(case: str) -> None:
    before, after, blocks = BLOCKED[case]

    assert await codes(before, after) == blocks


async def test_for_every_run_of_a_graph_all_its_nodes_count() -> None:
    before = graph_of("a", "ask", "b")

    assert await codes(before, before, everywhere=True) == []
    assert await codes(before, graph_of("ask", "b"), everywhere=True) == ["g.a: code_missing"]


async def test_only_finally_nodes_count_for_an_ending_run() -> None:
    before = cleaning("ask", "b")
    before.interrupt("late", prompt="Well?", timeout="1h", on_timeout="halt")
    before.edge(START, "late")
    run = await started(before)
    await run.advance("2h")

    assert run.status == "halted"
    assert compare(run.state, {"g": graph_of("ask", "clean")}) == ()


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
