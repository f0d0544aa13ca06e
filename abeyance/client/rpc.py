"""Signals and updates of runs: bounded in time, and retried.

The module does not know the meaning of a call. Every call is retried while that may help, updates of one
run are sent a few at a time, and a call to an ended run raises RunEnded. No call asks a run for its
state: the records have it, once the run has processed everything sent before.

It reaches the runs of one deployment, which are those of its task queue; any other is an `unknown_run`.
The task queue of a run is in its description and in the first event of its history, and never changes,
so it is cached. An update names the chain of executions and a signal the execution, because the id of a
run that Temporal has deleted may be used again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import names, views, wire
from abeyance.client.pending_signals import PendingSignals
from abeyance.client.records import Records
from abeyance.core.idempotency import conflict
from abeyance.errors import Code, RecordsUnavailable, Refusal, Unavailable
from abeyance.history.description import RPC, NotOurs, RunDescription, RunEnded, describe
from abeyance.history.reading import left_by
from abeyance.records import removing
from abeyance.records.batch import Batch
from abeyance.storage.converter import is_all_sealed, storing_for_update
from abeyance.temporal.retry import (
    NotFound,
    RetryableError,
    attempts,
    retry_until,
)
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY

T = TypeVar("T")

DELETED: Final = frozenset({Code.UNKNOWN_RUN, Code.GONE, Code.ERASED})
"""The codes of the refusals of a run that Temporal does not have."""

_CAUGHT_UP: Final = 3.0
"""In seconds: how long a reader of a run waits for its worker."""
_CLOSED_WITHIN: Final = 5.0
_STUCK: Final = timedelta(seconds=3)
"""No caller waits for a workflow task of this age."""
_LARGEST: Final = 1_900_000
"""In bytes: Temporal's server takes 2 MB."""
_CACHED_FOR: Final = 600.0
"""Seconds for which a run is cached. Far less than the day for which Temporal keeps an ended run and its
id with it.
"""
_MAX_CACHED: Final = 10_000
_UPDATES_AT_ONCE: Final = 4
"""The updates of one run that this process sends at once: the server aborts those beyond ten."""
_ANSWERS: Final = frozenset({names.REPLAYED, names.EMPTY, names.STILL_ACTIVE})
_CODES: Final = frozenset(Code)
_LOST: Final = frozenset({"UnprocessedUpdate", "AcceptedUpdateCompletedWorkflow"})
"""The server's errors for an update that was lost with its workflow task or with its history, because the
worker was busy or the run was continued as new at that moment.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedRun:
    """A run of the deployment, as this process has cached it.

    `first` is the run's first execution, which never changes; `execution` the latest that was seen, ""
    if none was. `graph` and `guarded_by` are None if the memo lacks them.
    """

    first: str
    execution: str
    graph: str | None
    guarded_by: tuple[str, ...] | None
    since: float


class WorkflowRpc:
    """Calls to the runs of one deployment, each tried for `patience` seconds before `Unavailable`."""

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        records: Records,
        *,
        patience: float,
    ) -> None:
        self.temporal = temporal
        self.task_queue = task_queue
        self._records = records
        self.patience = patience
        # Called with a run that had ended when a call reached it.
        self.ended: Callable[[RunDescription], Awaitable[None]] | None = None
        # Called with the id of a run that Temporal has deleted.
        self.gone: Callable[[str], Awaitable[None]] | None = None
        self._cache: OrderedDict[str, CachedRun] = OrderedDict()
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._pending = PendingSignals(temporal, patience=patience)
        self._updates: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def described(self, run_id: str) -> RunDescription:
        """Describe a run. Raises `unknown_run`, `erased`, and `gone` if only the records have it."""
        try:
            run = await self.describe(run_id)
        except NotFound:
            self._cache.pop(run_id, None)
            refusal = await self.refusal(run_id)
            if refusal.code is Code.GONE and self.gone is not None:
                await self.gone(run_id)
            raise refusal from None
        self.learn(run_id, run.first, execution=run.execution, start=run.start)
        if not run.is_running:
            # Only ended runs are erased, so a call to an open run need not ask.
            await self.refuse_erased(run_id)
        return run

    async def refuse_erased(self, run_id: str) -> None:
        """Raise `erased` if the run of this id was or is being erased, and no later run has the id."""
        try:
            standing = await self._records.read(removing.standing, run_id)
        except RecordsUnavailable:
            # Calls that work without the database must not wait for it.
            return
        if standing == "erased":
            raise erased(run_id)

    async def refusal(self, run_id: str) -> Refusal:
        """Return the refusal of a call to a run that Temporal does not have: `gone` if the records have
        it, `erased`, or `unknown_run`. Raises Unavailable.
        """
        match await self._records.read(removing.standing, run_id):
            case "kept":
                return Refusal(
                    Code.GONE,
                    f"Temporal has deleted the run {run_id!r}. Its view, its result, its interrupts, its "
                    "events and its audit can be read; it takes no more calls.",
                    run_id=run_id,
                )
            case "erased":
                return erased(run_id)
            case "unknown":
                return unknown_run(run_id)

    async def describe(self, run_id: str) -> RunDescription:
        """Describe a run, even one that is being erased. Raises NotFound."""
        ask = partial(describe, self.temporal, self.task_queue, run_id)
        return await retry_until(f"the run {run_id!r}", ask, seconds=self.patience)

    async def is_foreign(self, run_id: str) -> bool:
        """Return whether the id is that of another deployment's run, or of another workflow."""
        try:
            await self.describe(run_id)
        except NotFound as error:
            return isinstance(error, NotOurs)
        return False

    async def admit(self, run_id: str) -> str:
        """Return the first execution of a run, which continue-as-new and resets do not change.

        Raises the refusal `unknown_run` for an id that no run of this deployment has.
        """
        cached = self._cached(run_id)
        return (await self.described(run_id)).first if cached is None else cached.first

    async def cached_run(self, run_id: str, *, anew: bool = False) -> CachedRun:
        """Return the facts of a run that never change: from the cache, unless `anew`. Raises
        `unknown_run`.
        """
        cached = self._cached(run_id)
        if cached is None or anew or not cached.execution:
            await self.described(run_id)
            cached = self._cache[run_id]
        return cached

    def _cached(self, run_id: str) -> CachedRun | None:
        cached = self._cache.get(run_id)
        return cached if cached and time.monotonic() - cached.since < _CACHED_FOR else None

    def learn(self, run_id: str, first: str, *, execution: str, start: Mapping[str, Any]) -> None:
        """Cache a run of the deployment, with what its memo has of its start."""
        guards = start.get("guarded_by")
        self._cache[run_id] = CachedRun(
            first=first,
            execution=execution,
            graph=start.get("graph"),
            guarded_by=None if guards is None else tuple(guards),
            since=time.monotonic(),
        )
        self._cache.move_to_end(run_id)
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)

    async def left_by(self, described: RunDescription) -> Batch | views.RunView | None:
        """Return the batch or the view that an ended run has left, or None, as `history.reading.left_by`.

        Raises as `described`.
        """
        ask = partial(left_by, self.temporal, described)
        try:
            return await retry_until(f"the run {described.run_id!r}", ask, seconds=self.patience)
        except NotFound:
            raise await self.refusal(described.run_id) from None

    async def closed(self, run_id: str) -> None:
        """Wait until Temporal has closed a run that has recorded its end, for some seconds at most.

        So a caller that reads of the end can retry the run, or use its id. Raises as `described`.
        """
        until = time.monotonic() + _CLOSED_WITHIN
        async for pause in attempts(0.01, 0.2):
            if time.monotonic() > until or not (await self.described(run_id)).is_running:
                return
            await asyncio.sleep(pause)

    async def refuse_natively_paused(self, run_id: str) -> None:
        """Raise the refusal `natively_paused` if an operator has paused the workflow in Temporal."""
        if (await self.described(run_id)).status == PAUSED_NATIVELY:
            raise Refusal(
                Code.NATIVELY_PAUSED,
                f"The run {run_id!r} is paused through Temporal itself, which refuses this meanwhile. "
                "Unpause it there, and repeat the call.",
                run_id=run_id,
            )

    async def caught_up(self, run_id: str) -> RunDescription:
        """Describe a run once it has processed everything sent before this call, so that it is recorded.

        If no worker processes the run, this describes it after three seconds, or at once if its task has
        waited for longer already. Raises as `described`.
        """
        return (await self.processed(run_id))[0]

    async def processed(
        self, run_id: str, *, seconds: float | None = None
    ) -> tuple[RunDescription, bool]:
        """Describe a run as `caught_up`, after so many seconds at most, and say whether it has processed
        what came before. Raises as `described`.
        """
        described = await self.described(run_id)
        until = time.monotonic() + (_CAUGHT_UP if seconds is None else seconds)
        tasks: set[datetime] = set()
        awaited, has_worker = 1, False
        async for pause in attempts(0.003, 0.1):
            if described.task is None:
                return described, True
            scheduled, is_begun = described.task
            if not tasks and is_begun:
                # Signals since that task began are in the next task.
                awaited = 2
            tasks.add(scheduled)
            # A task that no worker has begun may have been scheduled anew.
            has_worker |= is_begun
            if has_worker and len(tasks) > awaited:
                return described, True
            is_old = datetime.now(UTC) - scheduled > _STUCK or described.is_retried
            if time.monotonic() > until or (seconds is None and is_old and not is_begun):
                break
            await asyncio.sleep(pause)
            described = await self.described(run_id)
        return described, False

    async def signal(
        self,
        run_id: str,
        name: str,
        order: wire.Request,
        *,
        key: str | None = None,
        digest: str = "",
    ) -> None:
        """Send a signal: one call, if the run is cached.

        `digest` is that of the whole command; "" for a signal of a worker, whose number is not bounded.
        Raises RunEnded, `unknown_run`, and `idempotency_conflict` if this process sent another command
        under the key; else the run detects it. Raises `queue_full` if the run has not processed earlier
        signals, and `payload_too_large` for a command that Temporal does not take.
        """
        self.check_size(order)
        first = (await self.cached_run(run_id)).first
        if key is not None and self._sent.get((first, key), digest) != digest:
            raise conflict(key)

        async def send() -> None:
            run = await self.cached_run(run_id)
            # A run that was continued as new has another execution: then it is described again.
            handle = self.temporal.get_workflow_handle(run_id, run_id=run.execution)
            try:
                await handle.signal(name, self.stamped(name, order, run.first), rpc_timeout=RPC)
            except RPCError as error:
                await self._raise_if_gone(run_id, error)
                raise

        size = len(order.model_dump_json().encode())
        async with self._pending.room(run_id, name, size) if digest else nullcontext():
            await retry_until(f"the run {run_id!r}", send, seconds=self.patience)
        if key is not None:
            self._sent[first, key] = digest
            if len(self._sent) > _MAX_CACHED:
                self._sent.popitem(last=False)

    async def update(
        self,
        run_id: str,
        name: str,
        order: wire.Request,
        result_type: type[T] | None,
    ) -> T:
        """Send an update, which takes effect once however often it is retried, and return its result.

        Raises the run's Refusal, RunEnded, and the refusals `unknown_run` and `payload_too_large`.
        """
        self.check_size(order)
        update_id = uuid.uuid4().hex
        few = self._updates.setdefault(run_id, asyncio.Semaphore(_UPDATES_AT_ONCE))

        async def send() -> Any:
            # Not the execution's id: the run may have been continued as new.
            first = await self.admit(run_id)
            handle = self.temporal.get_workflow_handle(run_id, first_execution_run_id=first)
            async with few:
                try:
                    with storing_for_update() as stored:
                        return await handle.execute_update(
                            name,
                            self.stamped(name, order, first),
                            id=update_id,
                            result_type=result_type,
                            rpc_timeout=RPC,
                        )
                except WorkflowUpdateFailedError as error:
                    if _is_rejected(error):
                        await stored.delete()
                    raise await self._error_of(run_id, error) from error
                except RPCError as error:
                    if error.status == RPCStatusCode.FAILED_PRECONDITION:
                        await self.refuse_natively_paused(run_id)
                    await self._raise_if_gone(run_id, error)
                    raise

        result: T = await retry_until(f"the run {run_id!r}", send, seconds=self.patience)
        return result

    def stamped(self, name: str, order: wire.Request, execution: str) -> wire.Request:
        """Return the command with the stamp of its name and run, if runs accept only sealed commands."""
        if not is_all_sealed(self.temporal.data_converter):
            return order
        return order.stamped(wire.Stamp(order=name, execution=execution))

    def check_size(self, order: wire.Request) -> None:
        """Raise `payload_too_large` for a command that no history has room for."""
        # The server gives a worker even an update that is too large for a history, and the run takes no
        # other meanwhile. With external storage the server gets only a reference.
        if self.temporal.data_converter.external_storage is not None:
            return
        actual = len(order.model_dump_json().encode())
        if actual > _LARGEST:
            raise Refusal(
                Code.PAYLOAD_TOO_LARGE,
                f"The call has {actual} bytes; the limit is {_LARGEST} bytes. Send a reference to large "
                "data.",
                limit=_LARGEST,
                actual=actual,
            )

    async def _raise_if_gone(self, run_id: str, error: RPCError) -> None:
        """Raise RunEnded, `unknown_run` or RetryableError if the execution was not found."""
        if error.status == RPCStatusCode.NOT_FOUND:
            raise await self._cut_off(run_id, error.message) from error

    async def _cut_off(self, run_id: str, reason: str) -> RunEnded | RetryableError:
        described = await self.described(run_id)
        if described.is_running:
            return RetryableError(reason)
        if self.ended is not None:
            await self.ended(described)
        return RunEnded(described)

    async def _error_of(self, run_id: str, error: WorkflowUpdateFailedError) -> Exception:
        if (refusal := _refusal_of(error)) is not None:
            return refusal
        cause = error.cause
        if isinstance(cause, ApplicationError):
            if cause.type in _ANSWERS:
                return cause
            if _is_lost(error):
                return await self._cut_off(run_id, cause.message)
        # A workflow of another application lacks our updates. This call raises that it is not a run.
        await self.described(run_id)
        why = cause.cause if isinstance(cause, ApplicationError) and cause.cause else cause
        return Unavailable(
            f"the worker of the run {run_id!r} could not handle this: {why}. It may have another version "
            "than this client; repeat the call."
        )


def unknown_run(run_id: str) -> Refusal:
    """Return the refusal of a run that does not exist."""
    return Refusal(
        Code.UNKNOWN_RUN,
        f"There is no run {run_id!r}, or its history is no longer kept.",
        run_id=run_id,
    )


def erased(run_id: str) -> Refusal:
    """Return the refusal of a run that was erased."""
    return Refusal(
        Code.ERASED,
        f"The run {run_id!r} was erased, or is being erased: nothing of it can be read.",
        run_id=run_id,
    )


def _is_lost(error: WorkflowUpdateFailedError) -> bool:
    """Return whether the server lost an update, which may be sent again under the same id."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in _LOST


def _is_rejected(error: WorkflowUpdateFailedError) -> bool:
    """Return whether a validator rejected an update, so that no history has it."""
    cause = error.cause
    if not isinstance(cause, ApplicationError):
        return False
    return cause.type == names.REPLAYED or names.REJECTED in cause.details[1:]


def _refusal_of(error: WorkflowUpdateFailedError) -> Refusal | None:
    """Return the refusal of an update; None if it failed otherwise."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in _CODES:
        return None
    details = cause.details[0] if cause.details else {}
    return Refusal(Code(cause.type), cause.message, **details)
