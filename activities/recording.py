"""The activity by which runs are recorded."""

from __future__ import annotations

from typing import Final

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client as TemporalClient

from abeyance import names
from abeyance.errors import RecordsUnavailable
from abeyance.records.batch import Batch, Written
from abeyance.records.database import Database, Scope
from abeyance.records.writer import Writer

_IS_LAST_RESORT: Final = 10.0
"""In seconds: with more patience an attempt fails, so that Temporal begins another one."""


class RecordingActivities:
    """Records the runs of one worker."""

    def __init__(self, temporal: TemporalClient, task_queue: str, database: Database) -> None:
        self._scopes = Scopes(temporal, task_queue)
        self._writer = Writer(database)
        self._writer.open()

    @activity.defn(name=names.RECORD_ACTIVITY)
    async def record(self, batch: Batch, patience: float) -> Written:
        """Write a batch, waiting so many seconds at most, and return what became of it."""
        written = await self._writer.write(await self._scopes.own(), batch, patience=patience)
        if written != "written" and patience > _IS_LAST_RESORT:
            message = "the records cannot be written now"
            raise RecordsUnavailable(message)
        return written


class Scopes:
    """Knows whose records those of a connection are."""

    def __init__(self, temporal: TemporalClient, task_queue: str) -> None:
        self._temporal = temporal
        self._task_queue = task_queue
        self._scope: Scope | None = None

    async def own(self) -> Scope:
        """Return the deployment's scope, by the id that Temporal gave the namespace."""
        if self._scope is None:
            found = await self._temporal.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self._temporal.namespace)
            )
            self._scope = Scope(namespace=found.namespace_info.id, task_queue=self._task_queue)
        return self._scope
