"""A workflow execution on the simulated server: history, workflow tasks, updates and timers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.enums.v1 import WorkflowExecutionStatus as Status
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.update.v1 import Outcome
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.bridge.proto.workflow_commands import WorkflowCommand as Command

from tests.simulation.activity import Activity
from tests.simulation.history import (
    ACCEPTED,
    ANSWERED,
    BEGUN,
    COMPLETED,
    ENDS,
    FAILED,
    MARKER,
    OTHER,
    SCHEDULED,
    STARTED,
    TERMINATED,
    Logged,
    as_replayed,
    told,
)
from tests.simulation.tasks import Attempt, Done, Update

if TYPE_CHECKING:
    from tests.simulation.server import Server, Timer
    from tests.simulation.worker import Worker

TASK_TIMEOUT: Final = 10.0
_STICKY: Final = 1.0
_CLOSING: Final = {
    "complete_workflow_execution": Status.WORKFLOW_EXECUTION_STATUS_COMPLETED,
    "fail_workflow_execution": Status.WORKFLOW_EXECUTION_STATUS_FAILED,
    "cancel_workflow_execution": Status.WORKFLOW_EXECUTION_STATUS_CANCELED,
    "continue_as_new_workflow_execution": Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW,
}
_EVENTS: Final = {
    "schedule_local_activity": 0,
    "request_cancel_local_activity": 0,
    "update_response": 0,
    "set_patch_marker": 2,
}
"""How many events a command writes, if not one."""


class Execution:
    """One workflow execution: its history, and the activities, timers and updates that it waits for."""

    def __init__(
        self,
        server: Server,
        *,
        workflow_id: str,
        type: str,
        queue: str,
        input: Iterable[Payload],
        memo: dict[str, Payload],
        attributes: dict[str, Payload],
        request_id: str = "",
        before: Execution | None = None,
        is_anew: bool = False,
    ) -> None:
        self.server = server
        self.workflow_id, self.type, self.queue = workflow_id, type, queue
        self.number = server.number()
        # All ids have the same length: a replay may send the id of another execution.
        self.run_id = f"execution-{self.number:04}"
        self.seed = self.number
        self.first: str = self.run_id if before is None or is_anew else before.first
        self.before = before
        self.base: Execution | None = None
        """The execution that a reset copied: both histories have the same beginning."""
        self.request_id = request_id
        self.input = [*input]
        self.memo, self.attributes = memo, attributes
        self.memo_at_start, self.attributes_at_start = dict(memo), dict(attributes)
        self.started_at = self._task_began = server.now()
        self.closed_at: datetime | None = None
        self.status = Status.WORKFLOW_EXECUTION_STATUS_RUNNING
        self.result: Payloads = Payloads()
        self.failure: Failure | None = None
        self.done: list[Done] = []
        self.log = [Logged(BEGUN, self.started_at)]
        self.size = 500
        self.updates: dict[str, Update] = {}
        self.signals: dict[str, Job] = {}
        self.activities: dict[int, Activity] = {}
        self.visits: dict[int, str] = {}
        self.left: list[Activity] = []
        """The activities that were pending when the execution ended."""
        self.timers: dict[int, Timer] = {}
        self.attempt: Attempt | None = None
        self.sticky: Worker | None = None
        self._inbox: list[Job] = []
        self._coming: list[Logged] = []
        self._is_begun = False
        self._failures = 0

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def is_terminated(self) -> bool:
        return self.status == Status.WORKFLOW_EXECUTION_STATUS_TERMINATED

    @property
    def length(self) -> int:
        return len(self.log)

    @property
    def flags(self) -> frozenset[int]:
        """The flags that the SDK recorded in this history, so that a replay behaves the same."""
        return self.done[-1].flags if self.done else frozenset()

    @property
    def hears_of_activity(self) -> bool:
        """Whether the next workflow task brings the result of an activity."""
        return any(job.HasField("resolve_activity") for job in self._inbox)

    def tail(self) -> list[Logged]:
        """Return the events, not yet logged, of new arrivals and of the current workflow task."""
        attempt, now = self.attempt, self.server.now()
        if attempt is None or not self._is_written(attempt):
            return [] if attempt is not None and attempt.is_started else [*self._coming]
        if attempt.is_started:
            return [Logged(SCHEDULED, now), Logged(STARTED, now)]
        return [*self._coming[:1], Logged(SCHEDULED, now), *self._coming[1:]]

    def _is_written(self, attempt: Attempt) -> bool:
        """Return whether an open task has events: no retry has, nor a task that has only updates."""
        jobs = attempt.jobs if attempt.is_started else self._inbox
        return not self._failures and bool(jobs or not self._is_begun)

    def _write(self, *types: EventType.ValueType) -> None:
        now = self.server.now()
        self.log += [Logged(each, now) for each in types]

    def _mark(self, attempt: Attempt) -> None:
        """Write the markers of the local activities that a task resolved."""
        types = {
            c.schedule_local_activity.seq: c.schedule_local_activity.activity_type
            for c in attempt.commands
            if c.HasField("schedule_local_activity")
        }
        for job in (job for step in attempt.steps for job in step):
            if job.resolve_activity.is_local:
                about = types[job.resolve_activity.seq]
                self.log.append(Logged(MARKER, self.server.now(), about=about))

    def arrived(self, jobs: list[Job], events: int = 1) -> None:
        """Take jobs for the workflow, and schedule a workflow task."""
        if not self.is_open:
            return
        now = self.server.now()
        self._inbox += jobs
        self._coming += [Logged(OTHER, now)] * (events - len(jobs))
        self._coming += [told(job, now) for job in jobs]
        self._needs_task()

    def updated(self, update: Update) -> None:
        self.updates[update.id] = update
        self._needs_task()

    def _needs_task(self) -> None:
        if self.attempt is None and self.is_open:
            self.attempt = Attempt(number=self._failures + 1)
            self.server.later(self.server.delay(), self._dispatch, self.attempt)

    def _dispatch(self, attempt: Attempt, *, is_moved: bool = False) -> None:
        if attempt is not self.attempt or attempt.is_started:
            return
        server, worker = self.server, self.sticky
        if worker is None or is_moved or not worker.is_up:
            if worker is not None and not is_moved:
                server.loop.call_later(_STICKY, lambda: self._dispatch(attempt, is_moved=True))
                return
            worker = server.worker()
        if worker is None:
            server.idle.append(lambda: self._dispatch(attempt, is_moved=True))
            return
        attempt.jobs, self._inbox = self._inbox, []
        attempt.updates = [each for each in self.updates.values() if _is_waiting(each)]
        if self._is_begun and not attempt.jobs and not attempt.updates:
            self.attempt = None
            return
        for update in attempt.updates:
            update.attempt = attempt
        attempt.is_started, attempt.worker = True, worker
        attempt.time = self._task_began = self._time_of_task()
        self.log += self._coming
        self._coming = []
        attempt.length = self.length + 2
        server.later(TASK_TIMEOUT, self._time_is_up, attempt)
        server.later(server.delay(), worker.work, self, attempt)

    def _time_of_task(self) -> datetime:
        """Return the time of a task. On a real server no two tasks begin at the same time."""
        now = self.server.now()
        if timedelta() <= self._task_began - now < timedelta(milliseconds=1):
            return self._task_began + timedelta(microseconds=1)
        return now

    def _time_is_up(self, attempt: Attempt) -> None:
        if attempt is self.attempt:
            self.server.note(f"the workflow task {attempt.number} times out")
            self.failed(attempt)

    def failed(self, attempt: Attempt) -> None:
        """Discard a failed attempt at a workflow task; the next attempt gets its jobs again."""
        if attempt is not self.attempt:
            return
        if self._is_written(attempt):
            self._write(SCHEDULED, STARTED, FAILED)
        self._failures += 1
        self._inbox = [*attempt.jobs, *self._inbox]
        for update in attempt.updates:
            update.attempt = None
            if not self.server.is_calm and self.server.chance.happens(0.3):
                self._forget(update)
        self.attempt = None
        self._needs_task()

    def _forget(self, update: Update) -> None:
        """Lose an update that no task has finished, as a server does when another process takes over."""
        if not update.is_accepted and not update.settled.is_set():
            self.server.note(f"the update {update.job.do_update.name} is lost")
            del self.updates[update.id]
            update.aborted = "closing"
            update.settled.set()

    def completed(self, attempt: Attempt) -> bool:
        """Complete a workflow task. Return whether the server accepts the completion."""
        if attempt is not self.attempt or not self.is_open:
            return False
        kinds = [each.WhichOneof("variant") for each in attempt.commands]
        responses = [c.update_response for c in attempt.commands if c.HasField("update_response")]
        accepted = {each.protocol_instance_id for each in responses if each.HasField("accepted")}
        accepted |= {each.id for each in self.updates.values() if each.is_accepted}
        # An accepted update may still fail, and its failure is a response too.
        rejections = [
            each.HasField("update_response")
            and each.update_response.HasField("rejected")
            and each.update_response.protocol_instance_id not in accepted
            for each in attempt.commands
        ]
        if self._is_begun and not attempt.jobs and all(rejections):
            # A task that only rejects updates leaves no trace in the history.
            self._settle(attempt)
            self.attempt = None
            self._next()
            return True
        if self._inbox and any(kind in _CLOSING for kind in kinds):
            self.server.note("the end is put off, because something has come meanwhile")
            self.failed(attempt)
            return False
        self._is_begun, self._failures = True, 0
        self._write(SCHEDULED, STARTED, COMPLETED)
        completed = self.length
        self._mark(attempt)
        self.size += sum(each.ByteSize() for each in (*attempt.jobs, *attempt.commands)) + 100
        assert attempt.time is not None
        for step in attempt.steps:
            for job in step:
                if job.HasField("do_update"):
                    job.do_update.run_validator = False
        self._settle(attempt)
        steps = [
            [
                as_replayed(job)
                for job in step
                if not job.HasField("do_update") or job.do_update.id in accepted
            ]
            for step in attempt.steps
        ]
        self.done.append(
            Done(
                time=attempt.time,
                ended=self.server.now(),
                length=attempt.length,
                completed=completed,
                size=self.size,
                steps=steps,
                commands=[
                    c for c, is_no in zip(attempt.commands, rejections, strict=True) if not is_no
                ],
                flags=self.flags | attempt.flags,
                seen=attempt.seen,
            )
        )
        self.attempt, self.sticky = None, attempt.worker
        self._carry_out(attempt.commands)
        self.server.committed(self, attempt)
        self._next()
        return True

    def _next(self) -> None:
        if self._inbox or any(map(_is_waiting, self.updates.values())):
            self._needs_task()

    def _settle(self, attempt: Attempt) -> None:
        for command in attempt.commands:
            if command.HasField("update_response"):
                response = command.update_response
                update = self.updates[response.protocol_instance_id]
                if response.HasField("accepted"):
                    self._write(ACCEPTED)
                    update.is_accepted, update.accepted_at = True, self.length
                elif response.HasField("completed"):
                    self._write(ANSWERED)
                    update.answered_at = self.length
                    success = Payloads(payloads=[response.completed])
                    update.outcome = Outcome(success=success)
                    update.settled.set()
                else:
                    update.outcome = Outcome(failure=response.rejected)
                    update.settled.set()
                    if update.is_accepted:
                        self._write(ANSWERED)
                        update.answered_at = self.length
                    else:
                        # The server keeps no rejection, so it takes the same call as a new one.
                        del self.updates[update.id]
        for update in attempt.updates:
            update.attempt = None

    def _carry_out(self, commands: list[Command]) -> None:
        started = {c.start_timer.seq for c in commands if c.HasField("start_timer")}
        cancelled = {c.cancel_timer.seq for c in commands if c.HasField("cancel_timer")}
        ordered = {c.schedule_activity.seq for c in commands if c.HasField("schedule_activity")}
        unordered = {
            c.request_cancel_activity.seq for c in commands if c.HasField("request_cancel_activity")
        }
        unsent = {
            **dict.fromkeys(("start_timer", "cancel_timer"), started & cancelled),
            **dict.fromkeys(("schedule_activity", "request_cancel_activity"), ordered & unordered),
        }
        for command in commands:
            kind = command.WhichOneof("variant") or ""
            if kind in unsent and getattr(command, kind).seq in unsent[kind]:
                continue
            if kind not in _CLOSING:
                self._write(*[OTHER] * _EVENTS.get(kind, 1))
            match kind:
                case "start_timer":
                    start = command.start_timer
                    due = self.server.now() + start.start_to_fire_timeout.ToTimedelta()
                    self.start_timer(start.seq, due)
                case "cancel_timer":
                    self._cancel_timer(command.cancel_timer.seq)
                case "schedule_activity":
                    self.order(command.schedule_activity)
                case "request_cancel_activity":
                    if (
                        found := self.activities.get(command.request_cancel_activity.seq)
                    ) is not None:
                        found.request_cancel()
                case "upsert_workflow_search_attributes":
                    fields = command.upsert_workflow_search_attributes.search_attributes
                    self.attributes.update(fields.indexed_fields)
                case "modify_workflow_properties":
                    self.memo.update(command.modify_workflow_properties.upserted_memo.fields)
                case _ if kind in _CLOSING:
                    self._close(command, kind)
                case _:
                    assert kind in _EVENTS, f"the simulation knows no {kind}"

    def start_timer(self, seq: int, due: datetime) -> None:
        """Fire a timer when it is due."""

        def fire() -> None:
            del self.timers[seq]
            job = Job()
            job.fire_timer.seq = seq
            self.arrived([job])

        self.timers[seq] = self.server.at(due, fire)

    def _cancel_timer(self, seq: int) -> None:
        if (timer := self.timers.pop(seq, None)) is not None:
            timer.cancel()
        else:
            # The timer fired during the task that cancels it.
            fired = [
                job
                for job in self._inbox
                if job.HasField("fire_timer") and job.fire_timer.seq == seq
            ]
            self._inbox = [job for job in self._inbox if job not in fired]
            self._coming = [each for each in self._coming if each.job not in fired]

    def order(self, order: Any) -> Activity:
        """Schedule an activity."""
        activity = Activity(self, order)
        self.activities[activity.seq] = activity
        self.visits[activity.seq] = activity.id
        activity.schedule()
        return activity

    def goes_on(self, log: list[Logged], done: list[Done]) -> None:
        """Continue from the history of another execution."""
        self.log, self.done, self._is_begun = log, done, bool(done)
        self.size = done[-1].size if done else self.size
        handled = done[-1].completed if done else 0
        self._inbox = [each.job for each in log[handled:] if each.job is not None]
        self._needs_task()

    # Its end

    def terminate(self) -> None:
        """Terminate the execution at once, even during a workflow task."""
        attempt = self.attempt
        self.log += self.tail()
        if attempt is not None and attempt.is_started:
            if self._is_written(attempt):
                self._write(FAILED)
            self.log += self._coming
        self.attempt, self._coming = None, []
        self._write(TERMINATED)
        self._end(Status.WORKFLOW_EXECUTION_STATUS_TERMINATED)
        self.server.note(f"{self.run_id} is terminated")

    def _close(self, command: Command, kind: str) -> None:
        about = ""
        match kind:
            case "complete_workflow_execution":
                self.result = Payloads(payloads=[command.complete_workflow_execution.result])
            case "fail_workflow_execution":
                self.failure = command.fail_workflow_execution.failure
            case "continue_as_new_workflow_execution":
                about = self._continue(command.continue_as_new_workflow_execution)
            case _:
                pass
        self.log.append(Logged(ENDS[kind], self.server.now(), about=about))
        self._end(_CLOSING[kind])
        self.server.note(f"{self.run_id} ends: {kind}")

    def _end(self, status: Status.ValueType) -> None:
        self.status, self.closed_at = status, self.server.now()
        for timer in self.timers.values():
            timer.cancel()
        self.left = [*self.activities.values()]
        for activity in [*self.activities.values()]:
            activity.end()
        for update in [*self.updates.values()]:
            if not update.settled.is_set():
                self._abort(update)

    def _continue(self, order: Any) -> str:
        following = Execution(
            self.server,
            workflow_id=self.workflow_id,
            type=self.type,
            queue=self.queue,
            input=order.arguments,
            memo=dict(order.memo) or dict(self.memo_at_start),
            attributes=dict(order.search_attributes.indexed_fields) or dict(self.attributes),
            before=self,
        )
        self.server.chains[self.workflow_id].append(following)
        following.arrived([], 0)
        return following.run_id

    def _abort(self, update: Update) -> None:
        if update.is_accepted:
            lost = ApplicationFailureInfo(
                type="AcceptedUpdateCompletedWorkflow", non_retryable=True
            )
            failure = Failure(message="the update was accepted", application_failure_info=lost)
            update.outcome = Outcome(failure=failure)
        elif self.status == Status.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
            update.aborted = "closing"
        else:
            update.aborted = "closed"
        update.settled.set()


def _is_waiting(update: Update) -> bool:
    return not update.is_accepted and update.attempt is None and not update.settled.is_set()
