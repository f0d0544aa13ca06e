"""Erasing an ended run: its histories, what is stored of it, and its archive.

A workflow does it, so that what was begun is done, whatever is killed. What remains is a tombstone: a
line of an audit that says that a run of this id was erased and when, and nothing of the run. It is in the
archive, or without one in the memo of that workflow, which Temporal keeps for its retention.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from abeyance import names, wire
from abeyance.client.audits import Audits
from abeyance.client.listing import Listing
from abeyance.client.records import Records
from abeyance.client.rpc import WorkflowRpc
from abeyance.core.json import rfc3339
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.audit_chain import ERASED, Chain
from abeyance.history.client import HistoryClient, unknown_run
from abeyance.history.deleted_runs import erased_executions
from abeyance.history.description import RPC
from abeyance.keyring import SigningKey
from abeyance.records import outside
from abeyance.storage.blobs import Blobs
from abeyance.temporal.retry import NotFound, attempts, retry_until
from abeyance.util import (
    checked_run_id,
    erasure_workflow_id,
    notification_queue,
    notifications_prefix,
)

_GONE_WITHIN: Final = 30.0
"""In seconds: Temporal deletes a history a moment after it was told to."""


class Erasures:
    """The erasures of one deployment's runs. `blobs` is what workers store of them."""

    def __init__(
        self,
        line: WorkflowRpc,
        listing: Listing,
        blobs: Blobs,
        audits: Audits,
        *,
        records: Records,
        signing_key: SigningKey | None,
    ) -> None:
        self._records = records
        self._line = line
        self._listing = listing
        self._blobs = blobs
        self._audits = audits
        self._key = signing_key
        self._notifications = Listing(
            line.temporal, notification_queue(line.task_queue), patience=line.patience
        )
        self._histories = HistoryClient(line.temporal, line.task_queue, patience=line.patience)

    async def begin(self, run_id: str) -> wire.ErasureState:
        """Begin to erase a run that has ended, and return whether that is under way or done.

        From then on the run is refused as `erased`. Raises `not_finished` for an open run,
        `unknown_run`, `invalid_run_id`, and Unavailable.
        """
        order = wire.Erase(run_id=checked_run_id(run_id), requested_at=datetime.now(UTC))
        try:
            described = await self._line.described(run_id)
        except Refusal as refusal:
            if refusal.code not in (Code.GONE, Code.ERASED):
                raise
            if await self._line.deleted.is_foreign(run_id):
                raise unknown_run(run_id) from None
            state, archive = await self._line.deleted.erasure(run_id), self._audits.archive
            # Of a later run of this id, or left by an archiver that was killed.
            is_archived = archive is not None and bool(await archive.executions(run_id))
            if state is not None and (state == "erasing" or not is_archived):
                return state
        else:
            if described.is_running:
                raise _not_finished(run_id, described.shown_status)
            # The clocks of this machine and of Temporal differ.
            at = max(order.requested_at, described.ended_at or order.requested_at)
            order = order.model_copy(update={"requested_at": at, "execution": described.execution})

        async def start() -> None:
            await self._line.temporal.start_workflow(
                names.ERASURE_WORKFLOW,
                order,
                id=erasure_workflow_id(self._line.task_queue, run_id),
                task_queue=self._line.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                rpc_timeout=RPC,
            )

        await retry_until(f"the run {run_id!r}", start, seconds=self._line.patience)
        return "erasing"

    async def perform(self, order: wire.Erase) -> str:
        """Erase what had ended of an id when that was requested, and return the tombstone.

        Repeating it changes nothing. Raises Unavailable.
        """
        run_id, archive = order.run_id, self._audits.archive
        ids, later = await self._executions(order)
        erased = {await self._first(run_id, id_) for id_ in ids}
        if archive is not None:
            archived = {*await archive.executions(run_id)} - later
            erased |= {*archived, *await erased_executions(archive, run_id)}
        content = {
            "type": ERASED,
            "run_id": run_id,
            "time": rfc3339(order.requested_at),
            "executions": sorted(erased - {""}),
        }
        tombstone = Chain(self._key).add(content)
        if archive is not None:
            # First, so that an archiver that has read the run before does not keep what it writes.
            await archive.bury(run_id, tombstone + b"\n")
        await self._records.write(outside.erase, run_id, order.requested_at)
        # Before the histories: without those a new run may have the id, and blobs of its own.
        if ids or not later:
            await self._blobs.delete_run(run_id)
        await self._delete_histories(order, ids)
        await self._delete_notifications(run_id)
        if archive is not None:
            for execution in erased & {*await archive.executions(run_id)}:
                await archive.delete(run_id, execution)
        return tombstone.decode()

    async def _executions(self, order: wire.Erase) -> tuple[set[str], set[str]]:
        """The executions that had ended when the erasure was requested, of those that Temporal has; and
        the first one of a run that has taken the id since.
        """
        # No character of a run's id has to be quoted.
        query = f"WorkflowType = '{names.WORKFLOW}' AND WorkflowId = '{order.run_id}'"
        ids = {
            row.execution.run_id
            for row in await self._listing.all(query)
            if row.HasField("close_time")
            and row.close_time.ToDatetime(tzinfo=UTC) <= order.requested_at
        }
        later = set[str]()
        # Visibility may not list them yet.
        for execution in {order.execution, ""}:
            with suppress(NotFound):
                found = await self._histories.execution(order.run_id, execution)
                if found.ended_at is None or found.ended_at > order.requested_at:
                    later.add(found.first)
                else:
                    ids.add(found.id)
        return ids, later

    async def _first(self, run_id: str, execution: str) -> str:
        try:
            return (await self._histories.execution(run_id, execution)).first
        except NotFound:
            return ""

    async def _delete_histories(self, order: wire.Erase, ids: set[str]) -> None:
        run_id = order.run_id
        try:
            async with asyncio.timeout(_GONE_WITHIN):
                async for _ in attempts(0.1, 2.0):
                    for execution in ids:
                        await self._delete_history(run_id, execution)
                    ids, _ = await self._executions(order)
                    if not ids:
                        return
        except TimeoutError as error:
            raise Unavailable(
                f"{len(ids)} histories of the run {run_id!r} are not deleted yet: Temporal was told to"
            ) from error

    async def _delete_notifications(self, run_id: str) -> None:
        """Delete what people were notified of, also if it is on its way: it has what the run asked."""
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
