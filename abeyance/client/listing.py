"""Rows of Temporal's visibility, which finds runs by search attributes, a moment late.

The stores of visibility differ: those over SQL cannot sort, compare keyword lists case-insensitively, and
some fail on quotes and backslashes. So a query only narrows the rows down, and its caller checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.errors import Unavailable
from abeyance.history.description import RPC, RunDescription, read
from abeyance.temporal.retry import retry_until
from abeyance.util import notification_queue

_ROWS: Final = 100
EXECUTIONS: Final = f"{names.STATUS} IS NOT NULL"
RUNS: Final = f"{EXECUTIONS} AND ExecutionStatus != 'ContinuedAsNew'"
_NOT_LISTED: Final = frozenset({names.MEMO_UNRECORDED})
"""Memo keys that may be large and in external storage, and that no list shows."""
OPEN_RUNS: Final = f"{EXECUTIONS} AND CloseTime IS NULL"
FAILING: Final = f"CloseTime IS NULL AND {names.REPORTED_PROBLEMS} IS NOT NULL"
"""Workflows whose task fails."""
_UNDELIVERED: Final = (
    f"WorkflowType = '{names.NOTIFICATION_WORKFLOW}' "
    f"AND (ExecutionStatus IN ('Failed', 'Terminated') OR {names.STATUS} = 'failed')"
)
_SHOWN: Final = 3


def of_run(run_id: str) -> str:
    """Return the condition that a workflow has the id of a run. A run id has no characters to quote."""
    return f"WorkflowId = '{run_id}'"


class Listing:
    """Lists of the runs of `task_queue`, which are those of one deployment.

    `patience` is how many seconds a call is retried.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience

    async def described(self, row: WorkflowExecutionInfo) -> RunDescription:
        raw = DescribeWorkflowExecutionResponse(workflow_execution_info=row)
        return await read(self._temporal, raw, beside=_NOT_LISTED)

    async def all(self, query: str) -> list[WorkflowExecutionInfo]:
        """Return all rows of a query, in no order."""
        rows: list[WorkflowExecutionInfo] = []
        token = b""
        while True:
            page, token = await self._page(query, _ROWS, token)
            rows += page
            if not token:
                return rows

    async def count(self, query: str) -> int:
        """Return the number of rows of a query, as of a moment ago."""
        return await self._count(self._with_queue("=", query))

    async def count_of_others(self) -> int:
        """Return how many runs of other deployments the namespace shows, as of a moment ago."""
        return await self._count(self._with_queue("!=", RUNS))

    async def _count(self, query: str) -> int:
        request = CountWorkflowExecutionsRequest(namespace=self._temporal.namespace, query=query)
        service = self._temporal.workflow_service
        ask = partial(service.count_workflow_executions, request, timeout=RPC)
        return int((await self._retried(ask)).count)

    async def _page(
        self, query: str, size: int, token: bytes
    ) -> tuple[list[WorkflowExecutionInfo], bytes]:
        request = ListWorkflowExecutionsRequest(
            namespace=self._temporal.namespace,
            query=self._with_queue("=", query),
            page_size=size,
            next_page_token=token,
        )
        service = self._temporal.workflow_service
        page = await self._retried(partial(service.list_workflow_executions, request, timeout=RPC))
        # The query is not enough: stores differ in what they compare as equal.
        rows = [row for row in page.executions if row.task_queue == self._task_queue]
        return rows, page.next_page_token

    def _with_queue(self, how: str, query: str) -> str:
        quoted = self._task_queue.replace("'", "''")
        return f"TaskQueue {how} '{quoted}' AND {query}"

    async def _retried(self, ask: Any) -> Any:
        return await retry_until("Temporal's list of runs", ask, seconds=self._patience)


def written(moment: datetime) -> str:
    """Return a time as a query literal."""
    # Not strftime, which writes the first thousand years with fewer digits.
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNotification:
    """A notification about an event of a run, and why some receivers did not get it."""

    event: str
    run_id: str
    reasons: tuple[str, ...]


async def undelivered(
    temporal: TemporalClient, task_queue: str, *, limit: int
) -> list[LostNotification]:
    """Return the latest lost notifications that Temporal still has, newest first. Raises Unavailable."""
    queue = notification_queue(task_queue).replace("'", "''")
    found = []
    try:
        async for row in temporal.list_workflows(
            f"{_UNDELIVERED} AND TaskQueue = '{queue}'", limit=limit, rpc_timeout=RPC
        ):
            memo = await row.memo()
            found.append(_lost_notification(memo))
    except RPCError as error:
        raise Unavailable(f"Temporal does not list notifications: {error.message}") from error
    return found


def _lost_notification(memo: Any) -> LostNotification:
    moment = memo.get(names.MEMO_MOMENT) or {}
    rows = memo.get(names.MEMO_UNDELIVERED) or []
    return LostNotification(
        event=str(moment.get("event")),
        run_id=str(moment.get("run_id")),
        reasons=tuple(f"{row['receiver']}: {row['reason']}" for row in rows[:_SHOWN]),
    )
