"""Graphs inside graphs, and fan-outs, in milliseconds."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from abeyance import (
    START,
    Context,
    Goto,
    Graph,
    GraphError,
    Refusal,
    Send,
    append,
)
from abeyance.errors import Code
from abeyance.testing import InMemoryRun, run


class State(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


async def test_a_fan_out_may_come_with_a_patch_and_to_several_nodes() -> None:
    graph = Graph("fan", state=State)

    @graph.node(to=["a", "b"])
    async def split(state: State) -> Goto:
        return Goto([Send("a", 1), Send("b", {"two": 2})], {"log": ["split"]})

    for name in ("a", "b"):

        @graph.node(name=name)
        async def part(state: State, ctx: Context, name: str = name) -> dict[str, Any]:
            return {"log": [f"{name} {ctx.item}"]}

    @graph.node
    async def collect(state: State, ctx: Context) -> dict[str, Any]:
        return {"count": len(ctx.results)}

    graph.edge(START, "split")
    graph.edge(["a", "b"], "collect")
    ended = await run(graph)
    assert ended.values == {"log": ["split", "a 1", "b {'two': 2}"], "count": 2}


async def test_a_send_to_what_was_not_declared_fails_the_visit() -> None:
    graph = Graph("astray", state=State)

    @graph.node
    async def work(state: State) -> list[Send]:
        return [Send("elsewhere", 1)]

    graph.edge(START, "work")
    ended = await run(graph)
    error = ended.state.ending and ended.state.ending.error
    assert ended.status == "failed"
    assert error
    assert error.code == "unknown_node"
    assert "chose to go to 'elsewhere'; it may go to nowhere: declare" in error.message


def test_a_nested_graph_with_faults_is_told_with_its_name() -> None:
    inner = Graph("inner", state=State)
    inner.edge(START, "nowhere")
    graph = Graph("outer", state=State)
    graph.subgraph("part", inner, input={"nope": "count"})
    graph.subgraph("self", graph)
    graph.edge(START, "part")
    graph.edge(START, "self")
    with pytest.raises(GraphError) as caught:
        graph.build()
    told = str(caught.value)
    assert "the nested graph 'part': the edge from 'START' to 'nowhere'" in told
    assert "the nested graph 'self' contains this graph" in told


def test_a_nested_graph_needs_values_for_the_fields_that_have_no_default() -> None:
    class Strict(BaseModel):
        needed: str

    inner = Graph("inner", state=Strict)

    @inner.node
    async def work(state: Strict) -> None: ...

    inner.edge(START, "work")
    graph = Graph("outer", state=State)
    graph.subgraph("part", inner)
    graph.edge(START, "part")
    with pytest.raises(GraphError, match="gets no value for 'needed'"):
        graph.build()


async def test_nested_values_go_in_and_out_as_the_mappings_say() -> None:
    class Inner(BaseModel):
        amount: int
        verdict: str = ""

    inner = Graph("inner", state=Inner)

    @inner.node
    async def judge(state: Inner) -> dict[str, Any]:
        return {"verdict": "high" if state.amount > 10 else "low"}

    inner.edge(START, "judge")
    graph = Graph("outer")
    graph.subgraph("part", inner, input={"amount": "total"}, output={"risk": "verdict"})
    graph.edge(START, "part")
    ended = await run(graph, {"total": 11})
    assert ended.values == {"total": 11, "risk": "high"}


async def test_a_goto_to_before_the_fan_out_leaves_it() -> None:
    graph = Graph("back", state=State)

    @graph.node
    async def prepare(state: State) -> dict[str, Any]:
        return {"log": [f"prepare {state.count}"], "count": state.count + 1}

    @graph.node(to=["one"])
    async def split(state: State) -> list[Send]:
        return [Send("one", number) for number in range(2)]

    @graph.node(to=["prepare"])
    async def one(state: State, ctx: Context) -> Goto | dict[str, Any]:
        if ctx.item == 1 and state.count == 1:
            return Goto("prepare")
        return {"log": [f"one {ctx.item}"]}

    @graph.node
    async def collect(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": ["+".join(result["status"] for result in ctx.results)]}

    graph.edge(START, "prepare")
    graph.edge("prepare", "split")
    graph.edge(["one"], "collect")
    ended = await run(graph)
    assert ended.status == "completed"
    assert sorted(ended.values["log"]) == [
        "arrived+arrived",
        "arrived+left",
        "one 0",
        "one 0",
        "one 1",
        "prepare 0",
        "prepare 1",
    ]


async def test_a_breakpoint_in_an_item_is_passed_on_and_edits_nothing() -> None:
    graph = Graph("passed", state=State, interrupt_before=["one"])

    @graph.node(to=["one"])
    async def split(state: State) -> list[Send]:
        return [Send("one", 0)]

    @graph.node
    async def one(state: State) -> None: ...

    graph.edge(START, "split")
    trial = InMemoryRun(graph)
    await trial.start()
    with pytest.raises(Refusal) as edited:
        await trial.respond("interrupt_before", {"values": {"count": 1}, "version": 1})
    with pytest.raises(Refusal) as other:
        await trial.respond("interrupt_before", "go")
    await trial.respond("interrupt_before", None)

    assert edited.value.code is other.value.code is Code.INVALID_ANSWER
    assert "edit before or after the fan-out" in edited.value.message
    assert trial.status == "completed"
