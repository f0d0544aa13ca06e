"""Retries that a starting worker asks for at once: it may have what earlier workers lacked.

Blocked work waits for a retry by Temporal: the activity of a visit for up to a minute, a workflow task
whose worker could not read the run for up to ten. This module finds both in the descriptions of the open
runs that are recorded as at work or blocked, and makes them due. If Temporal cannot make an activity due,
this module tells the run, which starts its blocked visits again itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
    PauseActivityRequest,
    SignalWorkflowExecutionRequest,
    UnpauseActivityRequest,
)
from temporalio.service import RPCError

from abeyance import wire
from abeyance.client.listing import FAILING, Listing
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.errors import AbeyanceError, BlockedCode, Refusal
from abeyance.history.description import (
    RPC,
    RunEnded,
    blocking_failure,
    described_by_server,
    is_lost,
    read,
)
from abeyance.history.hindrance import hindrance
from abeyance.records import runs
from abeyance.storage.converter import of_run
from abeyance.util import gather_limited

_AT_ONCE: Final = 4
_SOON: Final = timedelta(seconds=1)
PAUSED_TO_WAKE: Final = (
    "the worker that was about to retry it was killed; the next one that starts retries it"
)
"""The reason of a pause by which the next worker finds an activity that was not resumed."""
_MAX_BUFFERED: Final = 100
"""How many events Temporal holds back while a workflow task is under way (the default of
`history.maximumBufferedEventsBatch`). With one more it fails the task, and schedules another.
"""


class Waking:
    """The work that waits for a retry, in the runs of one deployment."""

    def __init__(
        self,
        line: WorkflowRpc,
        listing: Listing,
        records: Records,
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        """`tell` tells a run that a worker has started."""
        self._tell = tell
        self._line = line
        self._records = records
        self._listing = listing
        self._namespace = line.temporal.namespace
        self._service = line.temporal.workflow_service

    async def wake(self) -> None:
        """Make all work that waits for a retry due now. Raises AbeyanceError."""
        # Only a run at work has activities. A run that waits may have a workflow task that fails.
        found = dict(await self._records.read(runs.at_work))
        # Temporal before 1.30 has no such attribute.
        with suppress(AbeyanceError, RPCError):
            for row in await self._listing.all(FAILING):
                found.setdefault(row.execution.workflow_id, False)
        await gather_limited(
            found, lambda id_: self._wake_workflow(id_, is_blocked=found[id_]), at_once=_AT_ONCE
        )

    async def _wake_workflow(self, workflow_id: str, *, is_blocked: bool) -> None:
        # The run may end meanwhile.
        with suppress(RunEnded, Refusal, RPCError):
            raw = await described_by_server(self._line.temporal, workflow_id, retry=True)
            description = await read(self._line.temporal, raw)
            if not description.is_running or description.unreadable is not None:
                return
            why = await hindrance(self._line.temporal, description) if _is_retried(raw) else None
            # If no worker can replay the run, signals would only fill the history. If no worker has given
            # a reason, because the first task was lost with its worker, the new task gives one.
            if why and not (why.is_said and why.shown.code == BlockedCode.CANNOT_REPLAY):
                await self._retry_workflow_task(raw)
            retried = [await self._retry_activity(raw, each) for each in raw.pending_activities]
            # The run would first stop the visits that it starts again, so leave out those made due
            # already.
            if is_blocked and not any(retried):
                await self._tell(workflow_id)

    async def _retry_workflow_task(self, raw: DescribeWorkflowExecutionResponse) -> None:
        """Ask the server to fail the attempt that no worker will answer, and to schedule the next.

        The worker that had it does not report its failure, and Temporal waits until it times out.
        """
        info = raw.workflow_execution_info
        converter = of_run(self._line.temporal.data_converter, info.execution.workflow_id)
        # Only a run has a handler for this signal.
        order = wire.WorkerStarted()
        for number in range(_MAX_BUFFERED + 1):
            stamped = self._line.stamped("worker_started", order, info.first_run_id)
            attempt = f"{raw.pending_workflow_task.attempt}-{info.history_length}"
            request = SignalWorkflowExecutionRequest(
                namespace=self._namespace,
                workflow_execution=info.execution,
                signal_name="worker_started",
                input=Payloads(payloads=await converter.encode([stamped])),
                # If several workers start at once, Temporal takes each signal only once.
                request_id=f"abeyance-wake-{attempt}-{number}",
            )
            await self._service.signal_workflow_execution(request, retry=True, timeout=RPC)

    async def _retry_activity(
        self, raw: DescribeWorkflowExecutionResponse, pending: PendingActivityInfo
    ) -> bool:
        """Make the activity of a blocked visit due, also if it may be blocked because its last attempt
        was lost with a worker. Its attempts and heartbeat stay. Return whether Temporal tries it at once.

        The run, when it starts a visit again, ends the activity. Here that would lose the journal of a
        visit that a worker could not read, and end the only attempt of code that may not be repeated.
        """
        is_left = pending.pause_info.manual.reason == PAUSED_TO_WAKE
        is_waiting = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
        if not is_left and not (is_waiting and (blocking_failure(pending) or is_lost(pending))):
            return False
        soon = datetime.now(UTC) + _SOON
        if not is_left and pending.next_attempt_schedule_time.ToDatetime(UTC) <= soon:
            # A worker may begin it at any moment, and a pause would end that attempt.
            return True
        namespace, execution = self._namespace, raw.workflow_execution_info.execution
        pause = PauseActivityRequest(
            namespace=namespace,
            execution=execution,
            id=pending.activity_id,
            reason=PAUSED_TO_WAKE,
        )
        resume = UnpauseActivityRequest(
            namespace=namespace, execution=execution, id=pending.activity_id
        )
        try:
            if not is_left:
                await self._service.pause_activity(pause, timeout=RPC)
            await self._service.unpause_activity(resume, retry=True, timeout=RPC)
        except RPCError:
            # The activity has ended meanwhile, or the server lacks the calls or denies them.
            return False
        return True


def _is_retried(raw: DescribeWorkflowExecutionResponse) -> bool:
    task = raw.pending_workflow_task
    is_started = task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED
    return is_started and task.attempt > 1
