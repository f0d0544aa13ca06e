"""Carrying out a visit in Temporal: an activity named like its node, and how it ended as a value.

A node that fails in an ordinary way, is stopped, or finishes says so in what its activity returns.
What arrives here as an exception is the rest: a time-out of the whole, or a bug of ours.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
    TimeoutError,  # noqa: A004  (Temporal's own)
    TimeoutType,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core import effects
    from abeyance.core.address import Address
    from abeyance.core.effects import VisitInput
    from abeyance.core.outcome import Failed, Stopped
    from abeyance.errors import FailureCode
    from abeyance.workflows.requests import Orders

VisitHandle: TypeAlias = workflow.ActivityHandle[wire.VisitReport]
"""What stands for a visit that runs: to be awaited, or cancelled."""

_LOCAL_TIMEOUT: Final = timedelta(seconds=60)
_UNBOUNDED: Final = timedelta(days=3650)
"""Temporal wants some bound; a node without one is bounded by its heartbeat alone."""
_SLACK: Final = timedelta(seconds=10)
"""The node's own timeout is kept inside the activity, where the error can say so; this is the rest."""
_RETRIES: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""Without a bound: the activity itself counts what the node's `retries` allow."""


def start(effect: effects.RunNode) -> VisitHandle:
    """Start a visit's code in an activity, or in a local one if its node says so."""
    visit_input = replace(effect.input, execution=workflow.info().first_execution_run_id)
    name = Address.parse(visit_input.address).label
    timeout = None if visit_input.timeout is None else timedelta(seconds=visit_input.timeout)
    if visit_input.local:
        return workflow.start_local_activity(
            name
            if visit_input.kind == "visit"
            else f"{visit_input.graph}.{visit_input.node}.route",
            visit_input,
            result_type=wire.VisitReport,
            start_to_close_timeout=_LOCAL_TIMEOUT if timeout is None else timeout + _SLACK,
            retry_policy=_RETRIES,
            summary=visit_input.address,
        )
    return workflow.start_activity(
        name,
        visit_input,
        result_type=wire.VisitReport,
        # A finally node may not hold up the end, however often it is tried.
        schedule_to_close_timeout=timeout if visit_input.outcome is not None else None,
        start_to_close_timeout=_UNBOUNDED if timeout is None else timeout + _SLACK,
        heartbeat_timeout=timedelta(seconds=effect.heartbeat),
        retry_policy=_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=visit_input.address,
    )


async def report_of(
    handle: VisitHandle, visit_input: VisitInput, taken: Orders
) -> wire.VisitReport:
    """How a visit ended, once it has."""
    try:
        return taken.own(visit_input.address, await handle)
    except (ActivityError, asyncio.CancelledError) as error:
        if is_cancelled_exception(error):
            # Code that is stopped while it runs returns that itself.
            return wire.VisitReport(outcome=Stopped(begun=False))
        cause = error.__cause__ or error
        if (journal := _left_when_stopped(error, visit_input)) is not None:
            return wire.VisitReport(outcome=Stopped(journal=journal.steps or None))
        message = f"{type(cause).__name__}: {cause}"
        if _is_out_of_time(cause) and visit_input.timeout is not None:
            node, timeout = visit_input.node, visit_input.timeout
            message = f"the node {node!r} did not end within its timeout of {timeout:g} s"
        failed = Failed(code=FailureCode.NODE_FAILED, message=message)
        return wire.VisitReport(outcome=failed)


def _is_out_of_time(cause: BaseException) -> bool:
    """Whether the time for all attempts is over, of which Temporal tells in words of its own."""
    return isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_CLOSE


def ended_at(
    report: wire.VisitReport, *, now: datetime, ordered: datetime, latest: datetime
) -> datetime:
    """When a visit ended: `now`, if its report does not say how long it took since it was `ordered`.

    The result of a local activity may come in one workflow task and be replayed in the one before, which
    began earlier (tried). What a deadline has to do with it must not depend on that, so its time is
    counted from what both know, and is not before the `latest` event of the run.
    """
    if report.took is None:
        return now
    return max(latest, ordered + timedelta(seconds=report.took))


def _left_when_stopped(error: BaseException, visit_input: VisitInput) -> wire.Journal | None:
    """What an attempt had done that ended in the moment in which the run asked it to stop.

    Temporal does not try again what is to stop. So another attempt would have followed, and does when the
    run goes on. None if that was not so: the visit failed.
    """
    if not isinstance(error, ActivityError) or error.retry_state is not RetryState.CANCEL_REQUESTED:
        return None
    whose = wire.Journal.owner(workflow.info().first_execution_run_id, visit_input.address)
    match error.__cause__:
        case ApplicationError(details=[written, *_]):
            journal = wire.Journal.model_validate(written)
            return journal if journal.is_of(whose) else wire.Journal()
        case TimeoutError(type=TimeoutType.HEARTBEAT) as lost if visit_input.retries > 0:
            # Its worker died.
            found = map(wire.Journal.model_validate, lost.last_heartbeat_details)
            own = (each for each in found if each.is_of(whose))
            steps = {name: result for each in own for name, result in each.steps.items()}
            return wire.Journal(steps=steps)
        case _:
            return None
