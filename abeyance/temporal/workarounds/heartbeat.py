"""Heartbeats that are stored when the call returns.

Since Temporal SDK 1.35.0 at least: `activity.heartbeat` hands the details over and returns at once.
A throttle holds the details back, so an attempt that ends in between leaves older details, and a
finished step would be done again (docs/internals/adr/0008-steps-and-heartbeats.md). `record` calls the
server itself, and waits. The SDK's own heartbeats remain as a sign of life, and the server's responses
to them tell the SDK that an activity has to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio import activity
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.workflowservice.v1 import RecordActivityTaskHeartbeatRequest
from temporalio.service import RPCError, RPCStatusCode

from abeyance.temporal.retry import TEMPORARY, attempts

THROTTLE_SECONDS: Final = 0.25
"""The throttle for the SDK's own heartbeats, as an option of the worker: shorter than our intervals, the
shortest of which is half a second, so that none is held back. It does not cause more heartbeats."""
SEND_SECONDS: Final = 0.05
"""Seconds until a heartbeat of the SDK has been sent. No call of `record` may overtake it."""
_RPC_TIMEOUT: Final = timedelta(seconds=5)
_logger = logging.getLogger("abeyance.node")


class Superseded(BaseException):
    """The server no longer waits for this attempt, which must stop."""


async def record(details: Sequence[Payload]) -> bool:
    """Record heartbeat details. Retry while the server is unavailable.

    Return True if the run has cancelled the visit. Raise Superseded if the server no longer waits for
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
            if error.status not in TEMPORARY:
                raise
            _logger.warning(
                "activity=%s | a step cannot be recorded yet: %s",
                activity.info().activity_id,
                error.message,
            )
        else:
            return response.cancel_requested
    raise AssertionError("attempts have no end")
