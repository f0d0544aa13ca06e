"""A Temporal client over a real connection, some of whose calls get other results."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from rpc_counter import RpcCounter
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.update.v1 import Outcome
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionResponse
from temporalio.client import Client as TemporalClient

_COMPLETED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED


class Mishaps(RpcCounter):
    """Replaces the results of the next calls by name: an error, a response, or None for the real one.

    Later calls get their real results. With `was_done` the server still gets the call, and only its
    response is replaced.
    """

    def __init__(self, temporal: TemporalClient) -> None:
        super().__init__(temporal.service_client)
        self.client = TemporalClient(
            self, namespace=temporal.namespace, data_converter=temporal.data_converter
        )
        self.was_done = False
        self._coming: defaultdict[str, deque[Any]] = defaultdict(deque)

    def come(self, rpc: str, *mishaps: Any) -> None:
        """Set the results of the next calls of this name."""
        self._coming[rpc].extend(mishaps)

    async def _rpc_call(self, rpc: str, req: Any, resp_type: type[Any], **options: Any) -> Any:
        if not self._coming[rpc] or (mishap := self._coming[rpc].popleft()) is None:
            return await super()._rpc_call(rpc, req, resp_type, **options)
        if self.was_done:
            await super()._rpc_call(rpc, req, resp_type, **options)
        else:
            self.calls[rpc] += 1
        if isinstance(mishap, Exception):
            raise mishap
        return mishap


def failed_update(type_: str, message: str) -> UpdateWorkflowExecutionResponse:
    """Return the response to an update that failed with an error of this type."""
    info = ApplicationFailureInfo(type=type_, non_retryable=True, details=Payloads())
    failure = Failure(message=message, source="Server", application_failure_info=info)
    return UpdateWorkflowExecutionResponse(outcome=Outcome(failure=failure), stage=_COMPLETED)
