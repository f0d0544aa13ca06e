"""What Temporal's server knows of a run by itself: its status, its memo, and what keeps it waiting.

Nobody else is asked, so this is there for a run that has ended, and for one that no worker serves: it is
then shown as far as its memo tells, marked as `degraded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Execution
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance import wire
from abeyance.core.canonical import rfc3339
from abeyance.errors import Code, FailureCode, Refusal
from abeyance.storage.converter import decode_message, of_run
from abeyance.temporal.patience import Again, NotFound

PAUSED_NATIVELY: Final = 8
"""A workflow that an operator has paused. The SDK's own enumeration lacks it, and fails on it."""
_BLOCKING: Final = frozenset(
    {
        FailureCode.CODE_MISSING,
        FailureCode.MODEL_UNAVAILABLE,
        FailureCode.TOOLS_UNAVAILABLE,
        FailureCode.PAYLOAD_UNREADABLE,
        FailureCode.UNDECLARED_CAPABILITY,
    }
)
ENDINGS: Final = frozenset({"completed", "failed", "cancelled", "halted"})
"""The statuses of a run that has ended."""
_ENDED_AS: Final = {
    Execution.WORKFLOW_EXECUTION_STATUS_TERMINATED: ("cancelled", "terminated through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: ("failed", "timed out in Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_FAILED: ("failed", None),
    Execution.WORKFLOW_EXECUTION_STATUS_CANCELED: ("cancelled", "cancelled through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_COMPLETED: ("completed", None),
}
"""What Temporal's statuses say of how a run ended, and why."""


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
        self.first_execution: str = self._info.first_run_id

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
            status, ended_because = _ENDED_AS.get(
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
            guarded_by=start.get("guarded_by", []),
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
    converter = of_run(temporal.data_converter, run_id)
    for pending in raw.pending_activities:
        # A worker with another key may have sealed it, and the run can be shown without it.
        await decode_message(converter, pending.last_failure, forgiving=True)
    fields = raw.workflow_execution_info.memo.fields
    memo = {name: await decoded(converter, payload) for name, payload in fields.items()}
    return Described(run_id, raw, memo)


async def decoded(converter: DataConverter, payload: Payload) -> Any:
    """The value that a payload holds."""
    (value,) = await converter.decode([payload])
    return value


def _own_failure(failure: Failure) -> Failure:
    # What is too large for the server, it cuts, and wraps in a failure of its own.
    is_wrapped = failure.HasField("server_failure_info") and failure.HasField("cause")
    return failure.cause if is_wrapped else failure
