"""Steps of a visit, in memory: what is done once, and what is remembered of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from abeyance import START, Context, Graph
from abeyance.testing import run


class State(BaseModel):
    count: int = 0


class Account(BaseModel):
    iban: str
    opened: datetime | None = None


def one_node(work: Callable[..., Any], *, retries: int) -> Graph:
    graph = Graph("one", state=State)
    graph.node(name="work", retries=retries)(work)
    graph.edge(START, "work")
    return graph


async def test_a_step_returns_the_same_whether_it_ran_or_was_recorded() -> None:
    seen: list[Any] = []

    async def account() -> Account:
        return Account(iban="DE1", opened=datetime(2026, 1, 1, tzinfo=UTC))

    async def work(state: State, ctx: Context) -> None:
        seen.append(await ctx.step("account", account))
        seen.append(await ctx.step("plain", lambda: ("a", 1)))
        await ctx.interrupt("q")

    await run(one_node(work, retries=0), answers={"q": 1})
    assert seen == [Account(iban="DE1", opened=datetime(2026, 1, 1, tzinfo=UTC)), ["a", 1]] * 2


async def test_a_step_of_what_is_not_json_fails_and_names_itself() -> None:
    async def work(state: State, ctx: Context) -> None:
        await ctx.step("odd", object)

    ended = await run(one_node(work, retries=0))
    assert "the step 'odd' returned a value of type object that is not JSON" in (ended.reason or "")


async def test_a_retry_goes_on_behind_the_finished_steps() -> None:
    done: Counter[str] = Counter()

    async def work(state: State, ctx: Context) -> None:
        await ctx.step("one", lambda: done.update(["one"]))
        if ctx.attempt < 3:
            message = "not yet"
            raise ValueError(message)
        await ctx.step("two", lambda: done.update(["two"]))

    ended = await run(one_node(work, retries=2))
    assert (ended.status, done) == ("completed", {"one": 1, "two": 1})
