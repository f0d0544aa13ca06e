"""The claims of a conversation, read from its history without a worker.

They are those of its start and of accepted updates, less those that were released.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, timedelta
from typing import TypeVar

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance import names
from abeyance.core.conversation import Claim, Conversation
from abeyance.errors import Refusal
from abeyance.storage.converter import UNREADABLE, of_run
from abeyance.temporal.retry import NotFound
from abeyance.util import conversation_workflow_id

T = TypeVar("T")


async def roster(
    temporal: TemporalClient, task_queue: str, conversation_id: str, rpc_timeout: timedelta
) -> Sequence[Claim]:
    """Return the claims of a conversation, oldest first, without those released by unread signals.

    Raises NotFound, or RPCError NOT_FOUND, if there is no such conversation.
    """
    workflow_id = conversation_workflow_id(task_queue, conversation_id)
    converter = of_run(temporal.data_converter, workflow_id)
    handle = temporal.get_workflow_handle(workflow_id)
    held = Conversation(conversation_id=conversation_id)
    async for event in handle.fetch_history_events(rpc_timeout=rpc_timeout):
        held = await _after(held, event, converter)
    return held.claims


async def _after(held: Conversation, event: HistoryEvent, converter: DataConverter) -> Conversation:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            started = event.workflow_execution_started_event_attributes
            if started.workflow_type.name != names.CONVERSATION_WORKFLOW:
                # Another application's workflow.
                raise NotFound
            return await _read(converter, started.input, Conversation)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            update = event.workflow_execution_update_accepted_event_attributes
            claim = await _read(converter, update.accepted_request.input.args, Claim)
            try:
                return held.claimed(claim, event.event_time.ToDatetime(tzinfo=UTC))
            except Refusal:
                # The workflow refused it too.
                return held
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            try:
                return held.released(await _read(converter, signal.input, list[str]))
            except UNREADABLE:
                # The workflow dropped it.
                return held
        case _:
            return held


async def _read(converter: DataConverter, payloads: Payloads, kind: type[T]) -> T:
    values: list[T] = await converter.decode(payloads.payloads, [kind])
    return values[0]
