"""Retries and forks of a run, made of its snapshot.

The snapshot of an ended run is in its closing record. An open run returns it to a query.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from abeyance import commands, views, wire
from abeyance.authoring.graph import Graph
from abeyance.client.deployment import Deployment
from abeyance.client.executions import Room, retry_marks
from abeyance.client.start import StartPlan
from abeyance.core import machine, snapshots
from abeyance.core.events import Restored
from abeyance.core.json import sha256
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.handle import Started
from abeyance.history.description import RunDescription
from abeyance.projections import open_interrupts
from abeyance.runtime import retries
from abeyance.util import checked_run_id, generated_run_id

_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkStarted:
    """A fork, and what it asks first; `created` is False if the same call had started it before."""

    run_id: str
    created: bool
    interrupts: list[views.InterruptView]


async def retry(
    deployment: Deployment,
    run_id: str,
    order: commands.RetryBody,
    graph: Graph | None,
    *,
    principal: Principal,
    key: str | None,
    room: Room,
) -> None:
    """Start the next execution of a run that failed, was halted or was cancelled."""
    line = deployment.line
    described = await line.described(run_id)
    mark = retries.mark(order, principal, key)
    if retries.was_retried(retry_marks(described), mark, key):
        return
    if described.is_running:
        raise retries.not_finished(run_id, described.shown_status)
    snapshot = await _snapshot(deployment, described)
    state = snapshot.joined()
    if not state.finished:
        raise Refusal(
            Code.GONE,
            f"The run {run_id!r} was ended by Temporal ({described.ended_as()}) and not by itself, so "
            "there is nothing to go on from: fork it, or start a new one.",
            run_id=run_id,
        )
    now = datetime.now(UTC)
    start = snapshot.start
    retried, version = retries.retried(state, start, order, graph, principal=principal, now=now)
    ended_at = described.ended_at or now
    plan = StartPlan.going_on(
        retried,
        start.model_copy(
            update={
                "graph_version": version,
                # Later than every event of the executions before, whatever the clocks say.
                "generation": int(max(now, ended_at).timestamp() * _MICROSECONDS) + 1,
                "claim": None,
                "used": (),
                "retry_of": described.execution,
                "origin": start.origin or described.first,
                "retry_keys": retries.marked(start.retry_keys, mark),
            }
        ),
    )
    await deployment.executions.again(plan, described, mark, room)


async def fork(
    deployment: Deployment,
    run_id: str,
    order: commands.ForkBody,
    *,
    principal: Principal,
    request: str | None,
    room: Room,
) -> ForkStarted:
    """Start a new run with the past of another."""
    line = deployment.line
    described = await line.described(run_id)
    snapshot = await _snapshot(deployment, described)
    state, start = snapshot.joined(), snapshot.start
    now = datetime.now(UTC)
    new_id = generated_run_id(state.spec.name) if order.run_id is None else order.run_id
    forked = snapshots.forked(
        state,
        run_id=checked_run_id(new_id),
        salt=uuid.uuid4().hex,
        back=order.back,
        now=now,
        principal=principal,
    )
    plan = StartPlan.going_on(
        forked,
        wire.StartRun(
            run_id=new_id,
            limits=forked.limits,
            session_type=start.session_type,
            labels=start.labels,
            started_by=principal.subject,
            digest=sha256([run_id, order.back]),
            graph_version=start.graph_version,
            request=request,
            salt=forked.salt,
            interrupt_before=start.interrupt_before,
            interrupt_after=start.interrupt_after,
            on_error=start.on_error,
            forked_from=run_id,
        ),
    )
    started: Started = await deployment.executions.fork(plan, room)
    asked: Sequence[views.InterruptView] = ()
    if started.created:
        opened, _ = machine.advance(forked, Restored(now=now))
        asked = open_interrupts(opened)
    return ForkStarted(run_id=new_id, created=started.created, interrupts=[*asked])


async def _snapshot(deployment: Deployment, described: RunDescription) -> views.Snapshot:
    """Return the snapshot of a run. Raises Unavailable if only a worker has it, and none responds."""
    line, run_id = deployment.line, described.run_id
    if not described.is_running:
        record = await line.record(described)
        if record.snapshot is not None:
            return views.Snapshot.model_validate(record.snapshot)
    else:
        await line.refuse_natively_paused(run_id)
    # Also of an ended run: a worker replays its history.
    return await line.query(run_id, "snapshot", views.Snapshot)
