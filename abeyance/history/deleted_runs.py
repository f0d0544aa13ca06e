"""Runs that Temporal has deleted, or is about to: what the archive and their erasures know of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.client import Client as TemporalClient

from abeyance import wire
from abeyance.errors import Code, Refusal
from abeyance.history.audit_chain import content_of
from abeyance.history.client import unknown_run
from abeyance.history.description import NotOurs, describe, described_by_server
from abeyance.storage.archive import Archive
from abeyance.temporal.retry import NotFound, retry_until
from abeyance.util import erasure_workflow_id

DELETED: Final = frozenset({Code.UNKNOWN_RUN, Code.GONE, Code.ERASED})
"""The codes of the refusals of a run that Temporal does not have."""
_STATES: Final[dict[int, wire.ErasureState]] = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING: "erasing",
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: "erased",
}


class DeletedRuns:
    """The deleted runs of a task queue. `archive` None: nothing is known of them but their erasures."""

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        archive: Archive | None = None,
        *,
        patience: float = 10.0,
    ) -> None:
        self.archive = archive
        self._temporal = temporal
        self._task_queue = task_queue
        self._patience = patience

    async def erasure(self, run_id: str) -> wire.ErasureState | None:
        """Return whether a run of this id is being erased, or was; None if neither.

        Raises Unavailable.
        """
        with suppress(NotFound):
            return await self._erasure(run_id)
        is_buried = self.archive is not None and await self.archive.tombstone(run_id) is not None
        return "erased" if is_buried else None

    async def refuse_erased(self, run_id: str) -> None:
        """Raise `erased` for an ended run that Temporal still has, and that is being erased.

        The erasure of an earlier run of this id is over. Raises Unavailable.
        """
        try:
            state = await self._erasure(run_id)
        except NotFound:
            return
        if state == "erasing":
            raise _erased(run_id)

    async def archived(self, run_id: str) -> list[str]:
        """Return the first executions of the archived runs of an id, less those that were erased."""
        if self.archive is None:
            return []
        # An archiver that was killed may have left what was erased.
        erased = await erased_executions(self.archive, run_id)
        return [each for each in await self.archive.executions(run_id) if each not in erased]

    async def refusal(self, run_id: str) -> Refusal:
        """Return the refusal of a call to a run that Temporal does not have: `gone` if it is archived,
        `erased`, or `unknown_run`. Raises Unavailable.
        """
        if await self.archived(run_id):
            return Refusal(
                Code.GONE,
                f"Temporal has deleted the run {run_id!r}. The archive has its view, its result, its "
                "interrupts and its audit, and nothing else of it; it takes no more calls.",
                run_id=run_id,
            )
        if await self.erasure(run_id) is not None:
            return _erased(run_id)
        return unknown_run(run_id)

    async def is_foreign(self, run_id: str) -> bool:
        """Return whether the id is that of another deployment's run, or of another workflow."""
        ask = partial(describe, self._temporal, self._task_queue, run_id)
        try:
            await retry_until(f"the run {run_id!r}", ask, seconds=self._patience)
        except NotFound as error:
            return isinstance(error, NotOurs)
        return False

    @asynccontextmanager
    async def explained(self, run_id: str) -> AsyncIterator[None]:
        """Raise `refusal` where the body raises `unknown_run`."""
        try:
            yield
        except Refusal as refusal:
            if refusal.code is not Code.UNKNOWN_RUN:
                raise
            raise await self.refusal(run_id) from refusal

    async def _erasure(self, run_id: str) -> wire.ErasureState | None:
        """The state of the workflow that erases a run. Raises NotFound, and Unavailable."""
        id_ = erasure_workflow_id(self._task_queue, run_id)
        ask = partial(described_by_server, self._temporal, id_)
        described = await retry_until(
            f"the erasure of the run {run_id!r}", ask, seconds=self._patience
        )
        # One that was terminated has erased nothing.
        return _STATES.get(described.workflow_execution_info.status)


def _erased(run_id: str) -> Refusal:
    return Refusal(
        Code.ERASED,
        f"The run {run_id!r} was erased, or is being erased: nothing of it can be read.",
        run_id=run_id,
    )


async def erased_executions(archive: Archive, run_id: str) -> list[str]:
    """Return the first executions of the runs of an id that were erased, by its tombstone."""
    executions: list[str] = (await tombstone_of(archive, run_id)).get("executions", [])
    return executions


async def tombstone_of(archive: Archive, run_id: str) -> dict[str, Any]:
    """Return the content of the tombstone of an id, empty if there is none."""
    tombstone = await archive.tombstone(run_id)
    return {} if tombstone is None else content_of(tombstone.rstrip(b"\n"))
