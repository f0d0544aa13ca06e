"""Queries, signals and updates of runs: bounded in time, and retried.

The module does not know the meaning of a call. Every call is retried while that may help, updates of one
run pass a limiter, equal queries share one call, and a call to an ended run raises RunEnded.

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
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client as TemporalClient
from temporalio.client import (
    WithStartWorkflowOperation,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import commands, names, views, wire
from abeyance.client.pending_signals import PendingSignals
from abeyance.client.update_errors import is_lost, is_rejected, refusal_of
from abeyance.core.idempotency import conflict
from abeyance.core.state import Status
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.client import unknown_run
from abeyance.history.closing_record import closing_record
from abeyance.history.deleted_runs import DeletedRuns
from abeyance.history.description import RPC, NotOurs, RunDescription, RunEnded, describe, is_run
from abeyance.storage.converter import is_all_sealed, storing_for_update
from abeyance.temporal.retry import (
    LOOKED_AHEAD,
    NotFound,
    RetryableError,
    hedged,
    is_retryable,
    retry_until,
)
from abeyance.temporal.update_limiter import SingleFlight, Turn, UpdateLimiter
from abeyance.temporal.workarounds.calls import PAUSED_NATIVELY, is_unknown_status

T = TypeVar("T")

_POLL: Final = timedelta(seconds=70)
"""Longer than the server holds a long poll before it answers that there is nothing new."""
_READ_PATIENCE: Final = 3.0
_LARGEST: Final = 1_900_000
"""In bytes: Temporal's server takes 2 MB."""
_CACHED_FOR: Final = 600.0
"""Seconds for which a run is cached. Far less than the day for which Temporal keeps an ended run and its
id with it.
"""
_MAX_CACHED: Final = 10_000
_ANSWERS: Final = frozenset({names.REPLAYED, names.EMPTY, names.STILL_ACTIVE})


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
    """`patience` is how many seconds a call is tried before it is `Unavailable`."""

    def __init__(
        self,
        temporal: TemporalClient,
        task_queue: str,
        deleted: DeletedRuns | None = None,
        *,
        patience: float,
    ) -> None:
        self.deleted = DeletedRuns() if deleted is None else deleted
        self.temporal = temporal
        self.task_queue = task_queue
        self.patience = patience
        # Called with a run that had ended when a call reached it.
        self.ended: Callable[[RunDescription], Awaitable[None]] | None = None
        self._cache: OrderedDict[str, CachedRun] = OrderedDict()
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._pending = PendingSignals(temporal, patience=patience)
        self._limiter = UpdateLimiter()
        self._reads: SingleFlight[Any] = SingleFlight()

    async def described(self, run_id: str) -> RunDescription:
        """Describe a run. Raises `unknown_run`, `erased`, and `gone` if only the records have it."""
        try:
            run = await self.describe(run_id)
        except NotFound:
            self._cache.pop(run_id, None)
            raise await self.deleted.refusal(run_id) from None
        self.learn(run_id, run.first, execution=run.execution, start=run.start)
        if not run.is_running:
            # Only ended runs are erased, so a call of an open one need not ask.
            await self.deleted.refuse_erased(run_id)
        return run

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

        Raises the refusal `unknown_run` for what is no run of this deployment.
        """
        cached = self._cached(run_id)
        return (await self.described(run_id)).first if cached is None else cached.first

    async def cached_run(self, run_id: str, *, anew: bool = False) -> CachedRun:
        """Return what never changes of a run: from the cache, unless `anew`. Raises `unknown_run`."""
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

    async def record(self, described: RunDescription) -> views.ClosingRecord:
        """Return the closing record of an ended run. Raises as `described`."""
        ask = partial(closing_record, self.temporal, described)
        try:
            return await retry_until(f"the run {described.run_id!r}", ask, seconds=self.patience)
        except NotFound:
            raise await self.deleted.refusal(described.run_id) from None

    async def poll(
        self, run_id: str, token: bytes, *, only_the_end: bool
    ) -> GetWorkflowExecutionHistoryResponse | None:
        """Return the next events of the run's newest history, or its last event, once there are any.

        The page is empty after some seconds. None if the server cannot be reached or has no room for
        another long poll. Raises the refusal `unknown_run`.
        """
        event_filter = (
            HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
            if only_the_end
            else HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT
        )
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.temporal.namespace,
            execution=WorkflowExecution(workflow_id=run_id),
            next_page_token=token,
            wait_new_event=True,
            history_event_filter_type=event_filter,
            skip_archival=True,
        )
        if only_the_end and not token:
            await self.admit(run_id)
        service = self.temporal.workflow_service
        try:
            page = await service.get_workflow_execution_history(request, timeout=_POLL)
        except RPCError as error:
            if token and error.status == RPCStatusCode.INVALID_ARGUMENT:
                # The run has another history since the token was made.
                return None
            try:
                is_retryable(error)
            except NotFound:
                raise unknown_run(run_id) from None
            return None
        if not (only_the_end or token):
            self._admit_by_history(run_id, page)
        return page

    def _admit_by_history(self, run_id: str, page: GetWorkflowExecutionHistoryResponse) -> None:
        begun = page.history.events[0].workflow_execution_started_event_attributes
        if not is_run(begun) or begun.task_queue.name != self.task_queue:
            raise unknown_run(run_id)
        cached = self._cache.get(run_id)
        if cached is None or cached.first != begun.first_execution_run_id:
            self.learn(run_id, begun.first_execution_run_id, execution="", start={})

    async def refuse_natively_paused(self, run_id: str) -> None:
        """Raise the refusal `natively_paused` if an operator has paused the workflow in Temporal."""
        if (await self.described(run_id)).status == PAUSED_NATIVELY:
            raise Refusal(
                Code.NATIVELY_PAUSED,
                f"The run {run_id!r} is paused through Temporal itself, which refuses this meanwhile. "
                "Unpause it there, and repeat the call.",
                run_id=run_id,
            )

    async def query(
        self, run_id: str, name: str, result_type: type[T], argument: wire.Request | None = None
    ) -> T:
        """Query a run. Raises `unknown_run`, and Unavailable within seconds if no worker answers."""
        await self.admit(run_id)
        async with self.deleted.explained(run_id):
            return await self._ask(run_id, name, result_type, argument)

    async def _ask(
        self, run_id: str, name: str, result_type: type[T], argument: wire.Request | None
    ) -> T:
        about = f"the run {run_id!r}"
        handle = self.temporal.get_workflow_handle(run_id)

        async def ask() -> Any:
            try:
                arguments = [] if argument is None else [argument]
                return await handle.query(
                    name, args=arguments, result_type=result_type, rpc_timeout=RPC
                )
            except ValueError as error:
                # It was paused a moment ago.
                if not is_unknown_status(error):
                    raise
                raise Unavailable(f"{about} is paused through Temporal") from error
            except WorkflowQueryFailedError as error:
                if LOOKED_AHEAD in error.message:
                    raise RetryableError(error.message) from error
                raise Unavailable(
                    f"the worker of {about} could not answer the query: {error.message}"
                ) from error

        seconds = min(self.patience, _READ_PATIENCE)
        same = f"{run_id} {name} {'' if argument is None else argument.model_dump_json()}"
        try:
            fetch = partial(retry_until, about, partial(hedged, ask), seconds=seconds)
            result: T = await self._reads.read(same, fetch)
        except NotFound:
            raise unknown_run(run_id) from None
        return result

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

        `digest` is that of the whole command; "" for what a worker tells, which is not bounded. Raises
        RunEnded, `unknown_run`, and `idempotency_conflict` if this process has sent another command under
        the key; else the run detects it. Raises `queue_full` if the run has not processed earlier ones,
        and `payload_too_large` for what Temporal does not take.
        """
        self._check_size(order)
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
        turn: Turn,
    ) -> T:
        """Send an update, which takes effect once however often it is retried, and return its result.

        Raises the run's Refusal, RunEnded, and the refusals `unknown_run` and `payload_too_large`.
        """
        self._check_size(order)
        update_id = uuid.uuid4().hex

        async def send() -> Any:
            # Not the execution's id: the run may have been continued as new.
            first = await self.admit(run_id)
            handle = self.temporal.get_workflow_handle(run_id, first_execution_run_id=first)
            async with self._limiter.turn(run_id, turn):
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
                    if is_rejected(error):
                        await stored.delete()
                    raise await self._error_of(run_id, error) from error
                except RPCError as error:
                    if error.status == RPCStatusCode.FAILED_PRECONDITION:
                        await self.refuse_natively_paused(run_id)
                    await self._raise_if_gone(run_id, error)
                    raise

        result: T = await retry_until(f"the run {run_id!r}", send, seconds=self.patience)
        return result

    async def start_and_wait(
        self, starting: WithStartWorkflowOperation[Any, Any], until: frozenset[str]
    ) -> tuple[WorkflowHandle[Any, Any], asyncio.Task[views.RunView]]:
        """Start a run and wait for one of its statuses, by one call. Return once the run has started.

        Whoever gets the task awaits or cancels it. It fails if the run has ended at once, or another
        worker has it by now.
        """
        waiting = asyncio.create_task(
            self.temporal.execute_update_with_start_workflow(
                "wait",
                commands.Wait(until=[Status(each) for each in sorted(until)]),
                start_workflow_operation=starting,
                result_type=views.RunView,
                rpc_timeout=RPC,
            )
        )
        # So that asyncio does not log a failure that nobody needs.
        waiting.add_done_callback(lambda task: task.cancelled() or task.exception())
        started = asyncio.ensure_future(starting.workflow_handle())
        try:
            await asyncio.wait({started, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                await waiting
            return await started, waiting
        except BaseException:
            started.cancel()
            waiting.cancel()
            raise

    def stamped(self, name: str, order: wire.Request, execution: str) -> wire.Request:
        """The command with the stamp of its name and run, if runs accept only sealed ones."""
        if not is_all_sealed(self.temporal.data_converter):
            return order
        return order.stamped(wire.Stamp(order=name, execution=execution))

    def _check_size(self, order: wire.Request) -> None:
        # The server gives the worker also an update that cannot be in a history, and meanwhile the run
        # takes no other. With a storage, a reference is all that the server gets.
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
        if (refusal := refusal_of(error)) is not None:
            return refusal
        cause = error.cause
        if isinstance(cause, ApplicationError):
            if cause.type in _ANSWERS:
                return cause
            if is_lost(error):
                return await self._cut_off(run_id, cause.message)
        # Another application's workflow lacks our updates: that is no run, and this raises so.
        await self.described(run_id)
        why = cause.cause if isinstance(cause, ApplicationError) and cause.cause else cause
        return Unavailable(
            f"the worker of the run {run_id!r} could not handle this: {why}. It may have another version "
            "than this client; repeat the call."
        )
