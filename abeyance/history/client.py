"""RPCs that read histories, retried while Temporal cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.description import RPC, described_by_server, is_run
from abeyance.storage.converter import of_run
from abeyance.temporal.retry import NotFound, attempts, is_retryable

T = TypeVar("T")

_PAGE: Final = 200
"""In transactions of the server, each of one or more events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One of a run's executions, and when it ended; None of an open one."""

    id: str
    ended_at: datetime | None


class HistoryClient:
    """The histories of the runs of `task_queue`; any other workflow is NotFound.

    `patience` is how many seconds an unreachable server is retried.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._namespace = temporal.namespace
        self._service = temporal.workflow_service
        self._task_queue = task_queue
        self._patience = patience

    def converter(self, run_id: str) -> DataConverter:
        return of_run(self._temporal.data_converter, run_id)

    async def newest(self, run_id: str) -> Execution:
        """The newest execution of a run. Raises NotFound and Unavailable."""
        ask = partial(described_by_server, self._temporal, run_id)
        response = await self._retried(run_id, ask)
        info = response.workflow_execution_info
        if not is_run(info) or info.task_queue != self._task_queue:
            # Another application's workflow, or a run of another deployment.
            raise NotFound
        return Execution(
            id=info.execution.run_id,
            ended_at=info.close_time.ToDatetime(tzinfo=UTC)
            if info.HasField("close_time")
            else None,
        )

    async def pending(self, run_id: str) -> Sequence[PendingActivityInfo]:
        """The pending activities of a run of which one execution was found. Raises RPCError."""
        return (await described_by_server(self._temporal, run_id)).pending_activities

    async def history(
        self, run_id: str, execution: str, token: bytes = b""
    ) -> GetWorkflowExecutionHistoryResponse:
        """A page of a history, up to its present end. Raises NotFound and Unavailable."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._namespace,
            execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
            maximum_page_size=_PAGE,
            next_page_token=token,
            skip_archival=True,
        )
        ask = partial(self._service.get_workflow_execution_history, request, timeout=RPC)
        response = await self._retried(run_id, ask)
        # A cursor names an execution of which the deployment was not checked yet. The later pages are
        # reached only by the token of the first.
        for event in response.history.events[:1]:
            begun = event.workflow_execution_started_event_attributes
            if event.event_id == 1 and begun.task_queue.name != self._task_queue:
                raise NotFound
        return response

    async def _retried(self, run_id: str, ask: Callable[[], Awaitable[T]]) -> T:
        # Not `retry_until`: the time counts from the first failure, because a poll may be long.
        clock = asyncio.get_running_loop().time
        deadline: float | None = None
        async for pause in attempts(0.05, 1.0):
            try:
                return await ask()
            except RPCError as error:
                is_retryable(error)
                deadline = deadline or clock() + self._patience
                if clock() + pause > deadline:
                    raise Unavailable(
                        f"the events of the run {run_id!r} cannot be read: Temporal did not answer for "
                        f"{self._patience:g} s ({error.message}). Go on from the last id received."
                    ) from error
        raise AssertionError("attempts have no end")


def unknown_run(run_id: str) -> Refusal:
    """The refusal of a run that does not exist."""
    return Refusal(
        Code.UNKNOWN_RUN,
        f"There is no run {run_id!r}, or its history is no longer kept.",
        run_id=run_id,
    )
