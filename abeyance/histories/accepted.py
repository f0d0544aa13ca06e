"""What was accepted under a key.

The server gives a known update id its first result, whatever comes with it the second time, so a caller
who repeats a key has to be held against the history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from pydantic import ValidationError
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryReverseRequest,
    PollWorkflowExecutionUpdateRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.core.ledger import Receipt
from abeyance.errors import Code, Refusal
from abeyance.histories.described import decoded
from abeyance.storage.converter import of_run

_ACCEPTED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
_COMPLETED: Final = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED
_PAGE: Final = 200
_MOST_PAGES: Final = 40
"""Together more events than a history gets before the run is handed over."""
_MOST_HISTORIES: Final = 5
"""How many histories before the newest are looked at: a repeat comes soon, or not at all."""


@dataclass(slots=True, kw_only=True)
class Accepted:
    """An update that was accepted: its name, what it was given, and what it has returned."""

    name: str
    given: list[Any] = field(default_factory=list)
    result: Any = None


async def accepted_before(
    temporal: TemporalClient, run_id: str, key: str, rpc_timeout: timedelta
) -> Accepted | None:
    """The update with this id in the histories of the run before the newest; None if there was none.

    Those of the newest the server knows itself. Raises RPCError NOT_FOUND for an unknown run.
    """
    converter = of_run(temporal.data_converter, run_id)
    events, _ = await _page(temporal, run_id, "", b"", 1, rpc_timeout)
    execution = _before(events)
    for _ in range(_MOST_HISTORIES):
        if not execution:
            break
        found: Accepted | None = None
        before, token = "", b""
        while True:
            try:
                events, token = await _page(temporal, run_id, execution, token, _PAGE, rpc_timeout)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                # It is no longer kept, and neither are those before.
                return found
            before = before or _before(events)
            for event in events:
                found = await _read(converter, event, key, found)
            if not token:
                break
        if found is not None:
            return found
        execution = before
    return None


async def _page(  # noqa: PLR0917 where in which history
    temporal: TemporalClient,
    run_id: str,
    execution: str,
    token: bytes,
    size: int,
    rpc_timeout: timedelta,
) -> tuple[list[HistoryEvent], bytes]:
    page = await temporal.workflow_service.get_workflow_execution_history(
        GetWorkflowExecutionHistoryRequest(
            namespace=temporal.namespace,
            execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
            maximum_page_size=size,
            next_page_token=token,
        ),
        retry=True,
        timeout=rpc_timeout,
    )
    return list(page.history.events), page.next_page_token


def _before(events: Iterable[HistoryEvent]) -> str:
    """The execution that the history goes on from, of which these are the first events; "" if none."""
    for event in events:
        return event.workflow_execution_started_event_attributes.continued_execution_run_id
    return ""


async def _read(
    converter: DataConverter, event: HistoryEvent, key: str, found: Accepted | None
) -> Accepted | None:
    """What is known of the update with this id after one more event."""
    accepted = event.workflow_execution_update_accepted_event_attributes
    if event.event_type == _ACCEPTED and accepted.protocol_instance_id == key:
        called = accepted.accepted_request.input
        given = await converter.decode(called.args.payloads)
        return Accepted(name=called.name, given=list(given))
    completed = event.workflow_execution_update_completed_event_attributes
    if event.event_type == _COMPLETED and completed.meta.update_id == key and found is not None:
        results = await converter.decode(completed.outcome.success.payloads)
        found.result = next(iter(results), None)
    return found


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
            given: list[Any] = await of_run(temporal.data_converter, run_id).decode(
                called.args.payloads
            )
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
        found = await decoded(of_run(temporal.data_converter, run_id), payloads[0])
        return wire.Receipts.model_validate(found).receipts
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
