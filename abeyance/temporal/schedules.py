"""The Temporal schedules of a deployment: of the janitor and of the archiver."""

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
from abeyance.duration import in_days
from abeyance.settings import Settings
from abeyance.temporal.connection import namespace_error, retention

JANITOR_INTERVAL: Final = timedelta(minutes=10)
ARCHIVER_INTERVAL: Final = timedelta(minutes=1)
"""Rounds do not overlap."""
_RPC: Final = timedelta(seconds=5)
_ENOUGH_DAYS: Final = 30


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


async def schedule_archiver(temporal: TemporalClient, task_queue: str, *, is_on: bool) -> bool:
    """Schedule the archiver, or remove it. Repeating it changes nothing.

    Return True if there is an archiver now. Raises SettingsError and Unavailable.
    """
    action = ScheduleActionStartWorkflow(
        names.ARCHIVER_WORKFLOW, id=archiver_id(task_queue), task_queue=task_queue
    )
    every = ARCHIVER_INTERVAL if is_on else None
    return await _schedule(temporal, "the archiver", action, every)


async def audit_warnings(temporal: TemporalClient, settings: Settings) -> list[str]:
    """Return why audits may be lost: runs are deleted soon and no archive is set, or nobody writes it.

    Raises SettingsError and Unavailable.
    """
    if settings.audit is None:
        kept = await retention(temporal)
        if kept >= timedelta(days=_ENOUGH_DAYS):
            return []
        warning = (
            f"Temporal keeps ended runs for {in_days(kept)}, and then nobody can tell who approved what: "
            "set ABEYANCE_AUDIT to a folder or s3://bucket/prefix, or keep runs for "
            f"{_ENOUGH_DAYS} days or more (`abeyance setup --retention 90d`)"
        )
        return [warning]
    if await _has_archiver(temporal, settings.task_queue):
        return []
    warning = (
        f"ABEYANCE_AUDIT={settings.audit!r} is set, but the archiver of the task queue "
        f"{settings.task_queue!r} is not scheduled: run `abeyance setup` with that setting"
    )
    return [warning]


async def _has_archiver(temporal: TemporalClient, task_queue: str) -> bool:
    try:
        await temporal.get_schedule_handle(archiver_id(task_queue)).describe(rpc_timeout=_RPC)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return False
        raise namespace_error("look for the archiver of", temporal, error) from error
    return True


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


def archiver_id(task_queue: str) -> str:
    """Return the id of the archiver's schedule, which no run can have."""
    return f"archiver:{task_queue}"
