"""A worker: the SDK's own workflow instances and our activities, driven without the SDK's core.

This module replaces the SDK's core. It turns tasks into activations, replays a history for an instance
that is not in the cache, compares the commands with those of the first time, and runs local activities
within their workflow task.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client as TemporalClient
from temporalio.common import (
    Priority,
    TypedSearchAttributes,
)
from temporalio.converter import DataConverter
from temporalio.worker import (
    Interceptor,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowInterceptorClassInput,
)

from abeyance import Graph
from abeyance.records.batch import Batch
from abeyance.runtime import answering
from abeyance.storage.converter import of_run
from abeyance.temporal.workarounds.any_type import AnyTypeRunner
from abeyance.temporal.workarounds.in_order_runner import InOrderWorkflowRunner
from abeyance.temporal.workarounds.payloads import lenient
from abeyance.workflows.run import AgentRun
from tests.simulation.activity import Activity
from tests.simulation.clock import EPOCH
from tests.simulation.execution import Execution
from tests.simulation.payloads import open_activation, opened_commands, opened_memo, seal_completion
from tests.simulation.runner import Runner
from tests.simulation.server import Broken, Server
from tests.simulation.tasks import Attempt

if TYPE_CHECKING:
    from tests.simulation.promises import Steps

OWNER: contextvars.ContextVar[Worker | None] = contextvars.ContextVar("owner", default=None)
"""The worker that an asyncio task belongs to, and dies with."""

_RUNNER: Final = InOrderWorkflowRunner(AnyTypeRunner())
_DEFINITION: Final = workflow._Definition.must_from_class(AgentRun)
_EXECUTION: Final = re.compile(rb"execution-\d{4}")
_EPOCH_SECONDS: Final = int(EPOCH.timestamp())


@dataclass
class Cached:
    """A workflow instance in memory that has handled `tasks` workflow tasks.

    `under_way` are its running local activities. `is_ahead`: it has handled jobs of an open task.
    """

    instance: WorkflowInstance
    tasks: int
    under_way: set[int] = field(default_factory=set)
    is_ahead: bool = False

    def is_of(self, execution: Execution) -> bool:
        """Return whether the instance can handle the next task of an execution."""
        return self.tasks == len(execution.done) and not self.is_ahead


class Worker:
    """A worker process. `steps` collects the steps that the core takes in it."""

    def __init__(
        self,
        server: Server,
        name: str,
        graphs: Mapping[str, Graph],
        temporal: TemporalClient,
        steps: Steps,
    ) -> None:
        self.server, self.name = server, name
        self.is_up = True
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self._cache: dict[str, Cached] = {}
        self._steps = steps
        temporal = lenient(temporal)
        self._converter: DataConverter = temporal.data_converter
        self._runner = Runner(server, self, graphs, temporal)
        self._extern: Mapping[str, Callable[..., Any]] = {
            **_EXTERN,
            "abeyance_take_answer": lambda given: answering.take(graphs, given),
            "abeyance_hand_over": self._runner.handed_over.put,
            "abeyance_tell": self._tell,
        }

    def _tell(self, batch: Batch) -> None:
        if not workflow.unsafe.is_replaying():
            self.server.records.tell(batch)

    # Workflow tasks

    def work(self, execution: Execution, attempt: Attempt) -> None:
        """Handle a workflow task."""
        if not self.is_up or execution.attempt is not attempt:
            return
        cached = self._cache.get(execution.run_id)
        if cached is not None and not cached.is_of(execution):
            self.evict(execution.run_id)
            cached = None
        if cached is None:
            cached = self._cache[execution.run_id] = self._replayed(execution)
        jobs = [*attempt.jobs, *(each.job for each in attempt.updates)]
        jobs.sort(key=_order)
        if not execution.done:
            jobs = [_beginning(execution), *jobs]
        self._step(execution, attempt, cached, jobs)

    def _step(
        self, execution: Execution, attempt: Attempt, cached: Cached, jobs: list[Job]
    ) -> None:
        """Run one activation of a task, and the activations that follow without new jobs."""
        assert attempt.time is not None
        attempt.steps.append(jobs)
        cached.is_ahead = True
        act = _activation(execution, jobs, attempt.time, attempt.length, execution.size)
        self._steps.begin()
        act.available_internal_flags.extend(sorted(execution.flags | attempt.flags))
        success = self._activated(execution, cached, act)
        attempt.flags.update(success.used_internal_flags)
        commands = success.commands
        attempt.seen += self._steps.taken()
        attempt.commands += commands
        for command in commands:
            if command.HasField("schedule_local_activity"):
                order = command.schedule_local_activity
                cached.under_way.add(order.seq)
                self.spawn(self._run_local(execution, attempt, cached, order))
        cancelled = {
            c.request_cancel_activity.seq for c in commands if c.HasField("request_cancel_activity")
        }
        if unsent := _unsent(attempt.commands) & cancelled:
            # The SDK never sends such an activity, and resolves it within the same task.
            self._step(execution, attempt, cached, [_never_sent(seq) for seq in sorted(unsent)])
            return
        if not cached.under_way:
            self.server.later(self.server.delay(), self._complete, execution, attempt, cached)

    def _complete(self, execution: Execution, attempt: Attempt, cached: Cached) -> None:
        if not self.is_up or self._cache.get(execution.run_id) is not cached:
            return
        before = len(execution.done)
        if not execution.completed(attempt):
            self.evict(execution.run_id)
            return
        cached.tasks += len(execution.done) - before
        cached.is_ahead = False
        if not execution.is_open:
            self.evict(execution.run_id)
        elif not self.server.is_calm and self.server.chance.happens(0.06):
            self.server.note(f"{self.name} drops {execution.run_id} from its cache")
            self.evict(execution.run_id)

    def replay(self, execution: Execution, interceptors: Sequence[Interceptor]) -> None:
        """Replay an execution; `interceptors` collect what the workflow hands over."""
        key = f"{execution.run_id} again"
        self._cache[key] = self._replayed(execution, interceptors)
        self.evict(key)

    def _replayed(self, execution: Execution, interceptors: Sequence[Interceptor] = ()) -> Cached:
        """Return an instance that has replayed the history, with the same commands and events."""
        cached = Cached(self._created(execution, interceptors), len(execution.done))
        for number, done in enumerate(execution.done):
            commands: list[Any] = []
            self._steps.begin()
            for step in done.steps:
                act = _activation(
                    execution,
                    step,
                    done.time,
                    done.length,
                    execution.done[number - 1].size if number else 500,
                    is_replaying=True,
                )
                act.available_internal_flags.extend(sorted(done.flags))
                commands += self._activated(execution, cached, act).commands
            events = [event for _, event, *_ in self._steps.taken()]
            if events != (first := [event for _, event, *_ in done.seen]):
                raise Broken(f"a replay has other events: {events}, at first {first}")
            converter = self._converter_of(execution)
            if not _are_same(
                opened_commands(commands, converter), opened_commands(done.commands, converter)
            ):
                raise Broken(f"a replay wants something else: {commands}, at first {done.commands}")
        return cached

    def _activated(self, execution: Execution, cached: Cached, act: WorkflowActivation) -> Any:
        converter = self._converter_of(execution)
        open_activation(act, converter)
        completion = _activated(cached.instance, act)
        if completion.HasField("failed"):
            failure = completion.failed.failure
            raise Broken(f"a workflow task failed: {failure.message}\n{failure.stack_trace}")
        seal_completion(completion, converter)
        return completion.successful

    def _converter_of(self, execution: Execution) -> DataConverter:
        return of_run(self._converter, execution.workflow_id)

    def _created(
        self, execution: Execution, interceptors: Sequence[Interceptor]
    ) -> WorkflowInstance:
        extern = {**self._extern}
        given = WorkflowInterceptorClassInput(unsafe_extern_functions=extern)
        around = [each.workflow_interceptor_class(given) for each in interceptors]
        info = workflow.Info(
            attempt=1,
            continued_run_id=execution.before.run_id if execution.before else None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id=execution.first,
            headers={},
            namespace="default",
            original_execution_run_id=execution.run_id,
            parent=None,
            root=None,
            priority=Priority.default,
            raw_memo=opened_memo(execution.memo_at_start, self._converter_of(execution)),
            retry_policy=None,
            run_id=execution.run_id,
            run_timeout=None,
            search_attributes={},
            start_time=execution.started_at,
            task_queue=execution.queue,
            task_timeout=timedelta(seconds=10),
            typed_search_attributes=TypedSearchAttributes.empty,
            workflow_id=execution.workflow_id,
            workflow_start_time=execution.started_at,
            workflow_type=execution.type,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=self._converter._new_payload_converter,
            failure_converter_class=self._converter.failure_converter_class,
            interceptor_classes=[*filter(None, around)],
            defn=_DEFINITION,
            info=info,
            randomness_seed=execution.seed,
            extern_functions=extern,
            disable_eager_activity_execution=False,
            worker_level_failure_exception_types=[],
            patch_activation_callback=None,
            last_completion_result=_NO_PAYLOADS,
            last_failure=None,
        )
        return _RUNNER.create_instance(details)

    def evict(self, run_id: str) -> None:
        """Drop a run from the cache."""
        cached = self._cache.pop(run_id, None)
        if cached is not None:
            act = WorkflowActivation(run_id=run_id)
            act.jobs.add().remove_from_cache.message = "evicted"
            completion = _activated(cached.instance, act)
            assert not completion.HasField("failed"), completion.failed.failure.message

    def query(self, execution: Execution, job: Job) -> Any:
        """Answer a query."""
        cached = self._cache.get(execution.run_id)
        if cached is None or not cached.is_of(execution):
            self.evict(execution.run_id)
            cached = self._cache[execution.run_id] = self._replayed(execution)
        last = execution.done[-1]
        act = _activation(execution, [job], last.time, last.length, last.size)
        act.available_internal_flags.extend(sorted(execution.flags))
        (command,) = self._activated(execution, cached, act).commands
        return command.respond_to_query

    # Activities

    def run(self, activity: Activity) -> None:
        """Start an attempt at an activity."""
        self._runner.run(activity)

    async def _run_local(
        self, execution: Execution, attempt: Attempt, cached: Cached, order: Any
    ) -> None:
        job = await self._runner.run_local(execution, order)
        self.server.later(0, self._resolve_local, execution, attempt, cached, job)

    def _resolve_local(
        self, execution: Execution, attempt: Attempt, cached: Cached, job: Job
    ) -> None:
        if not self.is_up or self._cache.get(execution.run_id) is not cached:
            return
        if execution.attempt is not attempt:
            self.evict(execution.run_id)
            return
        cached.under_way.discard(job.resolve_activity.seq)
        self._step(execution, attempt, cached, [job])

    # The process

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with this process."""
        token = OWNER.set(self)
        try:
            self.server.loop.create_task(work)
        finally:
            OWNER.reset(token)

    def drop(self) -> None:
        """Evict all runs from the cache."""
        for run_id in [*self._cache]:
            self.evict(run_id)

    def leave(self) -> None:
        """Shut down: tell all running code."""
        self._runner.leave()

    def kill(self) -> None:
        """End the process at once, with everything that runs in it."""
        self.is_up = False
        for task in [*self.tasks]:
            task.cancel()
        self.drop()


def task_factory(loop: Any, coroutine: Any, **about: Any) -> asyncio.Task[Any]:
    """Make an asyncio task, and register it with its worker."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **about)
    loop.tasks.add(task)
    if (owner := OWNER.get()) is not None:
        tasks = owner.tasks
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
    return task


def _activated(instance: WorkflowInstance, act: WorkflowActivation) -> WorkflowActivationCompletion:
    """Activate an instance, which runs an event loop of its own."""
    around = asyncio._get_running_loop()
    try:
        return instance.activate(act)
    finally:
        asyncio._set_running_loop(around)


def _are_same(commands: Sequence[WorkflowCommand], first: Sequence[WorkflowCommand]) -> bool:
    """Return whether commands are the same, apart from the id of an execution that was reset."""
    if commands == first:
        return True
    mine, its = (
        [_EXECUTION.sub(b"", each.SerializeToString(deterministic=True)) for each in both]
        for both in (commands, first)
    )
    return mine == its


def _unsent(commands: Sequence[WorkflowCommand]) -> set[int]:
    """Return the activities that one task both schedules and cancels."""
    ordered = {c.schedule_activity.seq for c in commands if c.HasField("schedule_activity")}
    return ordered & {
        c.request_cancel_activity.seq for c in commands if c.HasField("request_cancel_activity")
    }


def _never_sent(seq: int) -> Job:
    job = Job()
    job.resolve_activity.seq = seq
    failure = job.resolve_activity.result.cancelled.failure
    failure.activity_failure_info.SetInParent()
    failure.cause.canceled_failure_info.SetInParent()
    return job


def _order(job: Job) -> int:
    match job.WhichOneof("variant"):
        case "update_random_seed":
            return 0
        case "signal_workflow":
            return 1
        case "do_update":
            return 2
        case _:
            return 3


def _stamp(moment: datetime) -> Timestamp:
    since = moment - EPOCH
    return Timestamp(
        seconds=_EPOCH_SECONDS + since.days * 86_400 + since.seconds,
        nanos=since.microseconds * 1_000,
    )


def _activation(
    execution: Execution,
    jobs: Sequence[Job],
    moment: datetime,
    length: int,
    size: int,
    *,
    is_replaying: bool = False,
) -> WorkflowActivation:
    return WorkflowActivation(
        run_id=execution.run_id,
        timestamp=_stamp(moment),
        is_replaying=is_replaying,
        history_length=length,
        history_size_bytes=size,
        jobs=jobs,
    )


def _beginning(execution: Execution) -> Job:
    job = Job()
    begin = job.initialize_workflow
    begin.workflow_type, begin.workflow_id = execution.type, execution.workflow_id
    begin.arguments.extend(execution.input)
    begin.randomness_seed = execution.seed
    begin.first_execution_run_id = execution.first
    begin.attempt = 1
    for key, payload in execution.memo_at_start.items():
        begin.memo.fields[key].CopyFrom(payload)
    return job


_NO_PAYLOADS: Any = None
_EXTERN: Final[Mapping[str, Callable[..., Any]]] = {
    "abeyance_unmetered": lambda: None,
    "__temporal_assert_local_activity_valid": lambda _: None,
}
