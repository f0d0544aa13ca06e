"""Run the activity of a visit, and convert its end to an outcome; read today's graph for a migration.

An activity returns the outcome of a node that finishes, fails or is stopped. Exceptions that arrive here
are timeouts of all attempts, cancellations, or bugs of ours.

An activity reads the graph, because the workflow has none of the author's code. It is not a local one: a
replay may deliver the result of a local activity at an earlier time, and deadlines must not depend on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    RetryState,
    TimeoutError,  # noqa: A004  (Temporal's own)
    TimeoutType,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, views, wire
    from abeyance.core import effects, events
    from abeyance.core.address import Address
    from abeyance.core.effects import VisitInput
    from abeyance.core.outcome import Failed, Stopped, lost_for_good
    from abeyance.core.policy import Principal
    from abeyance.core.state import RunState
    from abeyance.errors import Code, FailureCode, Refusal
    from abeyance.runtime import graph_today
    from abeyance.workflows.requests import StampChecker

T = TypeVar("T")

_LOCAL_TIMEOUT: Final = timedelta(seconds=60)
_UNBOUNDED: Final = timedelta(days=3650)
"""Temporal requires a timeout; only heartbeats bound a node without one."""
_SLACK: Final = timedelta(seconds=10)
"""Added to twice the node's timeout, which the activity enforces itself with a better error."""
_MAX_ID: Final = 255
"""In bytes: the limit of Temporal's SQL stores, and of servers with such a store."""
_RETRIES: Final = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""Unlimited, for attempts that were lost or excused: the activity enforces the node's `retries`."""
_READ_WITHIN: Final = timedelta(seconds=10)
_READS: Final = RetryPolicy(maximum_interval=timedelta(seconds=5), maximum_attempts=10)
"""Attempts to read journals, before the run stops visits without them. No time bounds the attempts,
because the server's clock may jump.
"""


class LocalFailed(Exception):
    """A local activity failed. The cause is an ApplicationError, or Temporal's TimeoutError."""


async def local_result(handle: workflow.ActivityHandle[T]) -> T:
    """Return the result of a local activity. Raises LocalFailed, and CancelledError if it was cancelled.

    Await every local activity here. The SDK (1.35.0 at least) wraps a timeout in an ActivityError, and in
    a replay raises the bare TimeoutError: a run that catches one of them takes another path there, and
    can never be replayed.
    """
    try:
        return await handle
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise LocalFailed from (error.cause if isinstance(error, ActivityError) else error)


@dataclass(slots=True)
class RunningCode:
    """The activity of a visit, and its input.

    `lost` are the attempts that were lost with their workers, if they were read before it is stopped.
    """

    input: VisitInput
    handle: workflow.ActivityHandle[wire.VisitReport]
    lost: wire.LostAttempts | None = None


def start(effect: effects.RunNode, *, origin: str) -> RunningCode:
    """Start the activity of a visit, or a local activity for a local node.

    `origin` is the first execution of a retried run, else "".
    """
    execution = workflow.info().first_execution_run_id
    visit_input = replace(effect.input, execution=execution, origin=origin)
    name = Address.parse(visit_input.address).label
    # A thread that outlives the timeout holds its retry back, for another timeout at most.
    timeout = (
        None if visit_input.timeout is None else 2 * timedelta(seconds=visit_input.timeout) + _SLACK
    )
    # For the first visit of a node of the run's own graph, the name of the activity says enough.
    is_told = visit_input.address == f"graph:{visit_input.root};node:{visit_input.node}"
    summary = None if is_told else visit_input.address
    if visit_input.kind == "routes":
        name = f"{visit_input.graph}.{visit_input.node}.route"
    if visit_input.local:
        handle = workflow.start_local_activity(
            name,
            visit_input,
            result_type=wire.VisitReport,
            start_to_close_timeout=_LOCAL_TIMEOUT if timeout is None else timeout,
            retry_policy=_RETRIES,
            summary=summary,
        )
        return RunningCode(visit_input, handle)
    address = visit_input.address
    handle = workflow.start_activity(
        name,
        visit_input,
        # A worker that cannot read the input still knows the visit.
        activity_id=address if len(address.encode()) <= _MAX_ID else None,
        result_type=wire.VisitReport,
        # A finally node must not delay the end of the run, unless it is blocked.
        schedule_to_close_timeout=timeout
        if visit_input.outcome is not None and visit_input.blocked_by is None
        else None,
        start_to_close_timeout=_UNBOUNDED if timeout is None else timeout,
        heartbeat_timeout=timedelta(seconds=effect.heartbeat),
        retry_policy=_RETRIES,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )
    return RunningCode(visit_input, handle)


async def read_journals(stopping: Sequence[RunningCode]) -> None:
    """Read the journals of lost attempts at visits that are stopped before their next attempt begins.

    Temporal drops the journal when it cancels such an activity.
    """
    visits = [each.input.address for each in stopping]
    execution = workflow.info().first_execution_run_id
    order = wire.ReadJournals(execution=execution, visits=visits)
    try:
        lost: dict[str, wire.LostAttempts] = await workflow.execute_activity(
            names.READ_JOURNALS_ACTIVITY,
            order,
            result_type=dict[str, wire.LostAttempts],
            start_to_close_timeout=_READ_WITHIN,
            retry_policy=_READS,
        )
    except ActivityError as error:
        text = "the journals of %s could not be read, and what was done there may be repeated: %s"
        workflow.logger.warning(text, ", ".join(visits), error.cause)
        return
    for each in stopping:
        each.lost = lost.get(each.input.address)


async def read_rewind(count: int, state: RunState, now: datetime) -> events.ValuesEdited | None:
    """Return the patch with which the reset of this number rewound the run to its start, None without
    one.
    """
    patched: wire.StartPatch | None = await workflow.execute_activity(
        names.READ_REWIND_ACTIVITY,
        count,
        result_type=wire.StartPatch | None,  # type: ignore[arg-type]
        start_to_close_timeout=_READ_WITHIN,
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=5)),
    )
    if patched is None:
        return None
    by, version = Principal(subject=patched.by), state.root.version
    return events.ValuesEdited(now=now, principal=by, patch=patched.patch, version=version)


async def report_of(running: RunningCode, stamps: StampChecker) -> wire.VisitReport:
    """Wait for the end of a visit, and return its report."""
    visit_input = running.input
    try:
        ended = local_result(running.handle) if visit_input.local else running.handle
        return stamps.checked_report(visit_input.address, await ended)
    except (ActivityError, LocalFailed, asyncio.CancelledError) as error:
        if is_cancelled_exception(error):
            # Node code that is stopped while it runs returns Stopped itself.
            unbegun = wire.VisitReport(outcome=Stopped(begun=False))
            return unbegun if running.lost is None else _left_by(running.lost, visit_input)
        cause = error.__cause__ or error
        if (stopped := _left_when_stopped(error, running)) is not None:
            return stopped
        message = f"{type(cause).__name__}: {cause}"
        if _is_out_of_time(cause) and visit_input.timeout is not None:
            node, timeout = visit_input.node, visit_input.timeout
            message = f"the node {node!r} did not finish within its timeout of {timeout:g} s"
        failed = Failed(code=FailureCode.NODE_FAILED, message=message)
        return wire.VisitReport(outcome=failed)


def _is_out_of_time(cause: BaseException) -> bool:
    """Return True if the time for lost and excused attempts has passed."""
    return isinstance(cause, TimeoutError) and cause.type is TimeoutType.SCHEDULE_TO_CLOSE


def ended_at(
    report: wire.VisitReport, *, now: datetime, ordered: datetime, latest: datetime
) -> datetime:
    """Return the end of a visit: `now`, or for a local activity `ordered` plus its duration.

    A replay may deliver the result of a local activity one workflow task earlier, with an earlier time
    (tested). Deadlines must not depend on that, so the end is computed from values that are the same in a
    replay; it is never before the `latest` event of the run.
    """
    if report.took is None:
        return now
    return max(latest, ordered + timedelta(seconds=report.took))


def _left_when_stopped(error: BaseException, running: RunningCode) -> wire.VisitReport | None:
    """Return the report of an attempt that ended just as the run cancelled it, None if it did not.

    Temporal does not retry a cancelled activity. The missing attempt follows when the visit starts again.
    """
    if not isinstance(error, ActivityError) or error.retry_state is not RetryState.CANCEL_REQUESTED:
        return None
    visit_input = running.input
    whose = wire.Journal.owner(visit_input.execution, visit_input.address)
    match error.__cause__:
        case ApplicationError(details=[]):
            # The failure had no room for a large journal.
            if running.lost is None:
                return wire.VisitReport(outcome=Stopped())
            return _left_by(running.lost, visit_input)
        case ApplicationError(details=[written, *_]):
            journal = wire.Journal.model_validate(written)
            left = journal.steps or None if journal.is_of(whose) else None
            return wire.VisitReport(outcome=Stopped(journal=left))
        case TimeoutError(type=TimeoutType.HEARTBEAT) as lost:
            # Its worker died.
            written = map(wire.Journal.model_validate, lost.last_heartbeat_details)
            journal = wire.Journal.combined(written, whose)
            return _left_by(wire.LostAttempts(count=1, journal=journal), visit_input)
        case _:
            return None


def _left_by(lost: wire.LostAttempts, visit: VisitInput) -> wire.VisitReport:
    """Return the report of lost attempts at a visit."""
    steps = lost.journal.steps or None
    attempts = visit.attempts.as_of(workflow.now()).with_lost(lost.count)
    failed = lost_for_good(visit.node, lost.count, visit.retry, attempts, journal=steps)
    return wire.VisitReport(outcome=failed or Stopped(journal=steps, attempts=attempts))


_GRAPH_WITHIN: Final = timedelta(seconds=8)
"""Less than the time for which a client repeats its request."""
_GRAPH_READS: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=1),
    # Some five seconds, so that the reason of the last attempt is known before the time is over.
    maximum_attempts=7,
)


async def read_graph(
    state: RunState, start: wire.StartRun, order: commands.Migrate
) -> wire.GraphToday:
    """Return today's graph from the worker that gets the activity.

    Raises the Refusals `cannot_migrate` if no worker has a graph of this name, `versions_differ` if the
    sender has another version of it, and `unavailable`.
    """
    try:
        today: wire.GraphToday = await workflow.execute_activity(
            names.READ_GRAPH_ACTIVITY,
            graph_today.order_of(state, start, patch=order.patch, renames=order.map),
            result_type=wire.GraphToday,
            schedule_to_close_timeout=_GRAPH_WITHIN,
            retry_policy=_GRAPH_READS,
        )
    except ActivityError as error:
        raise _unread(state, error) from error
    if order.version not in (None, today.version):
        raise Refusal(
            Code.VERSIONS_DIFFER,
            f"The worker has version {today.version} of the graph {state.spec.name!r}, and the sender "
            f"{order.version}: wait until both are deployed, and repeat the call.",
            graph=state.spec.name,
            worker_version=today.version,
            sender_version=order.version,
        )
    return today


def _unread(state: RunState, error: ActivityError) -> Refusal:
    name, last = state.spec.name, error.cause
    if isinstance(last, TimeoutError) and last.__cause__ is not None:
        # The time was over during an attempt, so take the reason of the attempt before.
        last = last.__cause__
    if isinstance(last, ApplicationError) and last.type == names.NO_GRAPH:
        remedy = "deploy a worker that has the graph"
        missing = views.Obstacle(what="graph", name=name, why=last.message, remedy=remedy)
        return graph_today.cannot_migrate([missing])
    return Refusal(
        Code.UNAVAILABLE,
        f"No worker could read today's version of the graph {name!r}: "
        f"{getattr(last, 'message', last)}. Repeat the call.",
    )
