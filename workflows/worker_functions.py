"""The functions of its worker that a run can call. A run sees nothing else of the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from temporalio.worker import (
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

TAKE_ANSWER: Final = "abeyance_take_answer"
"""Reads an answer as the types of the worker's graphs. Only validators call it: they run once and not in
a replay, so their findings need no event in the history.
"""
HAND_OVER: Final = "abeyance_hand_over"
"""Takes a batch of an execution, for the activity that records it."""
TELL: Final = "abeyance_tell"
"""Takes news between batches."""
UNMETERED: Final = "abeyance_unmetered"
"""Never called: a worker has it if its runs have no metrics."""


class WorkerFunctions(Interceptor):
    """Gives the runs of a worker these functions, by their names."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's own word
    ) -> type[WorkflowInboundInterceptor] | None:
        input.unsafe_extern_functions.update(self._functions)
        return None
