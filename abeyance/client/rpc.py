"""One process's line to the runs in Temporal: what is sent and asked, bounded and repeated.

It knows nothing of what a call means. Every call is made again while that may help, updates of one run
pass a turnstile, reads of one run are shared, and an update that finds its run ended says so.

It leads to the runs of one deployment, which are those of its task queue: of another one's the answer is
that there is no such run. Whose a run is, the server tells by describing it, or by the first event of its
history, and it never changes; so it is remembered for a while. An update names the chain of executions
that is meant and a signal the execution, because the id of a run that Temporal has forgotten may be given
to another.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
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
from temporalio.client import WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.core.idempotency import conflict
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history.client import unknown_run
from abeyance.history.closing_record import closing_record
from abeyance.history.description import PAUSED_NATIVELY, NotOurs, RunDescription, describe
from abeyance.storage.converter import is_all_sealed
from abeyance.temporal.retry import (
    LOOKED_AHEAD,
    NotFound,
    RetryableError,
    hedged,
    is_retryable,
    retry_until,
)
from abeyance.temporal.update_limiter import SingleFlight, Turn, UpdateLimiter

T = TypeVar("T")

RPC: Final = timedelta(seconds=5)
"""How long one call over the network may take."""
_POLL: Final = timedelta(seconds=70)
"""Longer than the server lets a long poll wait before it answers that there is nothing new."""
_READ_PATIENCE: Final = 3.0
_KNOWN_FOR: Final = 600.0
"""Seconds for which a run is known to be ours. Far less than the day for which Temporal keeps an ended
run: until then nobody else can have its id.
"""
_MOST_KNOWN: Final = 10_000
_CODES: Final = frozenset(Code)
_ANSWERS: Final = frozenset({wire.REPLAYED, wire.EMPTY, wire.STILL_ACTIVE})
_LOST: Final = frozenset({"UnprocessedUpdate", "AcceptedUpdateCompletedWorkflow"})
"""What the server itself says of an update that went under with the task which brought it to a worker, or
with the history that accepted it: it was busy, or the run was handed over in that moment.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRun:
    """What this process remembers of a run of its deployment.

    `first` is the run's first execution, which never changes; `execution` the one that was last seen, ""
    if none was. `graph` and `guarded_by` are None where the run has not written them down.
    """

    first: str
    execution: str
    graph: str | None
    guarded_by: tuple[str, ...] | None
    since: float


class RunEnded(Exception):
    """Something was sent to a run that had ended."""

    def __init__(self, described: RunDescription) -> None:
        self.described = described
        super().__init__(described.run_id)


class WorkflowRpc:
    """`patience` is how many seconds a call is tried before it is `Unavailable`."""

    def __init__(self, temporal: TemporalClient, task_queue: str, *, patience: float) -> None:
        self.temporal = temporal
        self.task_queue = task_queue
        self.patience = patience
        self._known: OrderedDict[str, KnownRun] = OrderedDict()
        self._sent: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._turnstile = UpdateLimiter()
        self._reads: SingleFlight[Any] = SingleFlight()

    async def described(self, run_id: str) -> RunDescription:
        """What the server knows of a run. Raises the refusal `unknown_run`."""
        ask = partial(describe, self.temporal, self.task_queue, run_id, RPC)
        try:
            found = await retry_until(run_id, ask, seconds=self.patience)
        except NotFound:
            self._known.pop(run_id, None)
            raise unknown_run(run_id) from None
        start = found.memo.get(wire.MEMO_START) or {}
        self.learn(run_id, found.first, execution=found.execution, start=start)
        return found

    async def admit(self, run_id: str) -> str:
        """The first execution of a run of ours: it stays the same over hand-overs and resets.

        Raises the refusal `unknown_run`.
        """
        known = self._remembered(run_id)
        return (await self.described(run_id)).first if known is None else known.first

    async def known(self, run_id: str, *, anew: bool = False) -> KnownRun:
        """What never changes of a run, without a call to the server if this process has seen the run
        lately, unless it is wanted `anew`. Raises the refusal `unknown_run`.
        """
        known = self._remembered(run_id)
        if known is None or anew or not known.execution:
            await self.described(run_id)
            known = self._known[run_id]
        return known

    def _remembered(self, run_id: str) -> KnownRun | None:
        known = self._known.get(run_id)
        return known if known and time.monotonic() - known.since < _KNOWN_FOR else None

    async def is_anothers(self, run_id: str) -> bool:
        """Whether the id is that of another deployment's run, or of somebody else's workflow."""
        ask = partial(describe, self.temporal, self.task_queue, run_id, RPC)
        try:
            await retry_until(run_id, ask, seconds=self.patience)
        except NotOurs:
            return True
        except NotFound:
            pass
        return False

    def learn(self, run_id: str, first: str, *, execution: str, start: Mapping[str, Any]) -> None:
        """Remember that a run is ours, and what its memo says of its start."""
        guards = start.get("guarded_by")
        self._known[run_id] = KnownRun(
            first=first,
            execution=execution,
            graph=start.get("graph"),
            guarded_by=None if guards is None else tuple(guards),
            since=time.monotonic(),
        )
        self._known.move_to_end(run_id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    async def record(self, described: RunDescription) -> wire.ClosingRecord:
        """What an ended run left behind. Raises the refusal `unknown_run`."""
        ask = partial(closing_record, self.temporal, described, RPC)
        try:
            return await retry_until(described.run_id, ask, seconds=self.patience)
        except NotFound:
            raise unknown_run(described.run_id) from None

    async def poll(
        self, run_id: str, token: bytes, *, only_the_end: bool
    ) -> GetWorkflowExecutionHistoryResponse | None:
        """What comes next in the run's newest history, or its end alone, as soon as it is there.

        It may be empty, after some seconds. None where the server cannot be reached, or has no room for
        one more who waits. Raises the refusal `unknown_run`.
        """
        wanted = (
            HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
            if only_the_end
            else HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT
        )
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.temporal.namespace,
            execution=WorkflowExecution(workflow_id=run_id),
            next_page_token=token,
            wait_new_event=True,
            history_event_filter_type=wanted,
            skip_archival=True,
        )
        if only_the_end and not token:
            await self.admit(run_id)
        service = self.temporal.workflow_service
        try:
            page = await service.get_workflow_execution_history(request, timeout=_POLL)
        except RPCError as error:
            if token and error.status == RPCStatusCode.INVALID_ARGUMENT:
                # The history has become another one since the token was given.
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
        is_run = begun.workflow_type.name == wire.WORKFLOW
        if not is_run or begun.task_queue.name != self.task_queue:
            raise unknown_run(run_id)
        known = self._known.get(run_id)
        if known is None or known.first != begun.first_execution_run_id:
            self.learn(run_id, begun.first_execution_run_id, execution="", start={})

    async def refuse_natively_paused(self, run_id: str) -> None:
        """Raise the refusal `natively_paused` if an operator has paused the run in Temporal itself."""
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
        """What a worker says of a run now. Raises Unavailable, soon, if none can.

        Raises the refusal `unknown_run`.
        """
        await self.admit(run_id)
        return await self.ask(run_id, name, result_type, argument)

    async def ask(
        self, run_id: str, name: str, result_type: type[T], argument: wire.Request | None = None
    ) -> T:
        """The same of any workflow, for one whose id can be nobody else's."""
        handle = self.temporal.get_workflow_handle(run_id)

        async def ask() -> Any:
            try:
                given = [] if argument is None else [argument]
                return await handle.query(
                    name, args=given, result_type=result_type, rpc_timeout=RPC
                )
            except ValueError as error:
                # The SDK does not know the status of a run that was natively paused a moment ago.
                if "WorkflowExecutionStatus" not in str(error):
                    raise
                raise Unavailable(f"the run {run_id!r} is paused through Temporal") from error
            except WorkflowQueryFailedError as error:
                if LOOKED_AHEAD in error.message:
                    raise RetryableError(error.message) from error
                raise Unavailable(
                    f"the worker that has the run {run_id!r} could not tell of it: {error.message}"
                ) from error

        seconds = min(self.patience, _READ_PATIENCE)
        same = f"{run_id} {name} {'' if argument is None else argument.model_dump_json()}"
        try:
            fetch = partial(retry_until, run_id, partial(hedged, ask), seconds=seconds)
            found: T = await self._reads.read(same, fetch)
        except NotFound:
            raise unknown_run(run_id) from None
        return found

    async def signal(
        self,
        run_id: str,
        name: str,
        order: wire.Request,
        *,
        key: str | None = None,
        digest: str = "",
    ) -> None:
        """Send a signal: one call, if this process has seen the run lately.

        `digest` is that of the whole order. Raises RunEnded, `unknown_run`, and `idempotency_conflict` if
        this process has sent another order under the key: else the run finds that out.
        """
        known = await self.known(run_id)
        if key is not None and self._sent.get((known.first, key), digest) != digest:
            raise conflict(key)

        async def send() -> None:
            known = await self.known(run_id)
            # A run that was handed over since has another execution by now: then it is looked up.
            handle = self.temporal.get_workflow_handle(run_id, run_id=known.execution)
            try:
                await handle.signal(name, self._stamped(name, order, known.first), rpc_timeout=RPC)
            except RPCError as error:
                await self._raise_if_gone(run_id, error)
                raise

        await retry_until(run_id, send, seconds=self.patience)
        if key is not None:
            self._sent[known.first, key] = digest
            if len(self._sent) > _MOST_KNOWN:
                self._sent.popitem(last=False)

    async def update(
        self,
        run_id: str,
        name: str,
        order: wire.Request,
        result_type: type[T] | None,
        turn: Turn,
    ) -> T:
        """Send an update, once however often it is tried, and wait for its result.

        Raises what the run refuses, RunEnded, and the refusal `unknown_run`.
        """
        update_id = uuid.uuid4().hex

        async def send() -> Any:
            # Without a run id of Temporal's: the run may have been handed over to a new one.
            first = await self.admit(run_id)
            handle = self.temporal.get_workflow_handle(run_id, first_execution_run_id=first)
            async with self._turnstile.turn(run_id, turn):
                try:
                    return await handle.execute_update(
                        name,
                        self._stamped(name, order, first),
                        id=update_id,
                        result_type=result_type,
                        rpc_timeout=RPC,
                    )
                except WorkflowUpdateFailedError as error:
                    raise await self._meant_by(run_id, error) from error
                except RPCError as error:
                    if error.status == RPCStatusCode.FAILED_PRECONDITION:
                        await self.refuse_natively_paused(run_id)
                    await self._raise_if_gone(run_id, error)
                    raise

        found: T = await retry_until(run_id, send, seconds=self.patience)
        return found

    def _stamped(self, name: str, order: wire.Request, execution: str) -> wire.Request:
        """The order as it is sent this once, where only what is sealed is taken."""
        if not is_all_sealed(self.temporal.data_converter):
            return order
        nonce = f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(6)}"
        stamp = wire.Stamp(
            order=name,
            execution=execution,
            nonce=nonce,
            shown={} if order.stamp is None else order.stamp.shown,
        )
        return order.stamped(stamp)

    async def _raise_if_gone(self, run_id: str, error: RPCError) -> None:
        """Raise RunEnded, `unknown_run` or Again if an error says that there is nothing to send to."""
        if error.status == RPCStatusCode.NOT_FOUND:
            raise await self._cut_off(run_id, error.message) from error

    async def _cut_off(self, run_id: str, reason: str) -> RunEnded | RetryableError:
        described = await self.described(run_id)
        return RunEnded(described) if not described.is_running else RetryableError(reason)

    async def _meant_by(self, run_id: str, error: WorkflowUpdateFailedError) -> Exception:
        if (refusal := refusal_of(error)) is not None:
            return refusal
        cause = error.cause
        if isinstance(cause, ApplicationError):
            if cause.type in _ANSWERS:
                return cause
            if is_lost(error):
                return await self._cut_off(run_id, cause.message)
        # Somebody else's workflow does not know our updates, and is no run.
        await self.described(run_id)
        why = cause.cause if isinstance(cause, ApplicationError) and cause.cause else cause
        return Unavailable(
            f"the worker that has the run {run_id!r} could not take this: {why}. It may be of another "
            "version than this client; the same call may be repeated."
        )


def is_lost(error: WorkflowUpdateFailedError) -> bool:
    """Whether an update went under in the server, and may be sent again under the same id."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in _LOST


def refusal_of(error: WorkflowUpdateFailedError) -> Refusal | None:
    """The refusal with which a workflow turned an update away; None if it failed otherwise."""
    cause = error.cause
    if not isinstance(cause, ApplicationError) or cause.type not in _CODES:
        return None
    details = cause.details[0] if cause.details else {}
    return Refusal(Code(cause.type), cause.message, **details)
