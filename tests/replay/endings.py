"""Scenarios: nodes that fail, and what runs at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sample_graphs import Held, State, gated
from temporal_site import eventually

from abeyance import START, Context, Graph
from tests.replay.stage import Scenario, Stage


async def node_fails_the_run(stage: Stage) -> None:
    async with stage.run(_failing(times=9, retries=0)) as run:
        view = await run.ended("failed")
        assert view.values["log"] == ["tidy failed"]


async def node_fails_and_another_takes_over(stage: Stage) -> None:
    async with stage.run(_failing(times=9, retries=0, on_error="goto:rescue")) as run:
        view = await run.ended()
        assert view.values["log"] == ["rescue None", "tidy completed"]


async def node_retried(stage: Stage) -> None:
    async with stage.run(_failing(times=2, retries=3)) as run:
        await run.ended()


async def local_node_retried(stage: Stage) -> None:
    async with stage.run(_failing(times=1, retries=3, local=True)) as run:
        await run.ended()


async def local_node_fails_the_run(stage: Stage) -> None:
    async with stage.run(_failing(times=9, retries=0, local=True)) as run:
        await run.ended("failed")


async def node_times_out(stage: Stage) -> None:
    graph = Graph("slow", state=State)

    @graph.node(timeout="200ms", retries=0)
    async def never(state: State) -> None:
        await asyncio.Event().wait()

    graph.edge(START, "never")
    async with stage.run(graph) as run:
        await run.ended("failed")


async def node_fails_while_others_run_and_wait(stage: Stage) -> None:
    held = Held()
    held.graph.interrupt("beside", prompt="?", timeout="2d")
    held.graph.edge(START, "beside")
    held.graph.node(name="broken", retries=0)(_broken)
    held.graph.edge("beside", "broken")
    held.graph.interrupt("open", prompt="?", timeout="1d")
    held.graph.edge(START, "open")
    async with stage.run(held.graph) as run:
        await eventually(lambda: held.started)
        await run.answer(beside=True)
        await run.ended("failed")


async def finally_nodes_after_the_end(stage: Stage) -> None:
    async with stage.run(_tidied(gated())) as run:
        await run.waiting()
        await run.answer(approve={"approved": True})
        view = await run.ended()
        assert view.values["log"][-2:] == ["lights completed", "doors completed"]


async def finally_nodes_after_a_deadline(stage: Stage) -> None:
    async with stage.run(_tidied(gated(timeout="1s"))) as run:
        await run.waiting()
        await run.ended("halted")


async def finally_nodes_after_a_cancel(stage: Stage) -> None:
    async with stage.run(_tidied(gated())) as run:
        await run.waiting()
        await run.cancel()
        await run.ended("cancelled")


async def finally_node_fails(stage: Stage) -> None:
    graph = Graph("untidy", state=State)
    graph.node(name="work")(_tidy)
    graph.node(name="broom", retries=0)(_broken)
    graph.node(name="lights")(_tidy)
    graph.edge(START, "work")
    graph.finally_("broom", "lights")
    async with stage.run(graph) as run:
        view = await run.ended()
        assert view.beside


async def _broken(state: State) -> None:
    raise ValueError("the broom is missing")


async def _tidy(state: State, ctx: Context) -> dict[str, Any]:
    return {"log": [f"{ctx.node} {ctx.outcome}"]}


def _failing(*, times: int, **options: Any) -> Graph:
    """A node that fails so often, one that may take over, and one that runs at the end."""
    graph = Graph("failing", state=State)
    graph.node(name="work", **options)(_fails(times))
    graph.node(name="rescue")(_tidy)
    graph.node(name="tidy")(_tidy)
    graph.edge(START, "work")
    if "on_error" not in options:
        graph.edge("work", "rescue")
    graph.finally_("tidy")
    return graph


def _fails(times: int) -> Callable[[State], Any]:
    left = times

    async def work(state: State) -> dict[str, Any]:
        nonlocal left
        left -= 1
        if left >= 0:
            message = f"{left + 1} more to come"
            raise ValueError(message)
        return {}

    return work


def _tidied(graph: Graph) -> Graph:
    graph.node(name="lights")(_tidy)
    graph.node(name="doors", local=True)(_tidy)
    graph.finally_("lights", "doors")
    return graph


SCENARIOS: tuple[Scenario, ...] = (
    node_fails_the_run,
    node_fails_and_another_takes_over,
    node_retried,
    local_node_retried,
    local_node_fails_the_run,
    node_times_out,
    node_fails_while_others_run_and_wait,
    finally_nodes_after_the_end,
    finally_nodes_after_a_deadline,
    finally_nodes_after_a_cancel,
    finally_node_fails,
)
