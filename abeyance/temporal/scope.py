"""Whose records those of a connection to Temporal are."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient

from abeyance.records.database import Scope
from abeyance.temporal.retry import retry_until

_RPC: Final = timedelta(seconds=5)


class OwnScope:
    """The scope of one deployment, by the id that Temporal gave its namespace.

    `patience` is how many seconds Temporal is asked for it, the first time.
    """

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience
        self.known: Scope | None = None
        """The scope, once it was read."""

    async def read(self) -> Scope:
        """Return the scope. Raises Unavailable."""
        if self.known is None:
            request = DescribeNamespaceRequest(namespace=self._temporal.namespace)
            service = self._temporal.workflow_service
            found = await retry_until(
                f"the namespace {self._temporal.namespace!r}",
                lambda: service.describe_namespace(request, timeout=_RPC),
                seconds=self._patience,
            )
            self.known = Scope(namespace=found.namespace_info.id, task_queue=self._task_queue)
        return self.known
