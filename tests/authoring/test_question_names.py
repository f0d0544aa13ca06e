"""The questions that code writes out: names in `not_by` that nobody asks, and questions after the end."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from abeyance import START, Agent, Context, Graph, GraphError, Interrupt, tool


def second(name: str = "frist", **terms: Any) -> Graph:
    """first -> a node that may be added -> second, which whoever answered `name` may not answer."""
    graph = Graph("transfer")
    graph.interrupt("first", prompt="Is it right?")
    graph.interrupt("second", prompt="Is it?", not_by=[name], **terms)
    graph.edge(START, "first")
    return graph


def then(graph: Graph, function: Any) -> Graph:
    graph.node(function, name="work")
    graph.edge("first", "work")
    graph.edge("work", "second")
    return graph


FAULT = (
    "the question 'second', not_by=: nothing asks 'frist', which would bar nobody: 'transfer' and the "
    "graphs around it ask 'first', 'second'"
)


def faults_of(graph: Graph) -> tuple[str, ...]:
    with pytest.raises(GraphError) as caught:
        graph.build()
    return tuple(caught.value.faults)


def test_a_misspelt_question_is_a_fault() -> None:
    graph = second()
    graph.edge("first", "second")
    assert faults_of(graph) == (FAULT,)


def plain(state: Any) -> dict[str, Any]:
    return {"log": sorted(state)}


async def logs(state: Any, ctx: Context) -> None:
    ctx.logger.info("working for %s", ctx.run_id)


async def asks_another(state: Any, ctx: Context) -> None:
    await ctx.interrupt("third")


@pytest.mark.parametrize("code", [plain, logs, asks_another])
def test_so_it_is_beside_code_that_asks_nothing_of_that_name(code: Any) -> None:
    (fault,) = faults_of(then(second(), code))
    assert fault.startswith("the question 'second', not_by=: nothing asks 'frist'")


async def asks(state: Any, ctx: Context) -> None:
    await ctx.interrupt("frist")


def raises(state: Any) -> None:
    raise Interrupt("frist", prompt="Really?")


async def lists(state: Any, clerk: Context) -> None:
    await clerk.interrupts([Interrupt(name="frist"), Interrupt("other", process="p")])


@pytest.mark.parametrize("code", [asks, raises, lists])
def test_a_name_that_code_writes_out_is_known(code: Any) -> None:
    assert "frist" in then(second(), code).build().asked


NAME = "frist"


async def computes(state: Any, ctx: Context) -> None:
    await ctx.interrupt(NAME)


async def helper(context: Context) -> None:
    await context.interrupt("frist")


async def passes_on(state: Any, ctx: Context) -> None:
    await helper(ctx)


async def aliases(state: Any, ctx: Context) -> None:
    ask = ctx.interrupt
    await ask("frist")


def raises_elsewhere(state: Any) -> None:
    raises(state)


class Callable:
    def __call__(self, state: Any) -> None:
        raise Interrupt("frist")


@pytest.mark.parametrize(
    "code",
    [computes, passes_on, aliases, raises_elsewhere, Callable(), functools.partial(plain)],
    ids=["computed", "passed on", "aliased", "raised elsewhere", "callable", "partial"],
)
def test_where_code_may_ask_under_any_name_the_run_finds_out(code: Any) -> None:
    assert then(second(), code).build().asked in ((), ("frist",))


def test_code_bars_by_a_name_that_exists() -> None:
    async def work(state: Any, ctx: Context) -> None:
        await ctx.interrupt("third", not_by=["first", "secnd"])
        await ctx.interrupt("fourth", not_by="thrid")

    faults = faults_of(then(second("first"), work))
    assert [fault.partition(", which")[0] for fault in faults] == [
        "the question 'third', not_by=: nothing asks 'secnd'",
        "the question 'fourth', not_by=: nothing asks 'thrid'",
    ]


def test_a_nested_graph_may_name_the_questions_around_it_and_no_others() -> None:
    def around(name: str) -> Graph:
        inner = Graph("inner")
        inner.interrupt("inside", prompt="Really?", not_by=[name])
        inner.edge(START, "inside")
        graph = Graph("outer")
        graph.interrupt("first", prompt="Is it right?")
        graph.subgraph("sub", inner)
        graph.edge(START, "first")
        graph.edge("first", "sub")
        return graph

    around("first").build()
    (fault,) = faults_of(around("frist"))
    assert fault.startswith("the question 'inside', not_by=: nothing asks 'frist'")


def test_a_question_inside_bars_nobody_around_it() -> None:
    inner = Graph("inner")
    inner.interrupt("frist", prompt="Really?")
    inner.edge(START, "frist")
    graph = second()
    graph.subgraph("sub", inner)
    graph.edge("first", "sub")
    graph.edge("sub", "second")
    assert faults_of(graph) == (FAULT,)


def with_agent(not_by: str) -> Graph:
    @tool(approve=True, not_by=[not_by])
    def pay(amount: int) -> str:
        return f"paid {amount}"

    agent = Agent("clerk", model="test", tools=[pay])
    graph = Graph("desk")
    graph.interrupt("first", prompt="Is it right?")
    graph.agent("clerk", agent, input=lambda state: "go")
    graph.edge(START, "first")
    graph.edge("first", "clerk")
    return graph


def test_the_approval_of_a_tool_bars_by_a_name_that_exists() -> None:
    for name in ("first", "approve"):
        with_agent(name).build()
    (fault,) = faults_of(with_agent("frist"))
    assert fault.startswith("the question 'pay', not_by=: nothing asks 'frist'")


@pytest.mark.parametrize(
    ("code", "options"), [(asks, {}), (raises, {}), (lists, {}), (plain, {"asks": ["pay"]})]
)
def test_a_finally_node_that_asks_is_a_fault(code: Any, options: dict[str, Any]) -> None:
    graph = second("first")
    graph.edge("first", "second")
    graph.node(name="tidy", **options)(code)
    graph.finally_("tidy")

    fault = "the finally node 'tidy' may not ask a person: the run is over by then"
    assert faults_of(graph) == (fault,)
