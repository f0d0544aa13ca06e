"""A message that is steered into a queue that is full for just a moment."""

from __future__ import annotations

from typing import Any

import pytest
from rpc_counter import RpcCounter
from sample_graphs import Held
from temporal_site import Site, eventually
from temporalio.client import Client as TemporalClient

from abeyance import Refusal, wire
from abeyance.client import Client
from abeyance.core.state import Limits
from abeyance.errors import Code


class Crowded(RpcCounter):
    """Whenever a message is on its way, another fills the queue, which is cleared right after."""

    def __init__(self, site: Site, *, times: int) -> None:
        super().__init__(site.temporal.service_client)
        temporal = site.temporal
        self.client = TemporalClient(
            self, namespace=temporal.namespace, data_converter=temporal.data_converter
        )
        self._site = site
        self._left = times

    async def _rpc_call(self, rpc: str, req: Any, resp_type: type[Any], **options: Any) -> Any:
        if rpc != "signal_workflow_execution" or not self._left:
            return await super()._rpc_call(rpc, req, resp_type, **options)
        self._left -= 1
        run_id = req.workflow_execution.workflow_id
        await self._site.client.send_message(run_id, wire.SteerMessage(text="in the way"))
        answer = await super()._rpc_call(rpc, req, resp_type, **options)
        await self._site.client.clear_messages(run_id)
        return answer


async def steered(temporal: TemporalClient, *, times: int) -> tuple[wire.MessageReceipt, list[str]]:
    """What somebody is told who steers a run whose queue of one is full so often; what it then holds."""
    held = Held()
    site = Site(temporal, held.graph)
    client = Client(Crowded(site, times=times).client, task_queue=site.settings.task_queue)
    async with site.worker():
        run_id = await site.start(limits=Limits(max_queue_size=1))
        await eventually(lambda: held.started)
        try:
            receipt = await client.steer(run_id, wire.SteerMessage(message_id="m", text="hello"))
            unread = [message.message_id for message in await site.client.messages(run_id)]
        finally:
            held.release.set()
            await site.ended(run_id)
    return receipt, unread


async def test_a_message_that_was_turned_away_on_its_way_is_sent_again_while_there_is_room(
    temporal: TemporalClient,
) -> None:
    receipt, unread = await steered(temporal, times=2)

    assert unread == ["m"]
    assert (receipt.message_id, receipt.duplicate, receipt.queue_depth) == ("m", False, 1)


async def test_who_never_finds_room_is_told_that_the_queue_is_full(
    temporal: TemporalClient,
) -> None:
    with pytest.raises(Refusal) as refused:
        await steered(temporal, times=99)

    assert refused.value.code is Code.QUEUE_FULL
    assert refused.value.details["limit"] == 1
