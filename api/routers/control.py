"""Control of one run: pause, resume, cancel, edits of its values, migrations, retries and rewinds.

Pause, resume and cancel are signals: they are accepted while no worker runs, and take effect when one
does. The response is sent once Temporal has the signal or, with `wait`, once the signal took effect. The
run deduplicates signals by their `Idempotency-Key`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Body, Depends, Request, Response
from pydantic import BaseModel

from abeyance import commands, views
from abeyance.api import examples, openapi
from abeyance.api.auth import CONTROL, require
from abeyance.api.dependencies import (
    Backend,
    Call,
    CallDep,
    RunId,
    ServiceStopping,
    Wait,
    long_poll,
)
from abeyance.api.rights import without_others
from abeyance.api.schemas import Accepted, RunStatus, fields_set
from abeyance.client import Client, TemporalRun
from abeyance.client.eviction import Room
from abeyance.core import policy
from abeyance.core.policy import Principal
from abeyance.errors import Refusal
from abeyance.orders import SIGNALS, control_order

router = APIRouter(prefix="/runs/{run_id}", tags=["control"])

PauseBody: TypeAlias = Annotated[commands.PauseBody | None, Body(examples=[examples.PAUSE])]
ResumeBody: TypeAlias = Annotated[commands.ControlBody | None, Body(examples=[examples.RESUME])]
CancelBody: TypeAlias = Annotated[commands.CancelBody | None, Body(examples=[examples.CANCEL])]
ValuesBody: TypeAlias = Annotated[commands.ValuesBody, Body(examples=[examples.VALUES])]
MigrateBody: TypeAlias = Annotated[commands.MigrateBody | None, Body(examples=[examples.MIGRATE])]
RewindBody: TypeAlias = Annotated[commands.RewindBody, Body(examples=[examples.REWIND])]
RetryBody: TypeAlias = Annotated[commands.RetryBody | None, Body(examples=[examples.RETRY])]
SignalResponse: TypeAlias = Accepted | views.RunView | RunStatus

_GOTO: Final = "goto:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A call that sends a signal to a run, and may wait for its effect."""

    call: Call
    request: Request
    response: Response
    wait: float | None

    async def control(
        self,
        run_id: str,
        kind: type[commands.Order],
        body: BaseModel | None,
        *,
        is_end: bool = False,
    ) -> SignalResponse:
        """Pause, resume or cancel a run, and respond as `respond` does."""
        order = control_order(kind, fields_set(body), self.call.caller, self.call.key)
        since = await self.present(run_id)
        await self.call.client.run(run_id).control(order)
        about = {"signal": SIGNALS[kind]}
        return await self.respond(Accepted(run_id=run_id), since, about, is_end=is_end)

    async def present(self, run_id: str) -> int | None:
        """Return the number of the latest event before the signal; None if the caller does not wait."""
        return await self.call.client.run(run_id).present() if self.wait else None

    async def respond(
        self,
        accepted: Accepted,
        since: int | None,
        about: Mapping[str, str],
        *,
        is_end: bool = False,
    ) -> SignalResponse:
        """Return the response of a route that sent a signal after `since`.

        With a `wait`, return the run once it processed the signal or, if `is_end`, once it has ended. If
        the run refused the signal that `about` identifies, raise that refusal.
        """
        if not self.wait or since is None:
            return accepted
        run, backend = self.call.client.run(accepted.run_id), self.call.backend
        longest = min(self.wait, backend.settings.default_timeout)
        waiting = _effect(run, longest, since, about, is_end=is_end)
        try:
            view = await long_poll(self.request, waiting, stopping=backend.stopping)
        except ServiceStopping:
            view = await run.view()
        if view is None:
            # The caller has disconnected.
            return accepted
        self.response.status_code = 200
        return view_for(self.call.caller, view)


async def _signal(call: CallDep, request: Request, response: Response, wait: Wait = None) -> Signal:
    return Signal(call=call, request=request, response=response, wait=wait)


SignalDep: TypeAlias = Annotated[Signal, Depends(_signal)]


SIGNALLED: Final[openapi.Responses] = {
    200: {
        "description": "The run after the signal took effect, with `wait`.",
        "model": views.RunView | RunStatus,
    },
    202: {"description": "Temporal has accepted the signal."},
}
"""The successful responses of a route that sends a signal to one run."""


@router.post("/pause", status_code=202, responses=SIGNALLED)
async def pause(run_id: RunId, signal: SignalDep, body: PauseBody = None) -> SignalResponse:
    """Pause a run: running nodes finish, or with `mode: now` stop at once, and no new nodes start.

    A paused run accepts answers and acts on them after the resume. After `timeout` the run resumes, halts
    or goes to a node, as `on_timeout` says. Going to a node requires every capability in the run's
    `guarded_by`. Pausing a paused run changes nothing. If the run refuses the pause, for example because
    the node is unknown, it records the event `signal.refused`, and a call with `wait` is refused.
    """
    if goes_to_node(body):
        await require_course(signal.call.caller, signal.call.client, run_id)
    require(signal.call.caller, policy.CONTROL)
    return await signal.control(run_id, commands.Pause, body)


@router.post("/resume", status_code=202, dependencies=[CONTROL], responses=SIGNALLED)
async def resume(run_id: RunId, signal: SignalDep, body: ResumeBody = None) -> SignalResponse:
    """Resume a paused run. Resuming a run that is not paused changes nothing."""
    return await signal.control(run_id, commands.Resume, body)


@router.post("/cancel", status_code=202, dependencies=[CONTROL], responses=SIGNALLED)
@router.post("/interrupt", status_code=202, dependencies=[CONTROL], responses=SIGNALLED)
async def cancel(run_id: RunId, signal: SignalDep, body: CancelBody = None) -> SignalResponse:
    """Cancel a run: withdraw its interrupts, give running nodes `grace` to stop, and run the `finally`
    nodes. The values so far are the result.

    `mode: now` gives no grace, and ends the grace of an earlier cancel. `wait` waits until the run has
    ended.
    """
    return await signal.control(run_id, commands.Cancel, body, is_end=True)


@router.patch("/values", response_description="The run with its new values.")
async def edit_values(run_id: RunId, body: ValuesBody, call: CallDep) -> views.RunView | RunStatus:
    """Set fields of a run's values, if they are still at `version`.

    The run must be paused or waiting, with no node running. Reducers do not apply: each field is
    replaced. Interrupts that show changed values are asked again. This requires every capability in the
    run's `guarded_by`. Without `runs:read` the response has only the run's id and status.
    """
    await require_course(call.caller, call.client, run_id)
    view = await call.client.run(run_id).view()
    run = call.client.run(run_id, call.backend.graph(view.graph))
    await run.edit_values(body.patch, version=body.version, principal=call.caller, key=call.key)
    return view_for(call.caller, await run.view())


@router.post("/migrate", response_description="What the migration did, or with `dry_run` would do.")
async def migrate(run_id: RunId, call: CallDep, body: MigrateBody = None) -> views.Migration:
    """Move an open run to the graph that its worker has today.

    Each visit, question and message of the run needs a place in today's graph, by its name or as `map`
    says, and so do the values, with `patch`. Otherwise `cannot_migrate` lists the obstacles, and nothing
    changes. Running code is an obstacle too: with `pause` the service pauses the run until that code has
    ended, for 45 seconds at most, migrates it, and resumes it unless somebody else had paused it. With
    `dry_run` nothing changes in any case, and `obstacles` lists the obstacles. `versions_differ` means
    that this service has another version of the graph than the worker. This requires every capability in
    the run's `guarded_by`, and a dry run only `runs:read`.
    """
    if body is not None and body.dry_run:
        require(call.caller, policy.READ)
    else:
        await require_course(call.caller, call.client, run_id)
    run = call.client.run(run_id)
    own = call.backend.graphs.get(await run.graph_of() or "")
    version = None if own is None else own.build().version
    fields = fields_set(body)
    pause = fields.pop("pause", False)
    order = commands.Migrate(**fields, version=version, principal=call.caller, key=call.key)
    return await run.migrate_at_rest(order, pause=pause)


@router.post("/retry", response_description="The run, which goes on.")
async def retry(run_id: RunId, call: CallDep, body: RetryBody = None) -> views.RunView | RunStatus:
    """Let a run that failed, was halted or was cancelled go on from where it ended, under its id.

    Finished visits, answers and messages are kept, and open questions are open again. With `graph: today`
    the run moves to today's graph, as by a migration. A patch, and today's graph, require every
    capability in the run's `guarded_by`; to repeat exactly what a gate allowed requires `runs:respond`.
    Without `runs:read` the response has only the run's id and status.
    """
    order = body or commands.RetryBody()
    graph = None
    if order.changes_course:
        await require_course(call.caller, call.client, run_id)
        graph = call.backend.graph(await call.client.run(run_id).graph_of() or "")
    else:
        require(call.caller, policy.CONTROL)
    run = call.client.run(run_id, graph)
    try:
        await run.retry_by(order, principal=call.caller, key=call.key, room=_room(call.backend))
    except Refusal as refusal:
        raise await without_others(call.client, call.reads, refusal) from refusal
    return view_for(call.caller, await run.view())


@router.post(
    "/rewind",
    response_description="What the rewind discarded, or with `dry_run` would discard.",
)
async def rewind(run_id: RunId, call: CallDep, body: RewindBody) -> views.Rewind:
    """Rewind a run, open or ended, to the time when a question was open, or to its `start`.

    Everything that has happened since is discarded, in every branch: answers, values, messages. The
    question is open again under its id, with another digest. Code that has run since may run again, with
    the same `ctx.idempotency_key`, by which a payment provider recognizes the repeat. A `patch` sets
    fields of the values right after that, as `PATCH /values` does; at the start, before anything runs.
    This requires every capability in the run's `guarded_by`; with `dry_run`, which changes nothing, it
    requires `runs:read`.
    """
    if body.dry_run:
        require(call.caller, policy.READ)
    else:
        await require_course(call.caller, call.client, run_id)
    graph = None
    if body.patch:
        graph = call.backend.graph(await call.client.run(run_id).graph_of() or "")
    run = call.client.run(run_id, graph)
    room = _room(call.backend)
    try:
        done = await run.rewind_by(body, principal=call.caller, key=call.key, room=room)
    except Refusal as refusal:
        raise await without_others(call.client, call.reads, refusal) from refusal
    if call.caller.may(policy.READ):
        return done
    return done.model_copy(update={"discards": [], "effects": []})


def _room(backend: Backend) -> Room:
    settings = backend.settings
    return Room(bound=settings.max_active_runs, policy=settings.max_active_runs_policy)


def goes_to_node(body: commands.PauseBody | None) -> bool:
    """Return whether the run goes to another node when the pause times out."""
    return body is not None and body.on_timeout.startswith(_GOTO)


async def require_course(caller: Principal, client: Client, *run_ids: str) -> None:
    """Raise `capability_required` unless the caller may change the course of these runs.

    This requires `runs:control` and every capability that the graphs of the runs can ask for.
    """
    guards = await _guards(caller, client, run_ids)
    if caller.lacks(guards):
        # The cache may be outdated: the id may belong to a run of another graph by now.
        guards = await _guards(caller, client, run_ids, anew=True)
    require(caller, policy.CONTROL, *guards)


async def _guards(
    caller: Principal, client: Client, run_ids: tuple[str, ...], *, anew: bool = False
) -> set[str]:
    guards: set[str] = set()
    for run_id in run_ids:
        try:
            guards.update(await client.run(run_id).guarded_by(anew=anew))
        except Refusal:
            # Without `runs:control` a caller does not learn which runs exist.
            require(caller, policy.CONTROL)
            raise
    return guards


def view_for(caller: Principal, view: views.RunView) -> views.RunView | RunStatus:
    """Return the view of a run or, without `runs:read`, its id and status."""
    return view if caller.may(policy.READ) else RunStatus(run_id=view.run_id, status=view.status)


async def _effect(
    run: TemporalRun, longest: float, since: int, about: Mapping[str, str], *, is_end: bool
) -> views.RunView:
    """Return the run once it has processed a signal; after `longest` seconds it is `degraded`."""
    until = time.monotonic() + longest
    if not await run.is_processed(since, about, seconds=longest):
        return await run.as_recorded()
    left = until - time.monotonic()
    return await (run.wait(timeout=left) if is_end and left > 0 else run.view())
