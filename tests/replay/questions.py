"""Scenarios: questions of code, nested graphs, items and operators, and nodes between questions."""

from __future__ import annotations

from typing import Any

from asking_graphs import Log, nested, plain, spread
from sample_graphs import State
from temporal_site import ANYBODY, eventually

from abeyance import START, Context, Graph, Interrupt, views
from tests.replay.stage import Played, Scenario, Stage


async def open_questions(run: Played, count: int) -> list[views.InterruptView]:
    """Wait until `count` questions are open, and return them."""

    async def found() -> list[views.InterruptView] | None:
        asked = await run.site.client.run(run.id).interrupts()
        return asked if len(asked) == count else None

    listed: list[views.InterruptView] = await eventually(found)
    return listed


async def next_question(run: Played, before: views.InterruptView) -> views.InterruptView:
    """Wait for the question after `before`, and return it."""

    async def found() -> views.InterruptView | None:
        asked = await run.site.client.run(run.id).interrupts()
        return next((entry for entry in asked if entry.id != before.id), None)

    following: views.InterruptView = await eventually(found)
    return following


async def reply(run: Played, entry: views.InterruptView, answer: Any) -> None:
    await run.site.client.run(run.id).respond({entry.id: answer}, principal=ANYBODY)


async def code_asks_between_steps_and_a_retry(stage: Stage) -> None:
    graph = Graph("stepping", state=Log)
    tries: list[int] = []

    @graph.node(asks="accounts:choose")
    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        await ctx.step("one", lambda: 1)
        first = await ctx.interrupt(
            "first", state={"kept": 1}, requested_capability="accounts:choose"
        )
        await ctx.step("two", lambda: 2)
        tries.append(1)
        if len(tries) == 1:
            message = "not yet"
            raise ValueError(message)
        both = await ctx.interrupts([Interrupt("second"), Interrupt("third", timeout="2d")])
        ctx.emit("done", {"first": first})
        return {"log": [first, both["second"], both["third"]]}

    graph.edge(START, "work")
    async with stage.run(graph) as run:
        await run.waiting()
        await run.answer(first="a")
        await open_questions(run, 2)
        await run.answer(third="c")
        await run.answer(second="b")
        await run.ended()


async def nested_graphs_ask(stage: Stage) -> None:
    async with stage.run(nested(), {"count": 3}) as run:
        left, right = await open_questions(run, 2)
        await reply(run, right, 1)
        await reply(run, left, 2)
        await run.ended()


async def items_ask(stage: Stage) -> None:
    async with stage.run(spread(), {"count": 4}) as run:
        for entry in reversed(await open_questions(run, 4)):
            await reply(run, entry, "y")
        await run.ended()


async def a_person_looks_before_and_after(stage: Stage) -> None:
    everywhere: dict[str, Any] = {"interrupt_before": ["add"], "interrupt_after": ["more"]}
    async with stage.run(plain(), **everywhere) as run:
        (before,) = await open_questions(run, 1)
        await reply(run, before, {"values": {"count": 5}, "version": 1})
        await reply(run, await next_question(run, before), None)
        await run.ended()


async def an_operator_retries_and_skips(stage: Stage) -> None:
    async with stage.run(plain(), {"count": 200}, on_error="interrupt") as run:
        (first,) = await open_questions(run, 1)
        await reply(run, first, {"action": "retry"})
        skips = {"action": "skip", "patch": {"count": 1}}
        await reply(run, await next_question(run, first), skips)
        await run.ended()


async def local_and_other_nodes_until_one_fails(stage: Stage) -> None:
    """Nodes run side by side and are joined; one is retried; a `finally_` node runs at the end."""
    graph = Graph("side-by-side", state=State)
    for number in range(3):
        graph.node(name=f"n{number}")(_work)
        graph.node(name=f"quick{number}", local=True)(_work)
        graph.edge(START, f"n{number}")
        graph.edge(f"n{number}", f"quick{number}")
    graph.node(name="broken", retries=1, local=True)(_broken)
    graph.edge([f"quick{number}" for number in range(3)], "broken")
    graph.node(name="lights")(_work)
    graph.finally_("lights")
    async with stage.run(graph) as run:
        view = await run.ended("failed")
        assert view.values["log"][-1] == "lights"


async def _work(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [ctx.node]}


async def _broken(state: State) -> None:
    raise ValueError("the broom is missing")


SCENARIOS: tuple[Scenario, ...] = (
    code_asks_between_steps_and_a_retry,
    nested_graphs_ask,
    items_ask,
    a_person_looks_before_and_after,
    an_operator_retries_and_skips,
    local_and_other_nodes_until_one_fails,
)
