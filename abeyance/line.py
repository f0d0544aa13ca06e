"""One process's line to the runs in Temporal: what is sent and asked, bounded and repeated.

It knows nothing of what a call means. Every call is made again while that may help, updates of one run
pass a turnstile, reads of one run are shared, and an update that finds its run ended says so.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from abeyance import wire
from abeyance.closed import Described, closing_record, describe
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.patience import NotFound, patiently
from abeyance.turnstile import SharedReads, Turn, Turnstile

T = TypeVar("T")

RPC: Final = timedelta(seconds=5)
"""How long one call over the network may take."""
_READ_PATIENCE: Final = 3.0
_CODES: Final = frozenset(Code)


class RunEnded(Exception):
    """Something was sent to a run that had ended."""

    def __init__(self, described: Described) -> None:
        self.described = described
        super().__init__(described.run_id)


class Line:
    """`patience` is how many seconds a call is tried before it is `Unavailable`."""

    def __init__(self, temporal: TemporalClient, *, patience: float) -> None:
        self.temporal = temporal
        self.patience = patience
        self._turnstile = Turnstile()
        self._reads: SharedReads[Any] = SharedReads()

    async def described(self, run_id: str) -> Described:
        """What the server knows of a run. Raises the refusal `unknown_run`."""
        ask = partial(describe, self.temporal, run_id, RPC)
        try:
            return await patiently(run_id, ask, seconds=self.patience)
        except NotFound:
            raise Refusal(
                Code.UNKNOWN_RUN,
                f"There is no run {run_id!r}, or its history is no longer kept.",
                run_id=run_id,
            ) from None

    async def record(self, described: Described) -> wire.ClosingRecord:
        """What an ended run left behind."""
        ask = partial(closing_record, self.temporal, described, RPC)
        return await patiently(described.run_id, ask, seconds=self.patience)

    async def query(self, run_id: str, name: str, result_type: type[T]) -> T:
        """What a worker says of a run now. Raises Unavailable, soon, if there is none."""
        handle = self.temporal.get_workflow_handle(run_id)

        async def ask() -> Any:
            return await handle.query(name, result_type=result_type, rpc_timeout=RPC)

        seconds = min(self.patience, _READ_PATIENCE)
        found: T = await self._reads.read(
            f"{run_id} {name}", lambda: patiently(run_id, ask, seconds=seconds)
        )
        return found

    async def signal(self, run_id: str, name: str, order: wire.Request) -> None:
        """Send a signal. Raises RunEnded and the refusal `unknown_run`."""
        handle = self.temporal.get_workflow_handle(run_id)

        async def send() -> None:
            await handle.signal(name, order, rpc_timeout=RPC)

        described = await self.described(run_id)
        if not described.is_running:
            raise RunEnded(described)
        try:
            await patiently(run_id, send, seconds=self.patience)
        except NotFound:
            raise RunEnded(await self.described(run_id)) from None

    async def update(
        self,
        run_id: str,
        name: str,
        order: wire.Request,
        result_type: type[T] | None,
        turn: Turn,
        *,
        key: str | None,
    ) -> T:
        """Send an update and wait for its result; with the same `key` it has the effect of one.

        Raises what the run refuses, RunEnded, and the refusal `unknown_run`.
        """
        # Without a run id of Temporal's: the run may have been handed over to a new one.
        handle = self.temporal.get_workflow_handle(run_id)
        update_id = key or uuid.uuid4().hex

        async def send() -> Any:
            async with self._turnstile.turn(run_id, turn):
                try:
                    return await handle.execute_update(
                        name, order, id=update_id, result_type=result_type, rpc_timeout=RPC
                    )
                except WorkflowUpdateFailedError as error:
                    raise _refusal_of(error) from error

        try:
            found: T = await patiently(run_id, send, seconds=self.patience)
        except NotFound:
            described = await self.described(run_id)
            if not described.is_running:
                raise RunEnded(described) from None
            raise Unavailable(
                f"the run {run_id!r} was being handed over; the same call may be repeated",
                retry_after=1.0,
            ) from None
        return found


def _refusal_of(error: WorkflowUpdateFailedError) -> Exception:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type in _CODES:
        details = cause.details[0] if cause.details else {}
        return Refusal(Code(cause.type), cause.message, **details)
    return cause if isinstance(cause, ApplicationError) else error
