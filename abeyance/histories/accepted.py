"""What was accepted under a key: the server gives a known update id its first result, whatever comes
with it the second time, so a caller who repeats a key has to be held against the history.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.errors import Code, Refusal

_ACCEPTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
_PAGE: Final = 200
_MOST_PAGES: Final = 40
"""Together more events than a history gets before the run is handed over."""


async def check_same(
    temporal: TemporalClient,
    run_id: str,
    name: str,
    order: wire.Request,
    *,
    key: str,
    rpc_timeout: timedelta,
) -> None:
    """Raise `idempotency_conflict` if the update with this id was another one than this order.

    The run's newest history is read, backwards, because the server knows the ids of that only.
    """
    token = b""
    for _ in range(_MOST_PAGES):
        page = await temporal.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=temporal.namespace,
                execution=WorkflowExecution(workflow_id=run_id),
                maximum_page_size=_PAGE,
                next_page_token=token,
            ),
            retry=True,
            timeout=rpc_timeout,
        )
        for event in page.history.events:
            accepted = event.workflow_execution_update_accepted_event_attributes
            if event.event_type != _ACCEPTED or accepted.protocol_instance_id != key:
                continue
            called = accepted.accepted_request.input
            given: list[Any] = await temporal.data_converter.decode(called.args.payloads)
            if called.name == name and given == [order.model_dump(mode="json")]:
                return
            raise other_call(run_id, key)
        token = page.next_page_token
        if not token:
            return


def other_call(run_id: str, key: str) -> Refusal:
    """The refusal of a key that was used for another call."""
    return Refusal(
        Code.IDEMPOTENCY_CONFLICT,
        f"The key {key!r} was used on the run {run_id!r} before, for another call or by somebody else. "
        "Send the same call, or another key.",
    )
