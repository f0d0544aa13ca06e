"""Calls to a run whose result the Temporal SDK misreads."""

from __future__ import annotations

import asyncio
from typing import Final

from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError

PAUSED_NATIVELY: Final = 8
"""The status of a workflow that an operator has paused.

Since server 1.30 and SDK 1.35.0 at least: the SDK's enumeration has no such value, and a description has
the number.
"""


def raise_if_cancelled(error: WorkflowUpdateRPCTimeoutOrCancelledError) -> None:
    """Raise CancelledError if the task that awaited an update was cancelled.

    Since SDK 1.35.0 at least: the SDK raises the same error for a call that timed out and for our own
    cancellation, such as the end of `asyncio.timeout`, so the cancellation would be lost.
    """
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError from error
