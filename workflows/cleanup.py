"""`Janitor`, the scheduled workflow of a deployment."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from abeyance import names, wire

_TIMEOUT: Final = timedelta(minutes=9)
"""Shorter than the interval of the schedule."""
_TRIES: Final = RetryPolicy(maximum_attempts=3)


@workflow.defn(name=names.JANITOR_WORKFLOW)
class Janitor:
    """One round of the janitor."""

    @workflow.run
    async def run(self, order: wire.EvictInactive) -> int:
        """Evict inactive runs, and return their number."""
        evicted: int = await workflow.execute_activity(
            names.EVICT_ACTIVITY,
            order,
            result_type=int,
            schedule_to_close_timeout=_TIMEOUT,
            retry_policy=_TRIES,
        )
        return evicted
