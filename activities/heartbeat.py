"""Writing down what a visit has done where its next attempt finds it: the details of its heartbeat.

What is written here is there when the call returns. Where Temporal or the storage cannot be reached it
is tried until it can: the visit waits, because to go on would be to do again, one day, what was done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.common import MetricMeter, RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import metrics, wire
from abeyance.activities.payloads import UNREADABLE, DecodedPayloads, Kept, journal_in, kept_in
from abeyance.errors import FailureCode, SettingsError, Unavailable
from abeyance.storage.converter import of_run
from abeyance.storage.encryption import is_reference
from abeyance.temporal.retry import attempts

_RPC_TIMEOUT: Final = timedelta(seconds=5)
_PASSING: Final = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)

_logger = logging.getLogger("abeyance.node")


class Superseded(BaseException):
    """The server has given the visit to somebody else: this attempt must do nothing more."""


async def encode(value: Any) -> Payload:
    """A value as it is sent, and kept where it is large. Waits for the storage if it is away."""
    async for _ in attempts(0.1, 2.0):
        try:
            converter = of_run(activity.client().data_converter, activity.info().workflow_id or "")
            (payload,) = await converter.encode([value])
        except (Unavailable, SettingsError) as error:
            _say("what it has done cannot be kept yet", error)
        else:
            return payload
    raise AssertionError("attempts have no end")


async def record(details: Sequence[Payload]) -> bool:
    """Write details down. Waits for the server if it is away. True if the run wants the visit to stop.

    Raises Superseded if it no longer waits for this attempt.
    """
    client = activity.client()
    request = RecordActivityTaskHeartbeatRequest(
        namespace=client.namespace,
        identity=client.identity,
        task_token=activity.info().task_token,
        details=Payloads(payloads=details),
    )
    async for _ in attempts(0.1, 2.0):
        try:
            told = await client.workflow_service.record_activity_task_heartbeat(
                request, retry=True, timeout=_RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise Superseded from error
            if error.status not in _PASSING:
                raise
            _say("a step could not be written down yet", error)
        else:
            return told.cancel_requested
    raise AssertionError("attempts have no end")


async def unreadable(given: DecodedPayloads, fault: Exception) -> ApplicationError:
    """Count an attempt that ends because this worker cannot read what the visit was given.

    `given` is what earlier attempts have written down. It stays as it is, because this worker may be the
    only one that cannot read it; the count stands beside it, in the clear. Returns what to raise.
    """
    message = f"this worker cannot read what the visit was given: {fault}"
    if not activity.info().is_local:
        others = [each for each in given.payloads if UNREADABLE not in each.metadata]
        count = 1 + sum(
            wire.Journal.model_validate_json(each.data).excused
            for each in given.payloads
            if UNREADABLE in each.metadata
        )
        counted = wire.Journal(excused=count).model_dump_json().encode()
        mark = {"encoding": b"json/plain", UNREADABLE: b"true"}
        await record([*others, Payload(metadata=mark, data=counted)])
    return ApplicationError(message, type=FailureCode.PAYLOAD_UNREADABLE)


def _say(what: str, error: Exception) -> None:
    told = error.message if isinstance(error, RPCError) else error
    _logger.warning("activity=%s | %s: %s", activity.info().activity_id, what, told)


class Checkpoints:
    """Counts and times the writings of a journal: a finished step, or a counted attempt."""

    def __init__(self, meter: MetricMeter) -> None:
        self._operations = meter.create_counter(
            metrics.CHECKPOINTS.exposed, metrics.CHECKPOINTS.says
        )
        self._latency = meter.create_histogram_float(
            metrics.CHECKPOINT_LATENCY.exposed, metrics.CHECKPOINT_LATENCY.says
        )

    @contextmanager
    def written(self) -> Iterator[None]:
        """Measure one writing, which is an error if it raises."""
        began = time.monotonic()
        status: metrics.Outcome = "error"
        kind: metrics.Checkpoint = "journal"
        try:
            yield
            status = "success"
        finally:
            self._operations.add(1, {"kind": kind, "status": status})
            self._latency.record((time.monotonic() - began) * 1000, {"kind": kind})


HEARTBEAT_SECONDS: Final = 1.0
"""How often a visit says that it lives, and so how soon it hears that it should stop; more often where it
may not be silent for so long."""
THROTTLE_SECONDS: Final = 0.5
"""The least time between two signs of life that a worker sends: shorter, so that none is held back."""

_ON_THE_WAY: Final = 0.05
"""In seconds: how long a sign of life may be on its way. Nothing else is written meanwhile."""


class Heartbeater:
    """The heartbeats of one attempt at a visit. `journal` is what the next one carries."""

    def __init__(
        self, before: DecodedPayloads, info: activity.Info, checkpoints: Checkpoints, visit: str
    ) -> None:
        self.journal = journal_in(before, visit)
        if info.is_local:
            # A local activity has no heartbeat; none of its attempts can be lost either.
            self.journal = wire.Journal(visit=visit, failures=info.attempt - 1)
        self._kept = kept_in(before, visit)
        self._info = info
        self._checkpoints = checkpoints
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Say once in a while that the visit lives."""
        silence = self._info.heartbeat_timeout
        pause = (
            min(HEARTBEAT_SECONDS, silence.total_seconds() / 4) if silence else HEARTBEAT_SECONDS
        )

        async def beat() -> None:
            while True:
                await asyncio.sleep(pause)
                await self.beat()

        if self._info.is_local:
            yield
            return
        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    async def beat(self) -> None:
        """Say that the visit lives."""
        async with self._lock:
            self._say()
            await asyncio.sleep(_ON_THE_WAY)

    async def write(self, journal: wire.Journal) -> bool:
        """Put a journal where the next attempt finds it; it is there when this returns. True if the run
        wants the visit to stop; the SDK hears that too, from the next sign of life.

        Where the server or the storage cannot be reached this is tried until it can. Raises Superseded
        if the server no longer waits for this attempt.
        """
        with self._checkpoints.written():
            kept = self._kept
            if kept is None or kept.journal.steps != journal.steps:
                payload = await encode(journal.model_dump(mode="json"))
                kept = Kept(payload=payload, journal=journal)
            details = [kept.payload]
            if (rest := kept.rest_of(journal)) is not None:
                details.append(await encode(rest.model_dump(mode="json")))
            async with self._lock:
                is_to_stop = await record(details)
                self.journal, self._kept = journal, kept
        return is_to_stop

    async def write_last(self, journal: wire.Journal) -> bool:
        """The same, for an attempt that is about to fail.

        The SDK sends the last details that it knows of along with a failure, and so would put an older
        journal in the place of this one.
        """
        is_to_stop = await self.write(journal)
        self._say()
        return is_to_stop

    def _say(self) -> None:
        kept = self._kept or Kept(payload=Payload(), journal=self.journal)
        # What is kept in storage is sent as its reference: a sign of life waits for no storage.
        said: Any = RawValue(kept.payload)
        if not is_reference(kept.payload):
            said = kept.journal.model_dump(mode="json")
        rest = kept.rest_of(self.journal)
        activity.heartbeat(said, *([] if rest is None else [rest.model_dump(mode="json")]))
