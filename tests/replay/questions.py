"""Scenarios: what code, parts of code, nested graphs, items and operators ask."""

from __future__ import annotations

from typing import Any

from asking_graphs import Log, asking, batch, nested, plain, spread
from temporal_site import ANYBODY, eventually

from abeyance import START, Context, Graph, Interrupt, views
from tests.replay.stage import SHORT, Played, Scenario, Stage

EDIT = {"values": {"count": 5}, "version": 1}


async def open_questions(run: Played, count: int) -> list[views.InterruptView]:
    """The open questions, once there are so many."""

    async def found() -> list[views.InterruptView] | None:
        asked = await run.site.client.run(run.id).interrupts()
        return asked if len(asked) == count else None

    listed: list[views.InterruptView] = await eventually(found)
    return listed


async def reply(run: Played, entry: views.InterruptView, answer: Any) -> None:
    await run.site.client.run(run.id).respond({entry.id: answer}, principal=ANYBODY)


async def code_asks(stage: Stage) -> None:
    async with stage.run(asking()) as run:
        await run.waiting()
        await run.answer(account={"iban": "DE1"})
        await run.ended()


async def code_waits(stage: Stage) -> None:
    async with stage.run(asking()) as run:
        await run.waiting()


def _stepping() -> Graph:
    graph = Graph("stepping", state=Log)
    tries: list[int] = []

    @graph.node
    async def work(state: Log, ctx: Context) -> dict[str, Any]:
        await ctx.step("one", lambda: 1)
        first = await ctx.interrupt("first", state={"kept": 1})
        await ctx.step("two", lambda: 2)
        tries.append(1)
        if len(tries) == 1:
            message = "not yet"
            raise ValueError(message)
        both = await ctx.interrupts([Interrupt("second"), Interrupt("third", timeout="2d")])
        ctx.emit("done", {"first": first})
        return {"log": [first, both["second"], both["third"]]}

    graph.edge(START, "work")
    return graph


async def code_asks_in_sequence_between_steps_and_a_retry(stage: Stage) -> None:
    async with stage.run(_stepping()) as run:
        await run.waiting()
        await run.answer(first="a")
        await open_questions(run, 2)
        await run.answer(third="c")
        await run.answer(second="b")
        await run.ended()


async def parts_are_answered_one_by_one(stage: Stage) -> None:
    async with stage.run(batch()) as run:
        first, second = await open_questions(run, 2)
        await reply(run, second, True)
        await open_questions(run, 1)
        await reply(run, first, True)
        await run.ended()


async def nested_graphs_ask(stage: Stage) -> None:
    async with stage.run(nested(), {"count": 3}) as run:
        left, right = await open_questions(run, 2)
        await reply(run, right, 1)
        await reply(run, left, 2)
        await run.ended()


async def nested_graphs_are_handed_over(stage: Stage) -> None:
    async with stage.run(nested(), {"count": 3}, limits=SHORT) as run:
        left, right = await open_questions(run, 2)
        await reply(run, left, 1)
        await reply(run, right, 2)
        await run.ended()


async def items_ask(stage: Stage) -> None:
    async with stage.run(spread(), {"count": 4}) as run:
        for entry in reversed(await open_questions(run, 4)):
            await reply(run, entry, "y")
        await run.ended()


async def items_are_handed_over(stage: Stage) -> None:
    async with stage.run(spread(), {"count": 3}, limits=SHORT) as run:
        for entry in await open_questions(run, 3):
            await reply(run, entry, "y")
        await run.ended()


async def an_empty_list_is_gathered(stage: Stage) -> None:
    async with stage.run(spread(), {"count": 0}) as run:
        await run.ended()


async def a_person_looks_before_and_after(stage: Stage) -> None:
    graph = plain()
    everywhere: dict[str, Any] = {"interrupt_before": ["add"], "interrupt_after": ["more"]}
    async with stage.run(graph, **everywhere) as run:
        (before,) = await open_questions(run, 1)
        await reply(run, before, EDIT)

        async def after() -> views.InterruptView | None:
            asked = await run.site.client.run(run.id).interrupts()
            return next((entry for entry in asked if entry.id != before.id), None)

        await reply(run, await eventually(after), None)
        await run.ended()


async def an_operator_retries_and_skips(stage: Stage) -> None:
    async with stage.run(plain(), {"count": 200}, on_error="interrupt") as run:
        (first,) = await open_questions(run, 1)
        await reply(run, first, {"action": "retry"})

        async def second() -> views.InterruptView | None:
            asked = await run.site.client.run(run.id).interrupts()
            return next((entry for entry in asked if entry.id != first.id), None)

        await reply(run, await eventually(second), {"action": "skip", "patch": {"count": 1}})
        await run.ended()


async def an_operator_lets_it_fail(stage: Stage) -> None:
    async with stage.run(plain(), {"count": 200}, on_error="interrupt") as run:
        await open_questions(run, 1)
        await run.answer(error={"action": "fail"})
        await run.ended("failed")


SCENARIOS: list[Scenario] = [
    code_asks,
    code_waits,
    code_asks_in_sequence_between_steps_and_a_retry,
    parts_are_answered_one_by_one,
    nested_graphs_ask,
    nested_graphs_are_handed_over,
    items_ask,
    items_are_handed_over,
    an_empty_list_is_gathered,
    a_person_looks_before_and_after,
    an_operator_retries_and_skips,
    an_operator_lets_it_fail,
]
