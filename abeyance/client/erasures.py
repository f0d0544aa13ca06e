"""Erasing ended runs: their records, their histories, and their stored data.

First the records are deleted, in one transaction that leaves a tombstone: a line of an audit that says
that a run of this id was erased and when, and nothing else about it. The rest is deleted at once, or by
the next call or round if a process is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

from abeyance import wire
from abeyance.client.listing import EXECUTIONS, Listing, of_run
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc, erased, unknown_run
from abeyance.core.json import rfc3339
from abeyance.errors import Code, RecordsUnavailable, Refusal, SettingsError, Unavailable
from abeyance.history.description import RPC, RunDescription
from abeyance.keyring import SigningKey
from abeyance.records import removing
from abeyance.records.audit_chain import ERASED, Chain
from abeyance.records.removing import Erasure, OldRun
from abeyance.storage.blobs import Blobs
from abeyance.temporal.retry import NotFound, attempts, retry_until
from abeyance.util import checked_run_id, notification_queue, notifications_prefix

_AT_ONCE: Final = 3.0
"""In seconds: how long a caller waits for the end of an erasure."""
_GONE_WITHIN: Final = 30.0
"""In seconds: Temporal deletes a history a moment after the request."""
_logger = logging.getLogger("abeyance.erasures")


class Erasures:
    """The erasures of one deployment's runs. `blobs` is the storage of their data."""

    def __init__(
        self,
        line: WorkflowRpc,
        listing: Listing,
        blobs: Blobs,
        *,
        records: Records,
        signing_key: SigningKey | None,
    ) -> None:
        self._records = records
        self._line = line
        self._listing = listing
        self._blobs = blobs
        self._key = signing_key
        self._notifications = Listing(
            line.temporal, notification_queue(line.task_queue), patience=line.patience
        )

    async def erase(self, run_id: str) -> wire.ErasureState:
        """Erase a run that has ended, and return whether any of its data is left.

        Later calls about the run are refused with `erased`. Raises `not_finished` for an open run,
        `unknown_run`, `invalid_run_id`, and Unavailable; then nothing has happened.
        """
        asked_at = datetime.now(UTC)
        described = await self._described(checked_run_id(run_id))
        if described is not None and described.is_running:
            raise _not_finished(run_id, described.shown_status)
        # The clocks of this machine and of Temporal differ.
        at = max(asked_at, (described and described.ended_at) or asked_at)
        erasure = await self._records.read(removing.erasure_of, run_id)
        standing = await self._records.read(removing.standing, run_id)
        is_later = described is not None and (erasure is None or self._is_later(described, erasure))
        if standing == "kept" or is_later:
            erasure = await self._bury(run_id, at, described)
        if erasure is None:
            raise unknown_run(run_id)
        if erasure.is_done and described is None:
            return "erased"
        try:
            async with asyncio.timeout(_AT_ONCE):
                await self._finish(erasure)
        except (TimeoutError, Unavailable, SettingsError):
            # A worker may have the storage that this process lacks.
            return "erasing"
        return "erased"

    @asynccontextmanager
    async def none_of(self, run_id: str) -> AsyncIterator[None]:
        """Raise `erased` if a run of this id is erased while the body begins it anew, and erase the run
        that has begun.
        """
        before = await self._known(run_id)
        yield
        erasure = await self._known(run_id)
        if erasure is not None and (before is None or before.at != erasure.at):
            await self._stopped(erasure)
            raise erased(run_id)

    async def round(self, keep: float | None = None) -> int:
        """Finish erasures that were begun, delete some of the runs that ended more than `keep` seconds
        ago, and return how many runs were deleted. A run that cannot be deleted now is left for a later
        round. Raises Unavailable.
        """
        count = 0
        for erasure in await self._records.read(removing.unfinished):
            count += await self._done(erasure.run_id, self._finish(erasure))
        old: Sequence[OldRun] = ()
        if keep is not None:
            until = datetime.now(UTC) - timedelta(seconds=keep)
            old = await self._records.read(removing.ended_before, until)
        for run in old:
            count += await self._done(run.run_id, self._forget(run))
        return count

    async def _forget(self, run: OldRun) -> None:
        if run.is_newest:
            # The run and Temporal may have different times for the end, so take a later one.
            await self._delete(run.run_id, datetime.now(UTC))
        await self._records.write(removing.remove, [run.row])

    @staticmethod
    async def _done(run_id: str, work: Awaitable[None]) -> bool:
        try:
            await work
        except (Unavailable, SettingsError) as error:
            _logger.warning("run=%s | it is not deleted yet: %s", run_id, error)
            return False
        return True

    async def _described(self, run_id: str) -> RunDescription | None:
        """Describe a run, None if Temporal has deleted it. Another deployment may have its id by now."""
        try:
            return await self._line.describe(run_id)
        except NotFound:
            return None

    @staticmethod
    def _is_later(described: RunDescription, erasure: Erasure) -> bool:
        return described.ended_at is None or described.ended_at > erasure.at

    async def _bury(self, run_id: str, at: datetime, described: RunDescription | None) -> Erasure:
        """Delete the records of a run, and leave the tombstone."""

        def tombstone(origins: Sequence[str]) -> str:
            firsts = {*origins, *([] if described is None else [described.first])}
            content = {
                "type": ERASED,
                "run_id": run_id,
                "time": rfc3339(at),
                "executions": sorted(firsts),
            }
            return Chain(self._key).add(content).decode()

        erasure = Erasure(run_id=run_id, at=at, is_done=False)
        await self._records.write(removing.bury, erasure, tombstone)
        return erasure

    async def _known(self, run_id: str) -> Erasure | None:
        try:
            return await self._records.read(removing.erasure_of, run_id)
        except RecordsUnavailable:
            # Calls that work without the database must not wait for it.
            return None

    async def _stopped(self, erasure: Erasure) -> Erasure:
        """Stop a run that has begun anew while its id was erased, and erase it too."""
        described = await self._described(erasure.run_id)
        if described is None or not self._is_later(described, erasure):
            return erasure
        if described.is_running:
            handle = self._line.temporal.get_workflow_handle(
                erasure.run_id, run_id=described.execution
            )
            stop = partial(handle.terminate, reason="the run was erased", rpc_timeout=RPC)
            with suppress(NotFound):
                await retry_until(f"the run {erasure.run_id!r}", stop, seconds=self._line.patience)
            described = await self._described(erasure.run_id) or described
        at = datetime.now(UTC)
        return await self._bury(erasure.run_id, max(at, described.ended_at or at), described)

    async def _finish(self, erasure: Erasure) -> None:
        erasure = await self._stopped(erasure)
        await self._delete(erasure.run_id, erasure.at)
        await self._records.write(removing.finish, erasure)

    async def _delete(self, run_id: str, until: datetime) -> None:
        """Delete the histories of the ended runs of an id, and their stored data.

        Raises Unavailable.
        """
        ids, has_later = await self._executions(run_id, until)
        # Delete the blobs before the histories, because without a history nobody knows of them. Another
        # deployment may keep its blobs in the same place.
        if (ids or not has_later) and not await self._line.is_foreign(run_id):
            await self._blobs.delete_run(run_id)
        await self._delete_histories(run_id, until, ids)
        await self._delete_notifications(run_id)

    async def _executions(self, run_id: str, until: datetime) -> tuple[set[str], bool]:
        """Return the executions of an id that Temporal has and that had ended by then, and whether a
        later run has the id.
        """
        ids = {
            row.execution.run_id
            for row in await self._listing.all(f"{EXECUTIONS} AND {of_run(run_id)}")
            if row.HasField("close_time") and row.close_time.ToDatetime(tzinfo=UTC) <= until
        }
        # Visibility may not list the newest yet.
        if (newest := await self._described(run_id)) is not None:
            if newest.ended_at is None or newest.ended_at > until:
                return ids, True
            ids.add(newest.execution)
        return ids, False

    async def _delete_histories(self, run_id: str, until: datetime, ids: set[str]) -> None:
        try:
            async with asyncio.timeout(_GONE_WITHIN):
                async for _ in attempts(0.1, 2.0):
                    for execution in ids:
                        await self._delete_history(run_id, execution)
                    ids, _ = await self._executions(run_id, until)
                    if not ids:
                        return
        except TimeoutError as error:
            raise Unavailable(
                f"{len(ids)} histories of the run {run_id!r} are not deleted yet: Temporal was told to"
            ) from error

    async def _delete_notifications(self, run_id: str) -> None:
        """Delete the notifications of a run, also those on their way: they have what the run asked."""
        prefix = notifications_prefix(run_id)
        query = f"WorkflowId STARTS_WITH '{prefix}'"
        for row in await self._notifications.all(query):
            id_ = row.execution.workflow_id
            # A store may take an underscore for any character.
            if id_.startswith(prefix):
                await self._blobs.delete_run(id_)
                await self._delete_history(id_, row.execution.run_id)

    async def _delete_history(self, run_id: str, execution: str) -> None:
        request = DeleteWorkflowExecutionRequest(
            namespace=self._line.temporal.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=execution),
        )
        service = self._line.temporal.workflow_service

        ask = partial(service.delete_workflow_execution, request, timeout=RPC)
        with suppress(NotFound):
            await retry_until(f"the run {run_id!r}", ask, seconds=self._line.patience)


def _not_finished(run_id: str, status: str) -> Refusal:
    return Refusal(
        Code.NOT_FINISHED,
        f"The run {run_id!r} is {status}: cancel it, or wait until it has ended, and erase it then.",
        run_id=run_id,
        run_status=status,
    )
