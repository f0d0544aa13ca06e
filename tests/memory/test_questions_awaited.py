"""What a node awaits is done when it is awaited, and opens no gate before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from abeyance import START, Context, Graph, Interrupt, append
from abeyance.testing import run


class State(BaseModel):
    log: Annotated[list[str], append] = []


def one_node(work: Callable[..., Any]) -> Graph:
    graph = Graph("one", state=State)
    graph.node(name="work", retries=0)(work)
    graph.edge(START, "work")
    return graph


async def failed(work: Callable[..., Any]) -> str:
    """What a run says that fails because of this node."""
    ended = await run(one_node(work))
    error = ended.state.ending and ended.state.ending.error
    assert error
    return error.message


async def test_a_question_that_is_not_awaited_opens_no_gate() -> None:
    paid: list[str] = []

    async def gated(state: State, ctx: Context) -> None:
        if ctx.interrupt("sure", response=bool):
            paid.append("all of it")

    def left_alone(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [str(type(ctx.interrupts([Interrupt("a"), Interrupt("b")])))]}

    assert "the interrupt 'sure' is not awaited, so nobody was asked" in await failed(gated)
    assert "the list of interrupts is not awaited" in await failed(left_alone)
    assert paid == []


@pytest.mark.parametrize(
    ("use", "call"),
    [
        (lambda ctx: ctx.step("charge", list), "ctx.step('charge')"),
        (lambda ctx: ctx.file("a.txt", b"a"), "ctx.file('a.txt')"),
        (lambda ctx: ctx.gather(), "ctx.gather()"),
        (lambda ctx: ctx.check_interrupt(), "ctx.check_interrupt()"),
        (lambda ctx: ctx.wait_if_paused("5m"), "ctx.wait_if_paused('5m')"),
    ],
)
async def test_a_node_that_awaits_nothing_of_what_it_calls_fails(
    use: Callable[[Context], object], call: str
) -> None:
    async def left_alone(state: State, ctx: Context) -> dict[str, Any]:
        use(ctx)
        return {"log": ["done"]}

    async def gated(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": ["done"] if use(ctx) else []}

    for work in (left_alone, gated):
        assert f"{call} is not awaited, so it did nothing: write `await" in await failed(work)


async def test_a_step_that_is_stopped_before_it_begins_fails_no_node() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        unwanted: asyncio.Task[list[str]] = asyncio.create_task(ctx.step("unwanted", list))
        unwanted.cancel()
        await asyncio.wait([unwanted])
        return {"log": ["done"]}

    assert (await run(one_node(work))).values["log"] == ["done"]


async def test_a_question_may_be_awaited_in_a_task_or_later() -> None:
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        later = ctx.interrupt("later")
        first = await asyncio.create_task(ctx.interrupt("first"))
        return {"log": [*await asyncio.gather(ctx.interrupt("gathered")), first, await later]}

    answers = {"first": "1", "gathered": "2", "later": "3"}
    assert (await run(one_node(work), answers=answers)).values["log"] == ["2", "1", "3"]
