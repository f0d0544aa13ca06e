"""A node that looks for messages again and again costs its run nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mishaps import Mishaps
from rpc_counter import counted
from sample_graphs import Held
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from abeyance import START, Context, Graph
from abeyance.activities.node import RunChannel
from abeyance.client import Client
from abeyance.core.effects import VisitInput
from abeyance.core.events import Message
from abeyance.errors import Unavailable


async def test_a_node_that_looks_for_messages_asks_its_run_only_when_there_are_some(
    temporal: TemporalClient,
) -> None:
    told: list[str] = []
    graph = Graph("looking")

    @graph.node
    async def look(state: dict[str, Any], ctx: Context) -> None:
        # Look until the message has come, however long it takes, and 20 times after it.
        after = 0
        while after < 20:
            if (found := await ctx.check_interrupt()) is not None:
                told.append(found.text)
            after += bool(told)
            await asyncio.sleep(0.01)

    graph.edge(START, "look")
    client, counter = counted(temporal)
    site = Site(client, graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: counter.calls["describe_workflow_execution"] > 3)
        await site.client.run(run_id).send(text="hello 1")
        await site.ended(run_id)

    assert told == ["hello 1"]
    # One update sent the message, one took it, and some came before the node knew that it was the last.
    assert counter.calls["update_workflow_execution"] <= 6


async def test_a_message_whose_taking_was_not_answered_is_taken_by_asking_again(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    mishaps = Mishaps(temporal)
    mishaps.was_done = True
    client = Client(mishaps.client, task_queue=site.settings.task_queue, patience=0.2)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        await site.client.run(run_id).send(message_id="m", text="hello")

        async def looked() -> list[Message | None]:
            given = VisitInput(
                run_id=run_id, graph="held", node="hold", address="graph:held;node:hold", values={}
            )
            post = RunChannel(client, given, 1.0)
            lost = RPCError("the answer was lost", RPCStatusCode.UNAVAILABLE, b"")
            mishaps.come("update_workflow_execution", *[lost] * 100)
            with pytest.raises(Unavailable):
                await post.take(0)
            mishaps.was_done = False
            mishaps._coming.clear()
            client.line.patience = 30
            return [await post.take(0), await post.take(1)]

        first, second = await ActivityEnvironment().run(looked)
        held.release.set()
        await site.ended(run_id)

    assert first is not None
    assert (first.text, second) == ("hello", None)
