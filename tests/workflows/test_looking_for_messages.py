"""A node that looks for messages again and again costs its run nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from rpc_counter import counted
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import START, Context, Graph, wire


async def test_a_node_that_looks_for_messages_asks_its_run_only_when_there_are_some(
    temporal: TemporalClient,
) -> None:
    told: list[str] = []
    graph = Graph("looking")

    @graph.node
    async def look(state: dict[str, Any], ctx: Context) -> None:
        for _ in range(30):
            if (found := await ctx.check_interrupt()) is not None:
                told.append(found.text)
            await asyncio.sleep(0.01)

    graph.edge(START, "look")
    client, counter = counted(temporal)
    site = Site(client, graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: counter.calls["describe_workflow_execution"] > 3)
        await site.client.send_message(run_id, wire.SteerMessage(text="hello 1"))
        await site.ended(run_id)

    assert told == ["hello 1"]
    # One to send it, one that took it, and some that came before it was known that it was the last.
    assert counter.calls["update_workflow_execution"] <= 6
