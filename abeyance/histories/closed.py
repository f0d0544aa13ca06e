"""Reading a run without a worker: what Temporal itself knows of one that ended, or that nobody serves.

An ended run left its closing record in its last event; a cancelled one left it in the memo, because
Temporal gives it no result. A run that an operator terminated left nothing, and one whose workers are
away cannot be asked: of these the memo and the status are shown, marked as `degraded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Execution
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    PollWorkflowExecutionUpdateRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.core import edits, ledger
from abeyance.core.canonical import rfc3339
from abeyance.core.events import Responded
from abeyance.core.ledger import Ledger, Settled
from abeyance.errors import Code, FailureCode, Refusal
from abeyance.storage.converter import decode_message
from abeyance.temporal.patience import Again, NotFound

# The SDK's own enumeration lacks the status of a natively paused workflow, and fails on it.
PAUSED_NATIVELY: Final = 8
_BLOCKING: Final = frozenset(
    {
        FailureCode.CODE_MISSING,
        FailureCode.MODEL_UNAVAILABLE,
        FailureCode.TOOLS_UNAVAILABLE,
        FailureCode.PAYLOAD_UNREADABLE,
    }
)
ENDINGS: Final = frozenset({"completed", "failed", "cancelled", "halted"})
"""The statuses of a run that has ended."""
_FIRST_WORDS: Final = {
    Execution.WORKFLOW_EXECUTION_STATUS_TERMINATED: ("cancelled", "terminated through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: ("failed", "timed out in Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_FAILED: ("failed", None),
    Execution.WORKFLOW_EXECUTION_STATUS_CANCELED: ("cancelled", "cancelled through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_COMPLETED: ("completed", None),
}


class Described:
    """What Temporal's server knows of a run."""

    def __init__(
        self, run_id: str, raw: DescribeWorkflowExecutionResponse, memo: Mapping[str, Any]
    ) -> None:
        self.run_id = run_id
        self.memo = memo
        self._info = raw.workflow_execution_info
        self._pending = raw.pending_activities
        self.status: int = self._info.status
        self.execution: str = self._info.execution.run_id

    @property
    def is_running(self) -> bool:
        """Whether the run is open, be it natively paused."""
        return self.status in (Execution.WORKFLOW_EXECUTION_STATUS_RUNNING, PAUSED_NATIVELY)

    @property
    def shown_status(self) -> str:
        """The status that the run has written down last."""
        return str((self.memo.get(wire.MEMO_SUMMARY) or {}).get("status", "running"))

    @property
    def ended_at(self) -> datetime | None:
        """When the run ended, if it did."""
        if self.is_running or not self._info.HasField("close_time"):
            return None
        return self._info.close_time.ToDatetime(tzinfo=UTC)

    @property
    def started_at(self) -> datetime:
        """When the run started."""
        return self._info.start_time.ToDatetime(tzinfo=UTC)

    @property
    def blocked(self) -> list[dict[str, Any]]:
        """The nodes that cannot run now, through no fault of theirs, and that Temporal goes on trying."""
        return [
            {
                "code": why.application_failure_info.type,
                "node": pending.activity_type.name,
                "message": why.message,
                "attempt": pending.attempt,
            }
            for pending in self._pending
            if (why := _own_failure(pending.last_failure)).application_failure_info.type
            in _BLOCKING
        ]

    def degraded_view(self, reason: str | None = None) -> wire.RunView:
        """The run as far as the memo tells."""
        summary = self.memo.get(wire.MEMO_SUMMARY) or {}
        start = self.memo.get(wire.MEMO_START) or {}
        status = self.shown_status
        if not self.is_running:
            status, ended_because = _FIRST_WORDS.get(
                Execution.ValueType(self.status), ("failed", None)
            )
            reason = reason or ended_because
        updated = summary.get("updated_at")
        return wire.RunView(
            run_id=self.run_id,
            graph=start.get("graph", ""),
            graph_version=start.get("graph_version", ""),
            status=status,
            outcome=None if self.is_running else status,
            reason=reason or summary.get("reason") or None,
            paused=bool(summary.get("paused")),
            conversation_id=start.get("conversation_id"),
            session_type=start.get("session_type", "agent"),
            labels=start.get("labels", {}),
            started_by=start.get("started_by"),
            created_at=self.started_at,
            updated_at=self.ended_at
            or (datetime.fromisoformat(updated) if updated else self.started_at),
            ended_at=self.ended_at,
            interrupts=self._interrupts() if self.is_running else [],
            queue_depth=summary.get("queue_depth", 0),
            blocked=[{"code": str(Code.NATIVELY_PAUSED)}]
            if self.status == PAUSED_NATIVELY
            else self.blocked,
            degraded=True,
        )

    def not_running(self) -> Refusal:
        """The refusal of what can be done to a running run only."""
        ended_at = self.ended_at and rfc3339(self.ended_at)
        status = self.ended_as()
        return Refusal(
            Code.NOT_RUNNING,
            f"The run {self.run_id!r} ended at {ended_at} ({status}), so nothing can be done to it.",
            run_status=status,
            ended_at=ended_at,
        )

    def ended_as(self) -> str:
        """The status with which the run ended."""
        status = self.degraded_view().status
        # Halted and cancelled runs are completed ones to Temporal: the memo says which. One that has
        # come to its end as it should wrote nothing more.
        told = self.shown_status
        return told if status == "completed" and told in ENDINGS else status

    def _interrupts(self) -> list[wire.InterruptView]:
        graph = (self.memo.get(wire.MEMO_START) or {}).get("graph", "")
        rows = [
            row
            for key, row in self.memo.items()
            if key.startswith(wire.MEMO_INTERRUPT) and row is not None
        ]
        return [
            wire.InterruptView(
                run_id=self.run_id,
                graph=graph,
                status="open",
                requested_capability=row["capability"],
                **{
                    name: row[name]
                    for name in (
                        "id",
                        "name",
                        "kind",
                        "address",
                        "prompt",
                        "created_at",
                        "deadline",
                        "digest",
                    )
                },
            )
            for row in rows
        ]


async def describe(temporal: TemporalClient, run_id: str, rpc_timeout: Any) -> Described:
    """Ask the server about a run.

    Raises NotFound, or RPCError NOT_FOUND, if there is none, and Again amid a hand-over.
    """
    raw = await temporal.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(
            namespace=temporal.namespace, execution=WorkflowExecution(workflow_id=run_id)
        ),
        retry=True,
        timeout=rpc_timeout,
    )
    if raw.workflow_execution_info.type.name != wire.WORKFLOW:
        # Somebody else's workflow is no run.
        raise NotFound
    if raw.workflow_execution_info.status == Execution.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
        # Its history has ended, and the run has not.
        raise Again(f"the run {run_id!r} is being handed over")
    for pending in raw.pending_activities:
        # A worker with another key may have sealed it, and the run can be shown without it.
        await decode_message(temporal.data_converter, pending.last_failure, forgiving=True)
    fields = raw.workflow_execution_info.memo.fields
    memo = {name: await _decoded(temporal, payload) for name, payload in fields.items()}
    return Described(run_id, raw, memo)


async def closing_record(
    temporal: TemporalClient, described: Described, rpc_timeout: Any
) -> wire.ClosingRecord:
    """What an ended run left behind; for one that left nothing, what the memo tells."""
    event = await _closing_event(temporal, described, rpc_timeout)
    if event is not None and (record := await record_in(temporal, event)) is not None:
        return record
    found = _record(described.memo.get(wire.MEMO_CLOSING), described.ended_at)
    if found is not None:
        return found
    message = None
    if event is not None:
        failure = event.workflow_execution_failed_event_attributes.failure
        await decode_message(temporal.data_converter, failure)
        message = failure.message
    view = described.degraded_view(message or None)
    return wire.ClosingRecord(outcome=view.status, reason=view.reason, view=view)


async def record_in(temporal: TemporalClient, event: HistoryEvent) -> wire.ClosingRecord | None:
    """What an ended run left behind in the event that ended it; None if nothing."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            payloads = event.workflow_execution_completed_event_attributes.result.payloads
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            failure = event.workflow_execution_failed_event_attributes.failure
            payloads = failure.application_failure_info.details.payloads
        case _:
            return None
    if not payloads:
        return None
    ended_at = event.event_time.ToDatetime(tzinfo=UTC)
    return _record(await _decoded(temporal, payloads[0]), ended_at)


def _record(found: Any, ended_at: datetime | None) -> wire.ClosingRecord | None:
    if not isinstance(found, Mapping) or "view" not in found:
        return None
    record = wire.ClosingRecord.model_validate(found)
    view = record.view.model_copy(
        update={
            "values": record.values,
            "result": record.values,
            "ended_at": ended_at or record.view.ended_at,
        }
    )
    return record.model_copy(update={"view": view})


async def earlier_receipts(
    temporal: TemporalClient, run_id: str, key: str, rpc_timeout: Any
) -> list[ledger.Receipt] | None:
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
        return wire.Receipts.model_validate(await _decoded(temporal, payloads[0])).receipts
    except ValidationError:
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"The key {key!r} was used for another operation on the run {run_id!r}. Send another key.",
        ) from None


async def _closing_event(
    temporal: TemporalClient, described: Described, rpc_timeout: Any
) -> HistoryEvent | None:
    response = await temporal.workflow_service.get_workflow_execution_history(
        GetWorkflowExecutionHistoryRequest(
            namespace=temporal.namespace,
            execution=WorkflowExecution(workflow_id=described.run_id, run_id=described.execution),
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        ),
        retry=True,
        timeout=rpc_timeout,
    )
    return next(iter(response.history.events), None)


async def _decoded(temporal: TemporalClient, payload: Payload) -> Any:
    (value,) = await temporal.data_converter.decode([payload])
    return value


def respond_after_the_end(record: wire.ClosingRecord, order: wire.Respond) -> list[ledger.Receipt]:
    """Judge an answer by what an ended run left behind, by the same rules as a running one.

    Only the repeat of an accepted answer gets a receipt; everything else is refused.
    """
    view = record.view
    if order.responses is None and order.interrupt_id is None:
        raise Refusal(
            Code.RUN_FINISHED,
            f"The run {view.run_id!r} has ended ({view.status}) and waits for no answer.",
            run_status=view.status,
            ended_at=view.ended_at and rfc3339(view.ended_at),
        )
    answers = order.responses or {order.interrupt_id or "": order.response}
    book = _book(record)
    event = Responded(
        now=view.ended_at or view.updated_at,
        principal=order.principal,
        answers=answers,
        schema_faults={},
        digests=order.digests,
    )
    try:
        ledger.refuse_strays(event)
        return list(ledger.judge(book, event).values())
    except Refusal as refusal:
        raise _ended(refusal, view) from refusal


def edit_after_the_end(record: wire.ClosingRecord, order: wire.EditDeadline) -> Refusal:
    """The refusal of an edited deadline, by what an ended run left behind: none of it is open."""
    try:
        edits.open_interrupt(_book(record), order.interrupt_id)
    except Refusal as refusal:
        return _ended(refusal, record.view)
    raise AssertionError("an ended run asks nothing")


def _book(record: wire.ClosingRecord) -> Ledger:
    return Ledger(settled={entry.id: _settled(entry) for entry in record.interrupts})


def _ended(refusal: Refusal, view: wire.RunView) -> Refusal:
    ended: dict[str, Any] = {
        "run_status": view.status,
        "ended_at": view.ended_at and rfc3339(view.ended_at),
    }
    return Refusal(refusal.code, refusal.message, **{**ended, **refusal.details})


def _own_failure(failure: Failure) -> Failure:
    # What is too large for the server, it cuts, and wraps in a failure of its own.
    is_wrapped = failure.HasField("server_failure_info") and failure.HasField("cause")
    return failure.cause if is_wrapped else failure


def _settled(entry: wire.InterruptView) -> Settled:
    return Settled(
        id=entry.id,
        name=entry.name,
        kind=entry.kind,  # type: ignore[arg-type]
        address=entry.address,
        prompt=entry.prompt,
        requested_capability=entry.requested_capability,
        created_at=entry.created_at,
        deadline=entry.deadline,
        status=entry.status,  # type: ignore[arg-type]
        settled_at=entry.settled_at or entry.created_at,
        by=entry.answered_by,
        reason=entry.settled_reason,
        answer_sha256=entry.answer_sha256,
        answer=entry.answer,
    )
