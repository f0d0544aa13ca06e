"""Keeps workflows from being told of events that no workflow task has brought them yet.

A question to a run that no worker has in memory is answered from its history, and the SDK then applies
also what stands behind the last finished task: ahead of the task that is to bring it, or of one that
another worker has begun and may never finish. What the workflow does in return would be kept until the
next task, and be put before what that task itself leads to, in an order that no replay repeats
(docs/concepts/adr/0013-no-task-is-anticipated.md).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import Info

from abeyance.temporal.retry import LOOKED_AHEAD

_ALLOWED: Final = frozenset(
    {"notify_has_patch", "query_workflow", "remove_from_cache", "update_random_seed"}
)
"""The jobs that tell a workflow of nothing that has happened."""
_WRITTEN: Final = frozenset({"modify_workflow_properties", "upsert_workflow_search_attributes"})
"""The commands that leave one event each, whatever else is done. Each change of a run has such a one."""
_AROUND: Final = 3
"""The events that lie between two tasks in any case: one ended, the other was scheduled and begun."""
UNWRITTEN: Final = (
    "abeyance: what the run did in memory, for the sake of a question, is not in its history; this task "
    "is done again, from the history"
)
_logger = logging.getLogger("abeyance.lookahead")


class InOrderWorkflowRunner(WorkflowRunner):
    """Runs workflows as `inner` does, and drops a run from memory rather than look ahead in it.

    The question for whose sake that would have been done fails with LOOKED_AHEAD, and may be asked again:
    it is then answered with the task, or after it. Where that shows only with the next task, because the
    question found a task that another worker had begun, that task fails once, and is done anew.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    # The definition of a workflow is of a class that the SDK does not show.
    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return InOrderWorkflowInstance(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(
        self, types: Sequence[type[BaseException]]
    ) -> None:
        self._inner.set_worker_level_failure_exception_types(types)


class InOrderWorkflowInstance(WorkflowInstance):
    """One run in memory."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        self._last: WorkflowActivation | None = None
        # How many events the latest task has to have left, at the least.
        self._owed = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
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
        completion = self._inner.activate(act)
        self._owed += sum(
            command.WhichOneof("variant") in _WRITTEN for command in completion.successful.commands
        )
        return completion

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

    # What the SDK hands over and wants back here is of classes that it does not show.
    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def is_lookahead(last: WorkflowActivation, act: WorkflowActivation) -> bool:
    """Whether `act` tells a run of events behind the task that `last` belonged to, and of no new task.

    Every task has an event that says when it began and how large the history was. Only what looks ahead
    is of a longer history without another such event. What one task has to say in several goes, such as
    results of local activities, is of a history of one length.
    """
    return (
        not act.is_replaying
        and act.history_length > last.history_length
        and act.timestamp == last.timestamp
        and act.history_size_bytes == last.history_size_bytes
        and any(job.WhichOneof("variant") not in _ALLOWED for job in act.jobs)
    )


def is_unwritten(last: WorkflowActivation, act: WorkflowActivation, owed: int) -> bool:
    """Whether `act` is a new task, and the history too short to have what was done after `last`.

    `owed` is how many events that has to have left. They lie between the two, as does what `act` brings.
    """
    return (
        owed > 0
        and not act.is_replaying
        and act.history_length > last.history_length
        and any(job.WhichOneof("variant") not in _ALLOWED for job in act.jobs)
        and act.history_length < last.history_length + _AROUND + owed + _events_of(act)
    )


def _events_of(act: WorkflowActivation) -> int:
    """How many events have brought what an activation tells, at the least."""
    count = 0
    for job in act.jobs:
        match job.WhichOneof("variant"):
            case "signal_workflow" | "fire_timer" | "cancel_workflow":
                count += 1
            case "resolve_activity" if not job.resolve_activity.is_local:
                # It began, and it ended. What fails or is stopped may not have begun.
                count += 2 if job.resolve_activity.result.HasField("completed") else 1
    return count
