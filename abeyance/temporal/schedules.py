"""The Temporal schedule of the janitor."""

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
"""Rounds do not overlap."""
_RPC: Final = timedelta(seconds=5)


async def schedule_janitor(
    temporal: TemporalClient, task_queue: str, inactive_timeout: float
) -> bool:
    """Schedule the janitor to evict runs that are inactive for this many seconds; 0 removes it.

    Repeating it changes nothing. Return True if there is a janitor now. Raises SettingsError and
    Unavailable.
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
    """Return the id of the schedule, which no run can have."""
    return f"janitor:{task_queue}"
