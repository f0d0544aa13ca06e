"""Run workflows of every type by one class whose arguments have types.

Runs have the type of their graph's name, and a worker gets runs of graphs that it does not know. The SDK
(1.35.0 at least) gives all types without a class of their own to its dynamic workflow, but gives that its
arguments unread. If its constructor reads them and cannot, for lack of a key, the SDK leaves a coroutine
that nobody awaits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
)

T = TypeVar("T")

_DEFINITION: Final = "__temporal_workflow_definition"


def of_any_type(cls: type[T]) -> type[T]:
    """Make a workflow the one that its worker runs for each type without a class. It needs the runner."""
    definition = workflow._Definition.must_from_class(cls)  # noqa: SLF001
    setattr(cls, _DEFINITION, replace(definition, name=None))
    return cls


class AnyTypeRunner(UnsandboxedWorkflowRunner):
    """Lets the SDK read the arguments of a workflow `of_any_type` as it reads those of any other."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        named = replace(det.defn, name=det.info.workflow_type)
        return super().create_instance(replace(det, defn=named))
