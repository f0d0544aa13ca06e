"""The trace of a run, for activities that its workflow starts in its constructor.

Since Temporal SDK 1.35.0 at least: its interceptor has the trace only while a handler is under way.
`AgentRun` starts its first nodes in its constructor, so these would begin traces of their own.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor
from temporalio.worker import (
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)


class Tracing(TracingInterceptor):
    """Propagates traces through Temporal. Clients of workers and APIs both need it."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 the SDK's own word
    ) -> type[TracingWorkflowInboundInterceptor]:
        super().workflow_interceptor_class(input)
        return _Inbound


class _Inbound(TracingWorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self.header_key))


class _Outbound(WorkflowOutboundInterceptor):
    """Adds the header of the run's trace to activities that have none."""

    def __init__(self, next: WorkflowOutboundInterceptor, header: str) -> None:  # noqa: A002
        super().__init__(next)
        self._header = header

    def start_activity(
        self,
        input: StartActivityInput,  # noqa: A002
    ) -> workflow.ActivityHandle[Any]:
        self._add_header(input)
        return super().start_activity(input)

    def start_local_activity(
        self,
        input: StartLocalActivityInput,  # noqa: A002
    ) -> workflow.ActivityHandle[Any]:
        self._add_header(input)
        return super().start_local_activity(input)

    def _add_header(self, started: StartActivityInput | StartLocalActivityInput) -> None:
        context = workflow.info().headers.get(self._header)
        if context is not None and self._header not in started.headers:
            started.headers = {**started.headers, self._header: context}
