"""Keep queries from applying events ahead of their workflow task.

Since Temporal SDK 1.35.0 at least: a query on a run that is not cached replays its history, and the SDK
also applies events after the last completed task: ahead of the task that will deliver them, or of one
that another worker has started and may never finish. The commands that result would precede those of
the next task, in an order that no replay repeats (docs/internals/adr/0013-no-task-is-anticipated.md).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_activation import RemoveFromCache, WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from abeyance import names
from abeyance.core.lifecycle import CANNOT_REPLAY_REMEDY
from abeyance.core.text import truncate
from abeyance.errors import BlockedCode
from abeyance.storage.converter import show_message, unread_by
from abeyance.temporal.workarounds.payloads import fail_refused_results

_ALLOWED: Final = frozenset(
    {"notify_has_patch", "query_workflow", "remove_from_cache", "update_random_seed"}
)
"""Jobs that deliver no event to a workflow."""
_WRITTEN: Final = frozenset({"modify_workflow_properties", "upsert_workflow_search_attributes"})
"""Commands that always write one event each. Every change of a run has such a command."""
_AROUND: Final = 3
"""Events between two tasks in any case: completed, scheduled, started."""
LOOKED_AHEAD: Final = "abeyance: the query came ahead of a pending workflow task; repeat it"
"""The error of a query that reached a worker ahead of a pending workflow task."""
UNWRITTEN: Final = (
    "abeyance: a query advanced the run in memory beyond its history; this task is retried from the "
    "history"
)
_SHOWN: Final = 400
_logger = logging.getLogger("abeyance.lookahead")
_worker_logger = logging.getLogger("abeyance.worker")


class InOrderWorkflowRunner(WorkflowRunner):
    """Runs workflows as `inner` does, but evicts a run from the cache rather than look ahead in it.

    The query that would have looked ahead fails with LOOKED_AHEAD and may be repeated; the pending task
    then comes first. If another worker had already started that task, the lookahead shows only in the
    next task, which fails once and is retried.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    # The SDK does not export the class of a workflow definition.
    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        seeds: list[int] = []
        return InOrderWorkflowInstance(self._inner.create_instance(telling(seeds, det)), seeds)

    def set_worker_level_failure_exception_types(
        self, types: Sequence[type[BaseException]]
    ) -> None:
        self._inner.set_worker_level_failure_exception_types(types)


def telling(seeds: list[int], det: WorkflowInstanceDetails) -> WorkflowInstanceDetails:
    """Return the details of a run that hears of resets: `seeds` are the random seeds that resets gave it.

    The SDK calls a callback of `register_random_seed_callback` only after the signals and updates of the
    same task, and not at all in the first task, when none is registered yet.
    """
    return replace(det, extern_functions={**det.extern_functions, names.SEEDS: lambda: (*seeds,)})


def _thin_out(act: WorkflowActivation) -> None:
    """Leave out the signals that the run drops unread: the SDK takes a second or more to deliver them.

    The run still gets the first signal of each kind that it drops, so that it reports the drop.
    """
    if len(act.jobs) <= names.MOST_IN_A_TASK:
        return
    known: Counter[str] = Counter()
    kept = []
    for job in act.jobs:
        if job.HasField("signal_workflow"):
            name = job.signal_workflow.signal_name
            known[name] += 1
            if known[name] > names.MOST_IN_A_TASK + 1:
                continue
        kept.append(job)
    if len(kept) < len(act.jobs):
        jobs = WorkflowActivation(jobs=kept).jobs
        del act.jobs[:]
        act.jobs.MergeFrom(jobs)


class InOrderWorkflowInstance(WorkflowInstance):
    """One cached run."""

    def __init__(self, inner: WorkflowInstance, seeds: list[int] | None = None) -> None:
        self._inner = inner
        self._seeds = [] if seeds is None else seeds
        self._last: WorkflowActivation | None = None
        # Minimum number of events that the latest task must have written.
        self._owed = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        fail_refused_results(act)
        if self._last is not None and is_lookahead(self._last, act):
            return self._refused(act, LOOKED_AHEAD)
        if self._last is not None and is_unwritten(self._last, act, self._owed):
            return self._refused(act, UNWRITTEN)
        if self._last is None or act.history_length > self._last.history_length:
            self._owed = 0
        self._last = WorkflowActivation(
            timestamp=act.timestamp,
            history_length=act.history_length,
            history_size_bytes=act.history_size_bytes,
        )
        resets = (job for job in act.jobs if job.HasField("update_random_seed"))
        self._seeds += [job.update_random_seed.randomness_seed for job in resets]
        _thin_out(act)
        completion = self._inner.activate(act)
        for job in act.jobs:
            if job.remove_from_cache.reason == RemoveFromCache.NONDETERMINISM:
                self._log_failed(Failure(message=job.remove_from_cache.message))
        if completion.HasField("failed"):
            failure = Failure()
            failure.CopyFrom(completion.failed.failure)
            show_message(failure)
            self._log_failed(failure)
        self._owed += sum(
            command.WhichOneof("variant") in _WRITTEN for command in completion.successful.commands
        )
        return completion

    def _log_failed(self, failure: Failure) -> None:
        code, why, remedy = BlockedCode.CANNOT_REPLAY, failure.message, CANNOT_REPLAY_REMEDY
        if (unread := unread_by(failure)) is not None:
            (code, why), remedy = unread, "this worker cannot read the run"
        _worker_logger.warning(
            "run=%s code=%s | its workflow task failed (%s), and is tried again: %s",
            self._inner.get_info().workflow_id,
            code,
            truncate(why, _SHOWN),
            remedy,
        )

    def _refused(self, act: WorkflowActivation, why: str) -> WorkflowActivationCompletion:
        _logger.debug(
            "the run %s is dropped from memory at %d events: %s",
            self._inner.get_info().workflow_id,
            act.history_length,
            why,
        )
        completion = WorkflowActivationCompletion()
        completion.failed.failure.message = why
        completion.failed.failure.application_failure_info.SetInParent()
        return completion

    # The SDK passes and expects objects of private classes here.
    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def is_lookahead(last: WorkflowActivation, act: WorkflowActivation) -> bool:
    """Return True if `act` delivers events after the task of `last` without a new task.

    Every task has an event with its start time and the history size. Only a lookahead has a longer
    history without another such event. Several activations of one task, such as results of local
    activities, have the same history length.
    """
    return (
        not act.is_replaying
        and act.history_length > last.history_length
        and act.timestamp == last.timestamp
        and act.history_size_bytes == last.history_size_bytes
        and any(job.WhichOneof("variant") not in _ALLOWED for job in act.jobs)
    )


def is_unwritten(last: WorkflowActivation, act: WorkflowActivation, owed: int) -> bool:
    """Return True if `act` is a new task whose history lacks events that the run caused after `last`.

    `owed` is the minimum number of events written since; they precede the events that `act` delivers.
    """
    return (
        owed > 0
        and not act.is_replaying
        and act.history_length > last.history_length
        and any(job.WhichOneof("variant") not in _ALLOWED for job in act.jobs)
        and act.history_length < last.history_length + _AROUND + owed + _events_of(act)
    )


def _events_of(act: WorkflowActivation) -> int:
    """Return the minimum number of events behind an activation."""
    count = 0
    for job in act.jobs:
        match job.WhichOneof("variant"):
            case "signal_workflow" | "fire_timer" | "cancel_workflow":
                count += 1
            case "resolve_activity" if not job.resolve_activity.is_local:
                # Started and completed. A failed or cancelled activity may never have started.
                count += 2 if job.resolve_activity.result.HasField("completed") else 1
    return count
