"""Description of a run by Temporal alone: its status, its memo, and its pending activities.

A run that no worker has had yet is shown by its memo, and marked `degraded`. If this process cannot read
the memo, because it lacks the key or the storage, the workflow type is used, which is never encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Execution
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter

from abeyance import names, views
from abeyance.core.address import Address
from abeyance.core.state import Status
from abeyance.errors import BlockedCode, Code, Refusal, Unreadable
from abeyance.history.after_the_end import not_running
from abeyance.storage.converter import UNREADABLE, decode_message, of_run, storage_code
from abeyance.temporal.retry import NotFound, RetryableError
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY

_BLOCKING: Final = frozenset(BlockedCode)
_STARTED: Final = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
ENDINGS: Final = frozenset({"completed", "failed", "cancelled", "halted", *views.ENDED_OUTSIDE})
"""The statuses of a run that has ended."""
_ENDED_AS: Final = {
    Execution.WORKFLOW_EXECUTION_STATUS_TERMINATED: ("terminated", "terminated through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: ("timed-out", "timed out in Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_FAILED: ("failed", None),
    Execution.WORKFLOW_EXECUTION_STATUS_CANCELED: ("cancelled", "cancelled through Temporal"),
    Execution.WORKFLOW_EXECUTION_STATUS_COMPLETED: ("completed", None),
}
"""The run's status and reason by Temporal's status."""
_MEMO: Final[Mapping[str, type]] = {names.MEMO_START: Mapping, names.MEMO_UNREAD: int}
"""The entries that a run writes into its memo, by key."""
_SHOWN: Final = 300
RPC: Final = timedelta(seconds=5)
"""How long one call over the network may take."""
_TRIED: Final = 3
"""So often a workflow task may time out because its worker was killed."""


def is_visit(activity: str, address: Any) -> bool:
    """Return whether an activity of this name and summary runs a node's code.

    Other activities decide a node's routes, for example.
    """
    try:
        place = Address.parse(str(address))
    except ValueError:
        return False
    return place.segments[-1].type in {"node", "tool"} and activity == place.label


def is_run(started: WorkflowExecutionInfo | WorkflowExecutionStartedEventAttributes) -> bool:
    """Return whether a workflow was started as a run. Its type may be any name, as that of a graph."""
    return names.STATUS in started.search_attributes.indexed_fields


class NotOurs(NotFound):
    """The id is that of another workflow, or of a run of another deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a run stands: its status, and how many messages are unread, of how many there may be."""

    status: str
    queue_depth: int
    max_queue_size: int = 0


class RunDescription:
    """The description of a run. `unread` is why parts of the memo are unreadable, by key."""

    def __init__(
        self,
        run_id: str,
        raw: DescribeWorkflowExecutionResponse,
        memo: Mapping[str, Any],
        unread: Mapping[str, Unreadable],
    ) -> None:
        self.info = raw.workflow_execution_info
        self._pending = raw.pending_activities
        self._has_task = raw.HasField("pending_workflow_task")
        self._task = raw.pending_workflow_task
        self._unread = unread
        self.run_id = run_id
        self.status: int = self.info.status
        self.execution: str = self.info.execution.run_id
        self.first: str = self.info.first_run_id
        self.memo = memo

    @property
    def unreadable(self) -> Unreadable | None:
        """Why this process cannot read the run's memo; None if it can."""
        for name, why in self._unread.items():
            if name != names.MEMO_UNRECORDED:
                return why
        return None

    @property
    def is_running(self) -> bool:
        """Whether the run is open, also if it is natively paused."""
        return self.status in (Execution.WORKFLOW_EXECUTION_STATUS_RUNNING, PAUSED_NATIVELY)

    @property
    def is_retried(self) -> bool:
        """Whether a workflow task of the run was tried before; in a list, whether it was tried often."""
        return self.is_running and (self._task.attempt > 1 or self._has_problems)

    @property
    def task(self) -> tuple[datetime, bool] | None:
        """When the workflow task that is under way was scheduled, and whether a worker has begun it."""
        if not self._has_task:
            return None
        is_begun = self._task.HasField("started_time")
        return self._task.original_scheduled_time.ToDatetime(tzinfo=UTC), is_begun

    @property
    def is_being_recorded(self) -> bool:
        """Whether the run's last batch is still waiting for the database.

        An ended run has left its last batch, and Temporal shows its last activity forever.
        """
        return self.is_running and any(
            pending.activity_type.name == names.RECORD_ACTIVITY for pending in self._pending
        )

    @property
    def is_retried_often(self) -> bool:
        """Whether a workflow task was tried so often that no worker seems to complete it."""
        return self._task.attempt > _TRIED or self._has_problems

    @property
    def _has_problems(self) -> bool:
        return names.REPORTED_PROBLEMS in self.info.search_attributes.indexed_fields

    @property
    def origin(self) -> str | None:
        """The first execution of the run, before all retries; None if it is unreadable."""
        if self.unreadable is not None:
            return None
        return str(self.start.get("origin") or self.first)

    @property
    def start(self) -> Mapping[str, Any]:
        """The part of the memo that only a migration changes; the graph alone if it cannot be read."""
        if names.MEMO_START in self._unread:
            return {"graph": self.info.type.name}
        return self.memo.get(names.MEMO_START) or {}

    @property
    def queue_depth(self) -> int:
        """How many messages are unread, as far as the memo can be read; an ended run reads none."""
        return self.memo.get(names.MEMO_UNREAD, 0) if self.is_running else 0

    @property
    def standing(self) -> Standing:
        """How the run stands now; one that has ended reads no messages."""
        return Standing(
            status=self.shown_status,
            queue_depth=self.queue_depth,
            max_queue_size=self.start.get("max_queue_size", 0),
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the run; none if they are unreadable."""
        return self.start.get("labels") or {}

    @property
    def ended_at(self) -> datetime | None:
        """When the run ended, if it did."""
        if self.is_running or not self.info.HasField("close_time"):
            return None
        return self.info.close_time.ToDatetime(tzinfo=UTC)

    @property
    def started_at(self) -> datetime:
        """When the run started or, if it has continued as new or was retried, its latest history."""
        return self.info.start_time.ToDatetime(tzinfo=UTC)

    @property
    def created_at(self) -> datetime:
        """When the run started, as far as its memo can be read."""
        created = self.start.get("created_at")
        return self.started_at if created is None else datetime.fromisoformat(created)

    def _blocked(self, recorded: Sequence[views.BlockedView]) -> list[views.BlockedView]:
        """The blocked visits: those that the run has `recorded`, with the latest attempts by Temporal.

        A visit whose worker could not tell the run is known to Temporal alone, between its attempts.
        """
        by_address = {each.address: each for each in recorded}
        for pending in self._pending:
            why = blocking_failure(pending)
            if pending.paused:
                reason = pending.pause_info.manual.reason
                why_paused = f" ({reason})" if reason else ""
                code = str(Code.NATIVELY_PAUSED)
                message = (
                    f"the visit is paused through Temporal itself{why_paused}: unpause it there"
                )
            elif why is not None:
                code, message = why.application_failure_info.type, why.message
            else:
                continue
            address, node = pending.activity_id, pending.activity_type.name
            if is_visit(node, address):
                node = Address.parse(address).label
            if address not in by_address and pending.state == _STARTED:
                # Its code runs again. The run knows that nothing blocks it, or could not hear of it.
                continue
            known = by_address.get(
                address, views.BlockedView(code=code, node=node, address=address)
            )
            latest = {"code": code, "message": message, "attempt": pending.attempt}
            by_address[address] = known.model_copy(update=latest)
        return [*by_address.values()]

    def with_what_blocks(self, recorded: views.RunView) -> views.RunView:
        """An open run as it was recorded last, with what blocks it now as far as Temporal knows."""
        reason = "paused through Temporal" if self.status == PAUSED_NATIVELY else recorded.reason
        blocked = [*self._blocking(recorded.blocked)]
        changes = {"reason": reason, "blocked": blocked, "degraded": self.unreadable is not None}
        return recorded.model_copy(update=changes)

    def unrecorded(self) -> Any:
        """The batch that a run cancelled through Temporal could not record. Raises Unreadable."""
        if names.MEMO_UNRECORDED in self._unread:
            raise self._unread[names.MEMO_UNRECORDED]
        left = self.memo.get(names.MEMO_UNRECORDED)
        return left if isinstance(left, Mapping) else None

    def degraded_view(self, reason: str | None = None) -> views.RunView:
        """The view of the run by its memo."""
        start, status = self.start, self.shown_status
        if not self.is_running:
            reason = reason or self._ended_as[1]
        return views.RunView(
            run_id=self.run_id,
            graph=start.get("graph", ""),
            graph_version=start.get("graph_version", ""),
            status=status,
            outcome=None if self.is_running else status,
            reason=reason,
            paused=status == Status.PAUSED,
            conversation_id=start.get("conversation_id"),
            session_type=start.get("session_type", "agent"),
            labels=dict(self.labels),
            started_by=start.get("started_by"),
            sent_by=start.get("sent_by"),
            created_at=self.created_at,
            updated_at=self.ended_at or self.started_at,
            ended_at=self.ended_at,
            queue_depth=self.queue_depth,
            guarded_by=start.get("guarded_by", []),
            blocked=[*self._blocking()],
            degraded=True,
        )

    def _blocking(self, recorded: Sequence[views.BlockedView] = ()) -> Iterator[views.BlockedView]:
        if (unreadable := self.unreadable) is not None:
            yield views.BlockedView(code=unreadable.code, message=str(unreadable))
        if self.status == PAUSED_NATIVELY:
            message = "the run is paused through Temporal itself: unpause it there"
            yield views.BlockedView(code=Code.NATIVELY_PAUSED, message=message)
        elif self.is_running:
            # Obstacles to the run's workers are looked up anew.
            yield from self._blocked([each for each in recorded if each.address is not None])

    def not_running(self) -> Refusal:
        """The refusal of a call that needs a running run."""
        return not_running(self.run_id, self.shown_status, self.ended_at)

    @property
    def shown_status(self) -> str:
        """The status with which the run ended; of an open one that in its search attribute."""
        own = str(json.loads(self.info.search_attributes.indexed_fields[names.STATUS].data))
        if self.is_running:
            return own
        # To Temporal halted and cancelled runs are completed.
        status = self._ended_as[0]
        return own if status == "completed" and own in ENDINGS else status

    @property
    def _ended_as(self) -> tuple[str, str | None]:
        return _ENDED_AS.get(Execution.ValueType(self.status), ("failed", None))


class RunEnded(Exception):
    """The run had ended when a call reached it."""

    def __init__(self, described: RunDescription) -> None:
        self.described = described
        super().__init__(described.run_id)


async def describe(temporal: TemporalClient, task_queue: str, run_id: str) -> RunDescription:
    """Describe a run of a task queue.

    Raises NotOurs, or RPCError NOT_FOUND, if there is none, and RetryableError during continue-as-new.
    """
    raw = await described_by_server(temporal, run_id, retry=True)
    info = raw.workflow_execution_info
    if not is_run(info) or info.task_queue != task_queue:
        raise NotOurs
    if info.status == Execution.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
        # Its history has ended, and the run has not.
        raise RetryableError(f"the run {run_id!r} is being continued as new")
    converter = of_run(temporal.data_converter, run_id)
    for pending in raw.pending_activities:
        # A worker with another key may have encrypted it; the view does without.
        await decode_message(converter, pending.last_failure)
    return await read(temporal, raw)


async def described_by_server(
    temporal: TemporalClient,
    workflow_id: str,
    execution: str = "",
    *,
    retry: bool = False,
) -> DescribeWorkflowExecutionResponse:
    """Describe any workflow: an execution of it, or the newest. Raises RPCError."""
    request = DescribeWorkflowExecutionRequest(
        namespace=temporal.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id, run_id=execution),
    )
    service = temporal.workflow_service
    return await service.describe_workflow_execution(request, retry=retry, timeout=RPC)


async def read(
    temporal: TemporalClient,
    raw: DescribeWorkflowExecutionResponse,
    *,
    beside: frozenset[str] = frozenset(),
) -> RunDescription:
    """Decode the description of a run, with its readable memo less the keys of `beside`."""
    info = raw.workflow_execution_info
    run_id = info.execution.workflow_id
    converter = of_run(temporal.data_converter, run_id)
    memo: dict[str, Any] = {}
    unread: dict[str, Unreadable] = {}
    for name, payload in info.memo.fields.items():
        if name in beside:
            continue
        try:
            memo[name] = await decoded(converter, payload)
        except Unreadable as error:
            unread[name] = error
            continue
        if not isinstance(memo[name], _MEMO.get(name, object)):
            unread[name] = Unreadable(
                f"{memo.pop(name)!r} is not a value that a run writes under {name!r}"[:_SHOWN]
            )
    return RunDescription(run_id, raw, memo, unread)


async def decoded(converter: DataConverter, payload: Payload) -> Any:
    """The value that a payload holds. Raises Unreadable."""
    try:
        (value,) = await converter.decode([payload])
    except UNREADABLE as error:
        raise Unreadable(str(error), code=storage_code(error)) from error
    return value


def blocking_failure(pending: PendingActivityInfo) -> Failure | None:
    """The failure that blocks the visit of an activity; None if its last one does not.

    Temporal (server 1.32 at least) keeps the failure of the last attempt alone, and gives a timeout no
    cause: once an attempt was lost with its worker, only the run may know what blocked the attempts
    before.
    """
    failure = pending.last_failure
    # The server truncates a failure that is too large, and wraps it in one of its own.
    is_wrapped = failure.HasField("server_failure_info") and failure.HasField("cause")
    own = failure.cause if is_wrapped else failure
    return own if own.application_failure_info.type in _BLOCKING else None


def is_lost(pending: PendingActivityInfo) -> bool:
    """Return True if the last attempt at an activity was lost with its worker."""
    return pending.last_failure.HasField("timeout_failure_info")
