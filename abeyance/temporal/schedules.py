"""The schedule by which the janitor makes its rounds, in Temporal."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.client import Client as TemporalClient
from temporalio.client import (
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from abeyance import wire
from abeyance.temporal.connection import namespace_error

JANITOR_INTERVAL: Final = timedelta(minutes=10)
"""From one round to the next; one that still goes on is not joined by another."""
_RPC: Final = timedelta(seconds=5)


async def schedule_janitor(
    temporal: TemporalClient, task_queue: str, inactive_timeout: float
) -> bool:
    """Let the janitor evict runs of a task queue that have been inactive for so many seconds; 0 is never.

    To do it again changes nothing; another number takes the place of the last. Returns whether there is
    a janitor now. Raises SettingsError, and Unavailable.
    """
    id_ = schedule_id(task_queue)
    handle = temporal.get_schedule_handle(id_)
    if not inactive_timeout:
        try:
            await handle.delete(rpc_timeout=_RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise namespace_error("remove the janitor from", temporal, error) from error
        return False
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            wire.JANITOR_WORKFLOW,
            wire.EvictInactive(inactive_for=inactive_timeout),
            id=id_,
            task_queue=task_queue,
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=JANITOR_INTERVAL)]),
    )

    async def change(_: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(schedule=schedule)

    try:
        try:
            await temporal.create_schedule(id_, schedule, rpc_timeout=_RPC)
        except ScheduleAlreadyRunningError:
            await handle.update(change, rpc_timeout=_RPC)
    except RPCError as error:
        raise namespace_error("schedule the janitor of", temporal, error) from error
    return True


def schedule_id(task_queue: str) -> str:
    """The id of the schedule, which no run can have."""
    return f"janitor:{task_queue}"
