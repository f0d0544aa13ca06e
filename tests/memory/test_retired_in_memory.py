"""Runs that began before a deploy still find the code of nodes that the graph no longer has."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel
from scripted_agents import Script

from abeyance import START, Agent, Goto, Graph, append
from abeyance.testing import InMemoryRun, run


class State(BaseModel):
    question: str = "What is to be done?"
    report: str | None = None
    log: Annotated[list[str], append] = []


def said(text: str) -> Any:
    def node() -> dict[str, list[str]]:
        return {"log": [text]}

    return node


def chosen(state: State) -> Goto:
    return Goto("pay", patch={"log": ["chosen"]})


def nested() -> Graph:
    inner = Graph("inner", state=State)
    inner.node(name="a")(said("nested"))
    inner.edge(START, "a")
    return inner


def clerk() -> Agent:
    return Agent("clerk", model=Script("Nothing."))


def before() -> Graph:
    """Return a graph that asks, and then passes through one node of each kind."""
    graph = Graph("expense", state=State)
    graph.interrupt("review", prompt="Pay?")
    graph.route("review", lambda state: "choose", to=["choose"], name="way")
    graph.node(name="choose", to=["pay"])(chosen)
    graph.node(name="pay")(said("paid"))
    graph.subgraph("book", nested())
    graph.agent("tell", clerk(), input="question", output="report")
    graph.edge(START, "review")
    graph.edge("pay", "book")
    graph.edge("book", "tell")
    return graph


def after() -> Graph:
    graph = Graph("expense", state=State)
    graph.node(name="settle")(said("settled"))
    graph.edge(START, "settle")
    return graph


def after_with_retired() -> Graph:
    graph = after()
    graph.retired("review")(None, routes={"way": lambda state: "choose"})
    graph.retired("choose")(chosen)
    graph.retired("pay")(said("paid"))
    graph.retired("book")(nested())
    graph.retired("tell")(clerk(), input="question")
    return graph


async def test_an_older_run_ends_on_the_code_of_retired_nodes_and_a_new_one_does_not_meet_them() -> (
    None
):
    older = InMemoryRun(before())
    await older.start()
    older.deploy(after_with_retired())
    await older.respond("review", True)
    newer = await run(after_with_retired())

    assert older.status == "completed", older.reason
    assert older.values["log"] == ["chosen", "paid", "nested"]
    assert older.values["report"] == "Nothing."
    assert newer.values["log"] == ["settled"]
