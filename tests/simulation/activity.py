"""An activity on the simulated server: its attempts, timeouts, heartbeats and retries."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import PendingActivityState, RetryState, TimeoutType
from temporalio.api.failure.v1 import (
    ActivityFailureInfo,
    CanceledFailureInfo,
    Failure,
    TimeoutFailureInfo,
)
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.bridge.proto.activity_result import ActivityResolution
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job

if TYPE_CHECKING:
    from tests.simulation.execution import Execution
    from tests.simulation.server import Timer
    from tests.simulation.worker import Worker

_NOT_STARTED: Final = Payloads(
    payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"ACTIVITY_ID_NOT_STARTED"')]
)
"""The details, in clear text, with which Temporal cancels an activity that no worker has."""
_SCHEDULED: Final = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
_STARTED: Final = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
_HEARTBEAT: Final = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
_START_TO_CLOSE: Final = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
_SCHEDULE_TO_CLOSE: Final = TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE


class Activity:
    """One activity of an execution."""

    def __init__(self, execution: Execution, order: Any) -> None:
        self.execution = execution
        self.server = execution.server
        self.order = order
        self.seq: int = order.seq
        self.type: str = order.activity_type
        self.id: str = order.activity_id or str(order.seq)
        self.attempt = 0
        self.state: Literal["scheduled", "started", "backoff", "over"] = "scheduled"
        self.details: list[Payload] = []
        self.is_cancel_requested = False
        self.scheduled_at: datetime = self.server.now()
        self.last_failure: Failure | None = None
        self._described_as = "scheduled"
        self.worker: Worker | None = None
        self.token = b""
        self._timers: list[Timer] = []
        self._heartbeat: Timer | None = None

    def schedule(self) -> None:
        """Schedule the next attempt."""
        self.state = "scheduled"
        self.attempt += 1
        self._bound(
            self.order.schedule_to_close_timeout, _SCHEDULE_TO_CLOSE, since=self.scheduled_at
        )
        self.server.later(self.server.delay(), self._dispatch, self.attempt)

    def _dispatch(self, attempt: int) -> None:
        if self.state != "scheduled" or attempt != self.attempt:
            return
        worker = self.server.worker()
        if worker is None:
            self.server.idle.append(lambda: self._dispatch(attempt))
            return
        self.state, self.worker = "started", worker
        self.token = f"{self.execution.run_id} {self.id} {self.seq} {attempt}".encode()
        self.server.activities[self.token] = self
        self._bound(self.order.start_to_close_timeout, _START_TO_CLOSE, since=self.server.now())
        self.beat(None)
        worker.run(self)

    def _bound(self, timeout: Any, kind: TimeoutType.ValueType, *, since: datetime) -> None:
        if seconds := timeout.ToTimedelta().total_seconds():
            due = since + timedelta(seconds=seconds)
            self._timers.append(self.server.at(due, lambda: self._out_of_time(kind)))

    def beat(self, details: list[Payload] | None) -> None:
        """Take a heartbeat of the worker, and wait for the next one."""
        if details is not None:
            self.details = details
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if silence := self.order.heartbeat_timeout.ToTimedelta():
            due = self.server.now() + silence
            self._heartbeat = self.server.at(due, lambda: self._out_of_time(_HEARTBEAT))

    def _out_of_time(self, kind: TimeoutType.ValueType) -> None:
        self.server.note(f"{self.id} times out ({TimeoutType.Name(kind)})")
        details = Payloads(payloads=self.details)
        info = TimeoutFailureInfo(timeout_type=kind, last_heartbeat_details=details)
        failure = Failure(message="activity timeout", source="Server", timeout_failure_info=info)
        if kind == _SCHEDULE_TO_CLOSE and self.last_failure is not None:
            failure.cause.CopyFrom(self.last_failure)
        self.failed(failure, is_final=kind == _SCHEDULE_TO_CLOSE)

    # How an attempt ends

    def succeeded(self, result: Payload) -> None:
        resolution = ActivityResolution()
        resolution.completed.result.CopyFrom(result)
        self._resolve(resolution)

    def cancelled(self, failure: Failure | None = None) -> None:
        resolution = ActivityResolution()
        canceled = Failure(
            message="activity cancelled",
            canceled_failure_info=CanceledFailureInfo(details=_NOT_STARTED),
        )
        resolution.cancelled.failure.CopyFrom(
            self._wrapped(failure or canceled, RetryState.RETRY_STATE_UNSPECIFIED)
        )
        self._resolve(resolution)

    def failed(self, failure: Failure, *, is_final: bool = False) -> None:
        """Schedule a retry after a failed attempt, or fail the activity if no retry is allowed."""
        self._disarm()
        info = failure.application_failure_info
        policy = self.order.retry_policy
        if is_final:
            state = RetryState.RETRY_STATE_TIMEOUT
        elif self.is_cancel_requested:
            state = RetryState.RETRY_STATE_CANCEL_REQUESTED
        elif failure.HasField("application_failure_info") and info.non_retryable:
            state = RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
        elif policy.maximum_attempts and self.attempt >= policy.maximum_attempts:
            state = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
        else:
            self.last_failure = failure
            self.state = "backoff"
            self.worker = None
            pause = min(
                policy.initial_interval.ToTimedelta().total_seconds() * 2 ** (self.attempt - 1),
                policy.maximum_interval.ToTimedelta().total_seconds() or 100.0,
            )
            if info.HasField("next_retry_delay"):
                pause = info.next_retry_delay.ToTimedelta().total_seconds()
            due = self.server.now() + timedelta(seconds=pause)
            self._timers.append(self.server.at(due, self.schedule))
            return
        resolution = ActivityResolution()
        resolution.failed.failure.CopyFrom(self._wrapped(failure, state))
        self._resolve(resolution)

    def request_cancel(self) -> None:
        """Take the run's request to cancel; a started attempt learns of it at its next heartbeat."""
        self.is_cancel_requested = True
        if self.state in ("scheduled", "backoff"):
            if self.details and self._described_as == "started":
                # Temporal drops the details, and the worker was lost after the run had looked.
                self.server.forgotten.add(self.id)
            self.cancelled()

    def describe(self, pending: PendingActivityInfo) -> None:
        """Fill in what Temporal tells clients of a pending activity."""
        self._described_as = self.state
        pending.activity_id, pending.activity_type.name = self.id, self.type
        pending.attempt = self.attempt + (self.state == "backoff")
        pending.state = _STARTED if self.state == "started" else _SCHEDULED
        pending.heartbeat_details.payloads.extend(self.details)

    def end(self) -> None:
        """Close the activity: its execution no longer waits for it."""
        self._disarm()
        self.state = "over"
        self.execution.activities.pop(self.seq, None)

    def _disarm(self) -> None:
        self.server.activities.pop(self.token, None)
        for timer in (*self._timers, *filter(None, [self._heartbeat])):
            timer.cancel()
        self._timers, self._heartbeat = [], None

    def _wrapped(self, cause: Failure, state: RetryState.ValueType) -> Failure:
        info = ActivityFailureInfo(activity_id=self.id, retry_state=state)
        info.activity_type.name = self.type
        return Failure(message="Activity task failed", cause=cause, activity_failure_info=info)

    def _resolve(self, resolution: ActivityResolution) -> None:
        is_started = self.state == "started"
        self.end()
        job = Job()
        job.resolve_activity.seq = self.seq
        job.resolve_activity.result.CopyFrom(resolution)
        self.execution.arrived([job], 2 if is_started else 1)
