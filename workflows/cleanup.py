"""`Janitor` and `Archiver`, the scheduled workflows of a deployment, and `Erasure`, that of one run."""

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


_ALIVE: Final = timedelta(seconds=60)
"""How long a worker that archives may be silent before another one does it."""
_ROUND: Final = timedelta(hours=2)


@workflow.defn(name=names.ARCHIVER_WORKFLOW)
class Archiver:
    """One round of the archiver. Rounds do not overlap."""

    @workflow.run
    async def run(self) -> int:
        """Archive runs that have ended, and return how many audits were written."""
        archived: int = await workflow.execute_activity(
            names.ARCHIVE_ACTIVITY,
            result_type=int,
            schedule_to_close_timeout=_ROUND,
            heartbeat_timeout=_ALIVE,
        )
        return archived


_ERASURE_RETRIES: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))


@workflow.defn(name=names.ERASURE_WORKFLOW)
class Erasure:
    """The erasure of one run. It goes on until it is done, and has the tombstone in its memo."""

    @workflow.run
    async def run(self, order: wire.Erase) -> str:
        """Erase the run, and return its tombstone."""
        tombstone: str = await workflow.execute_activity(
            names.ERASE_ACTIVITY,
            order,
            result_type=str,
            start_to_close_timeout=timedelta(minutes=5),
            retry_policy=_ERASURE_RETRIES,
        )
        workflow.upsert_memo({names.MEMO_TOMBSTONE: tombstone})
        return tombstone
