"""Writing down what a visit has done where its next attempt finds it: the details of its heartbeat.

What is written here is there when the call returns. Where Temporal or the storage cannot be reached it
is tried until it can: the visit waits, because to go on would be to do again, one day, what was done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.activities.given import UNREAD, Given
from abeyance.errors import FailureCode, SettingsError, Unavailable
from abeyance.storage.converter import of_run
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


async def encoded(value: Any) -> Payload:
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


async def written(details: Sequence[Payload]) -> bool:
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


async def unread(given: Given, fault: Exception) -> ApplicationError:
    """Count an attempt that ends because this worker cannot read what the visit was given.

    `given` is what earlier attempts have written down. It stays as it is, because this worker may be the
    only one that cannot read it; the count stands beside it, in the clear. Returns what to raise.
    """
    message = f"this worker cannot read what the visit was given: {fault}"
    if not activity.info().is_local:
        others = [each for each in given.payloads if UNREAD not in each.metadata]
        count = 1 + sum(
            wire.Journal.model_validate_json(each.data).excused
            for each in given.payloads
            if UNREAD in each.metadata
        )
        counted = wire.Journal(excused=count).model_dump_json().encode()
        mark = {"encoding": b"json/plain", UNREAD: b"true"}
        await written([*others, Payload(metadata=mark, data=counted)])
    return ApplicationError(message, type=FailureCode.PAYLOAD_UNREADABLE)


def _say(what: str, error: Exception) -> None:
    told = error.message if isinstance(error, RPCError) else error
    _logger.warning("activity=%s | %s: %s", activity.info().activity_id, what, told)
