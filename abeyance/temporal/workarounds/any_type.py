"""Run workflows of every type by one class whose arguments have types.

The type of a run is its graph's name, and a worker gets runs of graphs that it does not know. The SDK
(1.35.0 at least) runs all types without a class of their own as its dynamic workflow, but does not decode
the arguments for it. If the constructor decodes them and lacks a key, the SDK leaves a coroutine that
nobody awaits.
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
    """Let a worker run this workflow for each type without a class. It needs the AnyTypeRunner."""
    definition = workflow._Definition.must_from_class(cls)  # noqa: SLF001
    setattr(cls, _DEFINITION, replace(definition, name=None))
    return cls


class AnyTypeRunner(UnsandboxedWorkflowRunner):
    """Lets the SDK decode the arguments of a workflow `of_any_type` as those of any other workflow."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        named = replace(det.defn, name=det.info.workflow_type)
        return super().create_instance(replace(det, defn=named))
