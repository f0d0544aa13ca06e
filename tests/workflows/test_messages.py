"""The mailbox of a run on a real server: accepted means taken once, or reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from sample_graphs import Held
from temporal_site import Site, begun, eventually
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError

from abeyance import START, Context, Graph, Refusal, append, commands
from abeyance.errors import Code

_ACCEPTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED


class Read(BaseModel):
    log: Annotated[list[str], append] = []
    enough: bool = False


def message(number: int, **about: Any) -> commands.SteerMessage:
    return commands.SteerMessage(message_id=f"m{number}", **{"text": f"hello {number}", **about})


async def accepted(site: Site, run_id: str) -> int:
    """Return how many accepted updates the history of the run has."""
    history = await site.history(run_id)
    return sum(event.event_type == _ACCEPTED for event in history.events)


async def test_messages_are_taken_once_in_order_and_the_rest_is_reported(
    temporal: TemporalClient,
) -> None:
    held = Held()
    async with begun(temporal, held.graph) as (site, run):
        await eventually(lambda: held.started)
        for number in range(3):
            receipt = await run.send_message(message(number))
            assert (receipt.duplicate, receipt.queue_depth) == (False, number + 1)
        again = await run.send_message(message(1))

        async def take(start: int, upto: int) -> list[str]:
            order = commands.TakeMessages(visit="graph:held;node:hold", start=start, upto=upto)
            return [each.message_id for each in await run.take_messages(order)]

        first = await take(0, 2)
        second = await take(2, 4)
        retried = await take(0, 2)
        before = await accepted(site, run.run_id)
        order = commands.TakeMessages(visit="graph:held;node:hold", start=3, upto=5)
        with pytest.raises(WorkflowUpdateFailedError):
            await temporal.get_workflow_handle(run.run_id).execute_update("take_messages", order)
        nothing = await take(3, 5)
        after = await accepted(site, run.run_id)
        await run.send_message(message(9))
        held.release.set()
        ended = await site.ended(run.run_id)
        result = await run.result()

        assert again.duplicate
        assert (first, second, retried, nothing) == (["m0", "m1"], ["m2"], ["m0", "m1"], [])
        assert before == after
        for reported in (ended.undelivered, result.undelivered):
            # The test took these in the node's name: they never reached its code, which has read none.
            assert [left.message_id for left in reported] == ["m0", "m1", "m2", "m9"]
            assert {left.reason for left in reported} == {"completed"}
        assert ended.metrics is not None
        assert (ended.metrics.messages_queued, ended.metrics.messages_delivered) == (4, 0)
        await site.replays(run.run_id)


async def test_a_message_to_a_run_that_completes_is_taken_or_reported_or_refused(
    temporal: TemporalClient,
) -> None:
    graph = Graph("short", state=Read)

    @graph.node
    async def quick(state: Read, ctx: Context) -> dict[str, Any]:
        found = await ctx.check_interrupt()
        return {"log": [] if found is None else [found.message_id]}

    graph.edge(START, "quick")
    site = Site(temporal, graph)
    fates: Counter[str] = Counter()

    async def one_run(number: int) -> None:
        run_id = await site.start()
        receipts: dict[str, str | None] = {}

        async def send(index: int) -> None:
            # Send from before the run's first node to after its end, for which one call waits.
            if index == 7:
                await site.ended(run_id)
            await asyncio.sleep(index * number % 13 * 0.004)
            run = site.client.run(run_id)
            way = run.signal_message if index % 2 else run.send_message
            try:
                await way(message(index))
            except Refusal as refusal:
                receipts[f"m{index}"] = refusal.code
            else:
                receipts[f"m{index}"] = None

        await asyncio.gather(*(send(index) for index in range(8)))
        ended = await site.ended(run_id)
        taken = set(ended.values["log"])
        left = {entry.message_id for entry in ended.undelivered}
        accepted = {id_ for id_, code in receipts.items() if code is None}
        assert not taken & left
        assert taken | left == accepted, receipts
        assert {code for code in receipts.values() if code} <= {Code.NOT_RUNNING}
        fates.update(taken=len(taken), left=len(left), refused=8 - len(accepted))

    async with site.worker():
        await asyncio.gather(*(one_run(number) for number in range(1, 11)))

    assert fates["refused"] >= 10
    assert fates["taken"] + fates["left"]
