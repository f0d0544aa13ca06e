"""Questions in graphs inside a graph, and in the items of a fan-out, on a real server."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from temporal_site import ANYBODY, Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import (
    START,
    Context,
    Graph,
    Refusal,
    Send,
    append,
)
from abeyance.core.state import Limits
from abeyance.errors import Code


class State(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []


def nested() -> Graph:
    deep = Graph("deep", state=State)

    @deep.node
    async def work(state: State, ctx: Context) -> dict[str, Any]:
        return {"log": [f"deep {state.count}"]}

    deep.interrupt("gate", prompt="Deep {count}?", requested_capability="deep:open")
    deep.edge(START, "work")
    deep.edge("work", "gate")
    middle = Graph("middle", state=State)
    middle.subgraph("inner", deep)
    middle.edge(START, "inner")
    outer = Graph("outer", state=State)

    @outer.node
    async def last(state: State) -> dict[str, Any]:
        return {"log": ["last"]}

    for name in ("left", "right"):
        outer.subgraph(name, middle)
        outer.edge(START, name)
    outer.edge(["left", "right"], "last")
    return outer


async def test_what_is_asked_in_nested_graphs_is_listed_at_the_root(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, nested())
    async with site.worker():
        run_id = await site.start({"count": 4}, limits=Limits(continue_as_new_after=10))

        async def both() -> Any:
            view = await site.client.run(run_id).view()
            return view if len(view.interrupts) == 2 else None

        waiting = await eventually(both)
        left, right = sorted(waiting.interrupts, key=lambda each: each.address)
        assert left.address == "graph:outer;node:left;graph:middle;node:inner;graph:deep;node:gate"
        assert [parent.address for parent in left.parents] == [
            "graph:outer;node:left;graph:middle;node:inner",
            "graph:outer;node:left",
        ]
        assert left.prompt == "Deep 4?"
        with pytest.raises(Refusal) as refused:
            await site.client.run(run_id).respond({right.parents[-1].id: 1}, principal=ANYBODY)
        assert refused.value.code == Code.NOT_ROOT_CAUSE
        assert refused.value.details["root_causes"] == [right.id]
        await site.client.run(run_id).respond({right.id: 1}, principal=ANYBODY)
        await site.client.run(run_id).respond({left.id: 1}, principal=ANYBODY)
        ended = await site.ended(run_id)
        assert ended.values["log"] == ["deep 4", "deep 4", "last"]
        await site.replays(run_id)
        history = await site.history(run_id)
        assert history.events[
            0
        ].workflow_execution_started_event_attributes.continued_execution_run_id


def spread(asks_: bool) -> Graph:
    graph = Graph("spread", state=State)

    @graph.node(to=["one"])
    async def split(state: State) -> list[Send]:
        return [Send("one", number) for number in range(state.count)]

    @graph.node
    async def one(state: State, ctx: Context) -> dict[str, Any]:
        said = await ctx.interrupt("ok", prompt=str(ctx.item)) if asks_ else ctx.item
        return {"log": [f"{ctx.item}:{said}"]}

    @graph.node
    async def collect(state: State, ctx: Context) -> dict[str, Any]:
        return {"count": sum(result["status"] == "arrived" for result in ctx.results)}

    graph.edge(START, "split")
    graph.edge(["one"], "collect")
    return graph


async def test_items_are_answered_in_any_order_and_across_hand_overs(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, spread(asks_=True))
    async with site.worker():
        run_id = await site.start({"count": 8}, limits=Limits(continue_as_new_after=40))

        async def all_open() -> Any:
            view = await site.client.run(run_id).view()
            return view if len(view.interrupts) == 8 else None

        waiting = await eventually(all_open)
        for entry in sorted(waiting.interrupts, key=lambda entry: entry.prompt, reverse=True):
            await site.client.run(run_id).respond({entry.id: "y"}, principal=ANYBODY)
        ended = await site.ended(run_id)
        assert ended.values["log"] == [f"{number}:y" for number in range(8)]
        await site.replays(run_id)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_five_hundred_items_ask_and_are_answered_in_one_call(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, spread(asks_=True), patience=60)
    async with site.worker():
        run_id = await site.start({"count": 500})

        async def all_open() -> Any:
            view = await site.client.run(run_id).view()
            return view if len(view.interrupts) == 500 else None

        waiting = await eventually(all_open, seconds=90)
        answers = {entry.id: "y" for entry in waiting.interrupts}
        receipts = await site.client.run(run_id).respond(answers, principal=ANYBODY)
        ended = await site.ended(run_id, seconds=90)
        assert len(receipts) == 500
        assert ended.values["log"] == [f"{number}:y" for number in range(500)]
        assert ended.values["count"] == 500
