"""What was accepted under a key.

The server gives a known update id its first result, whatever comes with it the second time, so a caller
who repeats a key has to be held against the history.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    PollWorkflowExecutionUpdateRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.core.ledger import Receipt
from abeyance.errors import Code, Refusal
from abeyance.histories.described import decoded

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


async def earlier_receipts(
    temporal: TemporalClient, run_id: str, key: str, rpc_timeout: Any
) -> list[Receipt] | None:
    """What the update `respond` with this id has returned; None if there was none.

    The server knows the updates of the run's newest history only. Raises the refusal
    `idempotency_conflict` if the id is that of another update.
    """
    try:
        answer = await temporal.workflow_service.poll_workflow_execution_update(
            PollWorkflowExecutionUpdateRequest(
                namespace=temporal.namespace,
                update_ref=UpdateRef(
                    workflow_execution=WorkflowExecution(workflow_id=run_id), update_id=key
                ),
                identity=temporal.identity,
            ),
            retry=True,
            timeout=rpc_timeout,
        )
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None
    payloads = answer.outcome.success.payloads
    if not payloads:
        return None
    try:
        return wire.Receipts.model_validate(await decoded(temporal, payloads[0])).receipts
    except ValidationError:
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"The key {key!r} was used for another operation on the run {run_id!r}. Send another key.",
        ) from None


def other_call(run_id: str, key: str) -> Refusal:
    """The refusal of a key that was used for another call."""
    return Refusal(
        Code.IDEMPOTENCY_CONFLICT,
        f"The key {key!r} was used on the run {run_id!r} before, for another call or by somebody else. "
        "Send the same call, or another key.",
    )
