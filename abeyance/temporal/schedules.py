"""The Temporal schedule of a deployment: of the janitor."""

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

from abeyance import names, wire
from abeyance.temporal.connection import namespace_error

JANITOR_INTERVAL: Final = timedelta(minutes=10)
_RPC: Final = timedelta(seconds=5)


async def schedule_janitor(
    temporal: TemporalClient, task_queue: str, inactive_timeout: float
) -> bool:
    """Schedule the janitor to evict runs that are inactive for this many seconds; 0 removes it.

    Repeating it changes nothing. Return True if there is a janitor now. Raises SettingsError and
    Unavailable.
    """
    action = ScheduleActionStartWorkflow(
        names.JANITOR_WORKFLOW,
        wire.EvictInactive(inactive_for=inactive_timeout),
        id=schedule_id(task_queue),
        task_queue=task_queue,
    )
    every = JANITOR_INTERVAL if inactive_timeout else None
    return await _schedule(temporal, "the janitor", action, every)


async def _schedule(
    temporal: TemporalClient,
    name: str,
    action: ScheduleActionStartWorkflow,
    every: timedelta | None,
) -> bool:
    handle = temporal.get_schedule_handle(action.id)
    if every is None:
        try:
            await handle.delete(rpc_timeout=_RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise namespace_error(f"remove {name} from", temporal, error) from error
        return False
    schedule = Schedule(
        action=action, spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)])
    )

    async def change(_: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(schedule=schedule)

    try:
        try:
            await temporal.create_schedule(action.id, schedule, rpc_timeout=_RPC)
        except ScheduleAlreadyRunningError:
            await handle.update(change, rpc_timeout=_RPC)
    except RPCError as error:
        raise namespace_error(f"schedule {name} of", temporal, error) from error
    return True


def schedule_id(task_queue: str) -> str:
    """Return the id of the janitor's schedule, which no run can have."""
    return f"janitor:{task_queue}"
