"""Heartbeats of a visit, whose details carry the journal to the next attempt.

Workaround for the Temporal SDK: its heartbeats are throttled and not awaited. A write here is stored when
the call returns. It is retried while Temporal or the storage is unavailable: continuing without it could
repeat finished work later.
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
_TEMPORARY: Final = frozenset(
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
    """The server no longer waits for this attempt, which must stop."""


async def encode(value: Any) -> Payload:
    """Encode a value for Temporal. Retry while the storage is unavailable."""
    async for _ in attempts(0.1, 2.0):
        try:
            converter = of_run(activity.client().data_converter, activity.info().workflow_id or "")
            (payload,) = await converter.encode([value])
        except (Unavailable, SettingsError) as error:
            _say("the journal cannot be stored yet", error)
        else:
            return payload
    raise AssertionError("attempts have no end")


async def record(details: Sequence[Payload]) -> bool:
    """Record heartbeat details. Retry while the server is unavailable.

    Return True if the run has cancelled the visit. Raises Superseded if the server no longer waits for
    this attempt.
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
            response = await client.workflow_service.record_activity_task_heartbeat(
                request, retry=True, timeout=_RPC_TIMEOUT
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise Superseded from error
            if error.status not in _TEMPORARY:
                raise
            _say("a step cannot be recorded yet", error)
        else:
            return response.cancel_requested
    raise AssertionError("attempts have no end")


async def unreadable(before: DecodedPayloads, fault: Exception) -> ApplicationError:
    """Count an attempt that ends because this worker cannot read its input, and return the error.

    `before` are the heartbeat details of earlier attempts. They are kept, because other workers may read
    them; the count is added in clear text.
    """
    message = f"this worker cannot read the input of the visit: {fault}"
    if not activity.info().is_local:
        others = [payload for payload in before.payloads if UNREADABLE not in payload.metadata]
        count = 1 + sum(
            wire.Journal.model_validate_json(payload.data).excused
            for payload in before.payloads
            if UNREADABLE in payload.metadata
        )
        counted = wire.Journal(excused=count).model_dump_json().encode()
        mark = {"encoding": b"json/plain", UNREADABLE: b"true"}
        await record([*others, Payload(metadata=mark, data=counted)])
    return ApplicationError(message, type=FailureCode.PAYLOAD_UNREADABLE)


def _say(what: str, error: Exception) -> None:
    reason = error.message if isinstance(error, RPCError) else error
    _logger.warning("activity=%s | %s: %s", activity.info().activity_id, what, reason)


class Checkpoints:
    """Metrics of journal writes."""

    def __init__(self, meter: MetricMeter) -> None:
        self._operations = meter.create_counter(
            metrics.CHECKPOINTS.exposed, metrics.CHECKPOINTS.says
        )
        self._latency = meter.create_histogram_float(
            metrics.CHECKPOINT_LATENCY.exposed, metrics.CHECKPOINT_LATENCY.says
        )

    @contextmanager
    def written(self) -> Iterator[None]:
        """Measure one write, which is an error if it raises."""
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
"""Interval of heartbeats, and so the delay of a cancellation; less for a short heartbeat timeout."""
THROTTLE_SECONDS: Final = 0.5
"""The SDK's throttle of heartbeats: shorter than the interval, so that none is held back."""

_SEND_SECONDS: Final = 0.05
"""Seconds until a heartbeat of the SDK has been sent. No other write may overtake it."""


class Heartbeater:
    """The heartbeats of one attempt. `journal` is the content of the next one."""

    def __init__(
        self, before: DecodedPayloads, info: activity.Info, checkpoints: Checkpoints, visit: str
    ) -> None:
        self.journal = journal_in(before, visit)
        if info.is_local:
            # A local activity has no heartbeat, and no attempt of it can be lost.
            self.journal = wire.Journal(visit=visit, failures=info.attempt - 1)
        self._kept = kept_in(before, visit)
        self._info = info
        self._checkpoints = checkpoints
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Send heartbeats in the background."""
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
        """Send a heartbeat."""
        async with self._lock:
            self._say()
            await asyncio.sleep(_SEND_SECONDS)

    async def write(self, journal: wire.Journal) -> bool:
        """Write a journal for the next attempt; it is stored when this returns.

        Return True if the run has cancelled the visit. Retry while the server or the storage is
        unavailable. Raises Superseded if the server no longer waits for this attempt.
        """
        with self._checkpoints.written():
            stored = self._kept
            if stored is None or stored.journal.steps != journal.steps:
                payload = await encode(journal.model_dump(mode="json"))
                stored = Kept(payload=payload, journal=journal)
            details = [stored.payload]
            if (rest := stored.rest_of(journal)) is not None:
                details.append(await encode(rest.model_dump(mode="json")))
            async with self._lock:
                is_to_stop = await record(details)
                self.journal, self._kept = journal, stored
        return is_to_stop

    async def write_last(self, journal: wire.Journal) -> bool:
        """Write a journal before the attempt fails.

        The SDK sends the last details it knows with a failure, which would replace this journal by an
        older one.
        """
        is_to_stop = await self.write(journal)
        self._say()
        return is_to_stop

    def _say(self) -> None:
        stored = self._kept or Kept(payload=Payload(), journal=self.journal)
        # Send a stored journal as its reference, so that a heartbeat never waits for the storage.
        details: Any = RawValue(stored.payload)
        if not is_reference(stored.payload):
            details = stored.journal.model_dump(mode="json")
        rest = stored.rest_of(self.journal)
        activity.heartbeat(details, *([] if rest is None else [rest.model_dump(mode="json")]))
