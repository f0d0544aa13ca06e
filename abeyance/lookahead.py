"""Workflows that are never told of what no workflow task has brought yet.

A question to a run that no worker has in memory is answered from its history, and the SDK then applies
also what stands behind the last finished task, ahead of the task that is to bring it. What the workflow
does in return would be kept until that task, and be put before what the task itself leads to, in an
order that no replay repeats (docs/adr/0013-no-task-is-anticipated.md).
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

from abeyance.patience import LOOKED_AHEAD

_ALLOWED: Final = frozenset(
    {"notify_has_patch", "query_workflow", "remove_from_cache", "update_random_seed"}
)
"""The jobs that tell a workflow of nothing that has happened."""
_logger = logging.getLogger("abeyance.lookahead")


class InOrder(WorkflowRunner):
    """Runs workflows as `inner` does, and drops a run from memory rather than look ahead in it.

    The question for whose sake that would have been done fails with LOOKED_AHEAD, and may be asked again:
    it is then answered with the task, or after it. No task fails.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    # The definition of a workflow is of a class that the SDK does not show.
    def prepare_workflow(self, defn: Any) -> None:
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return InOrderInstance(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(
        self, types: Sequence[type[BaseException]]
    ) -> None:
        self._inner.set_worker_level_failure_exception_types(types)


class InOrderInstance(WorkflowInstance):
    """One run in memory."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        self._last: WorkflowActivation | None = None

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if self._last is not None and looks_ahead(self._last, act):
            _logger.debug(
                "not looked ahead in the run %s: its history has %d events, its last task began at %d",
                self._inner.get_info().workflow_id,
                act.history_length,
                self._last.history_length,
            )
            completion = WorkflowActivationCompletion()
            completion.failed.failure.message = LOOKED_AHEAD
            completion.failed.failure.application_failure_info.SetInParent()
            return completion
        self._last = WorkflowActivation(
            timestamp=act.timestamp,
            history_length=act.history_length,
            history_size_bytes=act.history_size_bytes,
        )
        return self._inner.activate(act)

    # What the SDK hands over and wants back here is of classes that it does not show.
    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        return self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


def looks_ahead(last: WorkflowActivation, act: WorkflowActivation) -> bool:
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
