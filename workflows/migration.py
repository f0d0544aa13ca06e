"""Read today's graph for the migration of a run.

An activity reads it, because the workflow has none of the author's code. It is not a local one: a replay
may deliver the result of a local activity at an earlier time, and deadlines must not depend on that.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutError,  # noqa: A004  (Temporal's own)
)

with workflow.unsafe.imports_passed_through():
    from abeyance import commands, names, views, wire
    from abeyance.core.state import RunState
    from abeyance.errors import Code, Refusal
    from abeyance.runtime import graph_today

_TIMEOUT: Final = timedelta(seconds=8)
"""Less than the time for which a client repeats its request."""
_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=1),
    # Some five seconds: the reason of the last attempt is then known before the time is over.
    maximum_attempts=7,
)


async def read_graph(
    state: RunState, start: wire.StartRun, order: commands.Migrate
) -> wire.GraphToday:
    """Return today's graph, as the worker has it that gets the activity.

    Raises the Refusals `cannot_migrate` if no worker has a graph of this name, `versions_differ` if the
    sender has another version of it, and `unavailable`.
    """
    try:
        today: wire.GraphToday = await workflow.execute_activity(
            names.READ_GRAPH_ACTIVITY,
            graph_today.order_of(state, start, patch=order.patch, renames=order.map),
            result_type=wire.GraphToday,
            schedule_to_close_timeout=_TIMEOUT,
            retry_policy=_RETRIES,
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
        # The time was over during an attempt: the reason is that of the one before.
        last = last.__cause__
    match last:
        case ApplicationError(type=names.NO_GRAPH) as missing:
            return graph_today.cannot_migrate(
                [
                    views.Obstacle(
                        what="graph",
                        name=name,
                        why=missing.message,
                        remedy="deploy a worker that has the graph",
                    )
                ]
            )
        case cause:
            return Refusal(
                Code.UNAVAILABLE,
                f"No worker could read today's version of the graph {name!r}: "
                f"{getattr(cause, 'message', cause)}. Repeat the call.",
            )
