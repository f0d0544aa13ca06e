"""The mailbox of a run on a real server: accepted means taken once, or reported."""

from __future__ import annotations

from typing import Any

import pytest
from sample_graphs import Held, gated
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError

from abeyance import Refusal, wire
from abeyance.core.state import Limits
from abeyance.errors import Code


def message(number: int) -> wire.SteerMessage:
    return wire.SteerMessage(message_id=f"m{number}", text=f"hello {number}")


async def test_messages_are_taken_once_in_order_and_the_rest_is_reported(
    temporal: TemporalClient,
) -> None:
    held = Held()
    site = Site(temporal, held.graph)
    async with site.worker():
        run_id = await site.start()
        await eventually(lambda: held.started)
        for number in range(3):
            receipt = await site.client.send_message(run_id, message(number))
            assert (receipt.duplicate, receipt.queue_depth) == (False, number + 1)
        again = await site.client.send_message(run_id, message(1))
        handle = temporal.get_workflow_handle(run_id)

        async def take(most: int) -> list[str]:
            order = wire.TakeMessages(visit="graph:held;node:hold", most=most)
            taken: list[dict[str, Any]] = await handle.execute_update("take_messages", order)
            return [entry["message_id"] for entry in taken]

        first = await take(2)
        second = await take(2)
        before = len((await site.history(run_id)).events)
        with pytest.raises(WorkflowUpdateFailedError):
            await take(2)
        after = len((await site.history(run_id)).events)
        await site.client.send_message(run_id, message(9))
        held.release.set()
        ended = await site.ended(run_id)

        assert again.duplicate
        assert (first, second) == (["m0", "m1"], ["m2"])
        assert before == after
        assert [left.message_id for left in ended.undelivered] == ["m9"]
        assert ended.metrics is not None
        assert (ended.metrics.messages_queued, ended.metrics.messages_delivered) == (4, 3)
        await site.replays(run_id)


async def test_a_full_queue_says_so_and_a_signal_into_it_is_recorded(
    temporal: TemporalClient,
) -> None:
    site = Site(temporal, gated())
    async with site.worker():
        run_id = await site.start(limits=Limits(max_queue_size=1))
        await site.until(run_id, "awaiting-input")
        await site.client.send_message(run_id, message(0))
        with pytest.raises(Refusal) as full:
            await site.client.send_message(run_id, message(1))
        await temporal.get_workflow_handle(run_id).signal("steer", message(2))
        view = await site.client.view(run_id)

        assert full.value.code is Code.QUEUE_FULL
        assert (full.value.details["limit"], full.value.details["actual"]) == (1, 1)
        assert [(note.message_id, note.code) for note in view.rejected] == [("m2", "queue_full")]
        assert view.queue_depth == 1
