"""A name that the source of a node shows to be asked twice in one visit is a fault of the graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from abeyance import START, CompositeInterrupt, Context, Graph, GraphError, Interrupt


async def until_it_is_good(state: Any, ctx: Context) -> None:
    while True:
        amount = await ctx.interrupt("amount")
        if amount > 0:
            break


async def for_each(state: Any, ctx: Context) -> list[Any]:
    answers = []
    for _ in state["items"]:
        try:
            answers.append(await ctx.interrupt(name="amount"))
        finally:
            answers.append(1)
    return answers


async def in_the_condition(state: Any, ctx: Context) -> None:
    while await ctx.interrupt("amount") < 0:
        pass


async def in_a_comprehension(state: Any, ctx: Context) -> list[Any]:
    return [await ctx.interrupt("amount") for _ in state["items"]]


async def in_a_row(state: Any, clerk: Context) -> Any:
    first = await clerk.interrupt("amount", prompt="First?")
    if first:
        return await clerk.interrupt("amount", prompt="Second?")
    return None


def together(state: Any, ctx: Context) -> None:
    raise CompositeInterrupt([Interrupt("amount"), Interrupt(name="amount")])


@pytest.mark.parametrize(
    "work",
    [until_it_is_good, for_each, in_the_condition, in_a_comprehension, in_a_row, together],
)
def test_a_name_that_is_asked_again_in_one_visit_is_a_fault_of_the_graph(
    work: Callable[..., Any],
) -> None:
    with pytest.raises(GraphError) as caught:
        graph_of(work).build()

    (fault,) = caught.value.faults
    assert "the node 'a' asks 'amount' again in the same visit" in fault
    assert 'f"amount-{n}"' in fault


async def names_of_their_own(state: Any, ctx: Context) -> None:
    for number, _ in enumerate(state["items"]):
        await ctx.interrupt(f"amount-{number}")


async def the_loop_ends(state: Any, ctx: Context) -> Any:
    for item in state["items"]:
        if item:
            with suppress(ValueError):
                await ctx.interrupt("amount")
            break
    else:
        await ctx.interrupt("none")
    while True:
        if state["late"]:
            return await ctx.interrupt("late")


async def either(state: Any, ctx: Context) -> Any:
    if state["large"]:
        await ctx.interrupt("amount", prompt="Large?")
    else:
        await ctx.interrupt("amount", prompt="Small?")
    large = await ctx.interrupt("size") if state["large"] else None
    small = await ctx.interrupt("size") if not state["large"] else None
    match state["kind"]:
        case "a":
            await ctx.interrupt("kind")
        case _:
            await ctx.interrupt("kind")
    return large or small


async def processes(state: Any, ctx: Context) -> None:
    await ctx.interrupt("amount", process="p1")
    await ctx.interrupt("amount", process="p2")


async def of_something_else(state: Any, ctx: Context) -> None:
    for each in state["buses"]:
        each.interrupt("amount")

        async def later() -> None:
            await ctx.interrupt("amount")


made: dict[str, Any] = {}
exec(  # A function without source.
    "async def unseen(state, ctx):\n    while True:\n        await ctx.interrupt('amount')\n", made
)


@pytest.mark.parametrize(
    "work",
    [
        *(names_of_their_own, the_loop_ends, either, processes, of_something_else),
        made["unseen"],
        lambda state, ctx: [ctx.interrupt("amount") for _ in state],
    ],
)
def test_what_may_be_asked_once_is_none(work: Callable[..., Any]) -> None:
    assert graph_of(work).build().nodes["a"]


def graph_of(work: Callable[..., Any]) -> Graph:
    graph = Graph("g")
    graph.node(name="a")(work)
    graph.edge(START, "a")
    return graph
