"""The activity that records runs."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from temporalio import activity
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from abeyance import names
from abeyance.errors import RecordsUnavailable
from abeyance.history.reading import explained
from abeyance.records.batch import Batch, Written
from abeyance.records.database import Scope
from abeyance.records.writer import Writer
from abeyance.temporal.connection import OwnScope

_MOST: Final = 2_000
"""More executions than a worker has in its cache."""
_LAST_RESORT: Final = 10.0
"""Seconds. With this patience or more, an attempt that is late fails, so that Temporal repeats it."""
_PATIENCE: Final = 5.0
"""Seconds for which the worker keeps asking Temporal for the scope of its records."""


class HandOver:
    """Hands batches from runs to the activity that writes them: the latest batch of each execution.

    An argument of a local activity is encoded, encrypted and, if it is large, stored. So the argument is
    only the number of the batch.
    """

    def __init__(self) -> None:
        self._batches: OrderedDict[str, Batch] = OrderedDict()

    def put(self, execution: str, batch: Batch) -> None:
        """Keep a batch for the activity, in place of an earlier batch of the execution."""
        self._batches[execution] = batch
        self._batches.move_to_end(execution)
        if len(self._batches) > _MOST:
            self._batches.popitem(last=False)

    def take(self, execution: str, number: int) -> Batch | None:
        """Take the batch with this number; None if it is not here."""
        batch = self._batches.pop(execution, None)
        return batch if batch is not None and batch.number == number else None


class RecordingActivities:
    """Records the runs of one worker."""

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        writer: Writer,
        handed_over: HandOver,
    ) -> None:
        self._handed_over = handed_over
        self._temporal = temporal
        self._scope = OwnScope(temporal, task_queue, patience=_PATIENCE)
        self._writer = writer

    def open(self) -> None:
        """Open the database in the background, so that the first batch need not wait for that."""
        self._writer.open(self._read_scope)

    def tell(self, batch: Batch) -> None:
        """Write a batch in the background. It may be lost, because the next one includes it."""
        self._writer.tell(self._read_scope, batch)

    def _read_scope(self) -> Scope:
        return self._scope.known or asyncio.run(self._scope.read())

    @activity.defn(name=names.RECORD_ACTIVITY)
    async def record(self, given: Batch | int, patience: float) -> Written:
        """Write a batch, waiting at most `patience` seconds, and return its outcome.

        A number names a batch that the run has handed over.
        """
        batch: Batch | None
        if isinstance(given, int):
            batch = self._handed_over.take(activity.info().workflow_run_id or "", given)
        else:
            batch = given
        if batch is None:
            return Written(status="late")
        try:
            batch = await explained(self._temporal, activity.info().workflow_id or "", batch)
        except RPCError as error:
            if patience >= _LAST_RESORT:
                raise
            activity.logger.debug("the reset cannot be read now: %s", error)
            return Written(status="late")
        written = await self._writer.write(await self._scope.read(), batch, patience=patience)
        if written.status in ("late", "away") and patience >= _LAST_RESORT:
            raise RecordsUnavailable("the records cannot be written now")
        return written
