"""Control of one run: pause, resume, cancel, and edits of its values.

Pause, resume and cancel are signals: they are accepted while no worker runs, and take effect when one
does. The response is sent once Temporal has the signal or, with `wait`, once the signal took effect. The
run deduplicates signals by their `Idempotency-Key`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Body, Request, Response

from abeyance import commands, views
from abeyance.api import examples, openapi
from abeyance.api.auth import CONTROL, Caller, require
from abeyance.api.dependencies import (
    Backend,
    BackendDep,
    ClientDep,
    Key,
    RunId,
    ServiceStopping,
    Wait,
    long_poll,
    sleep_unless,
)
from abeyance.api.schemas import Accepted, RunStatus, fields_set
from abeyance.client import Client
from abeyance.core import authority
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal

router = APIRouter(prefix="/runs/{run_id}", tags=["control"])

PauseBody: TypeAlias = Annotated[commands.PauseBody | None, Body(examples=[examples.PAUSE])]
ResumeBody: TypeAlias = Annotated[commands.ControlBody | None, Body(examples=[examples.RESUME])]
CancelBody: TypeAlias = Annotated[commands.CancelBody | None, Body(examples=[examples.CANCEL])]
ValuesBody: TypeAlias = Annotated[commands.ValuesBody, Body(examples=[examples.VALUES])]
SignalResponse: TypeAlias = Accepted | views.RunView | RunStatus

_GOTO: Final = "goto:"
_POLL_SECONDS: Final = 0.5
"""The interval of queries while no worker processes the signal."""
_CODES: Final = (Code.UNKNOWN_RUN, Code.NOT_RUNNING, Code.IDEMPOTENCY_CONFLICT)


def signal_responses(example: Any, with_wait: Any, *refusals: Code) -> openapi.Responses:
    """Return the OpenAPI responses of a route that sends a signal to one run."""
    return {
        200: openapi.also(
            "The run after the signal took effect, with `wait`.", with_wait, views.RunView
        ),
        **openapi.change(202, "Temporal has accepted the signal.", example, *refusals),
    }


@router.post(
    "/pause",
    status_code=202,
    responses=signal_responses(examples.ACCEPTED, examples.PAUSED_RUN, *_CODES),
)
async def pause(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    key: Key,
    request: Request,
    response: Response,
    body: PauseBody = None,
    wait: Wait = None,
) -> SignalResponse:
    """Pause a run: running nodes finish, or with `mode: now` stop at once, and no new nodes start.

    A paused run accepts answers and acts on them after the resume. After `timeout` the run resumes, halts
    or goes to a node, as `on_timeout` says. Going to a node requires every capability in the run's
    `guarded_by`. Pausing a paused run changes nothing. If the run refuses the pause, for example because
    the node is unknown, it records the event `signal.refused`.
    """
    if goes_to_node(body):
        await require_course(caller, backend.connection.client, run_id)
    # Before the client is used: a missing capability is refused even if Temporal is unavailable.
    require(caller, authority.CONTROL)
    command = commands.Pause(
        **fields_set(body), actor=caller.subject, capabilities=caller.capabilities, key=key
    )
    await backend.connection.client.run(run_id).control(command)
    return await signal_response(backend, caller, Accepted(run_id=run_id), wait, request, response)


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    responses=signal_responses(examples.ACCEPTED, examples.RUN, *_CODES),
)
async def resume(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    key: Key,
    request: Request,
    response: Response,
    body: ResumeBody = None,
    wait: Wait = None,
) -> SignalResponse:
    """Resume a paused run. Resuming a run that is not paused changes nothing."""
    command = commands.Resume(**fields_set(body), actor=caller.subject, key=key)
    await backend.connection.client.run(run_id).control(command)
    return await signal_response(backend, caller, Accepted(run_id=run_id), wait, request, response)


_CANCELLED: Final = signal_responses(examples.ACCEPTED, examples.ENDING_RUN, *_CODES)


@router.post("/cancel", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
@router.post("/interrupt", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
async def cancel(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    key: Key,
    request: Request,
    response: Response,
    body: CancelBody = None,
    wait: Wait = None,
) -> SignalResponse:
    """Cancel a run: withdraw its interrupts, give running nodes `grace` to stop, and run the `finally`
    nodes. The values so far are the result.

    `mode: now` gives no grace, and ends the grace of an earlier cancel. `wait` waits until the run has
    ended.
    """
    command = commands.Cancel(**fields_set(body), actor=caller.subject, key=key)
    await backend.connection.client.run(run_id).control(command)
    accepted = Accepted(run_id=run_id)
    return await signal_response(backend, caller, accepted, wait, request, response, is_end=True)


@router.patch(
    "/values",
    responses=openapi.change(
        200,
        "The run with its new values.",
        examples.RUN,
        *_CODES,
        Code.NATIVELY_PAUSED,
        Code.UNKNOWN_GRAPH,
        Code.NOT_STOPPED,
        Code.STALE,
        Code.INVALID_INPUT,
    ),
)
async def edit_values(
    *,
    run_id: RunId,
    body: ValuesBody,
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    key: Key,
) -> views.RunView | RunStatus:
    """Set fields of a run's values, if they are still at `version`.

    The run must be paused or waiting, with no node running. Reducers do not apply: each field is
    replaced. Interrupts that show changed values are asked again. This requires every capability in the
    run's `guarded_by`. Without `runs:read` the response has only the run's id and status.
    """
    await require_course(caller, client, run_id)
    view = await client.run(run_id).view()
    run = client.run(run_id, backend.graph(view.graph))
    await run.edit_values(body.patch, version=body.version, principal=caller, key=key)
    return view_for(caller, await run.view())


def goes_to_node(body: commands.PauseBody | None) -> bool:
    """Return True if the run goes to another node when the pause times out."""
    return body is not None and body.on_timeout.startswith(_GOTO)


async def require_course(caller: Principal, client: Client, *run_ids: str) -> None:
    """Raise `capability_required` unless the caller may change the course of these runs.

    This requires `runs:control` and every capability that the graphs of the runs can ask for.
    """
    guards = await _guards(caller, client, run_ids)
    if caller.lacks(guards):
        # The cache may be outdated: the id may belong to a run of another graph by now.
        guards = await _guards(caller, client, run_ids, anew=True)
    require(caller, authority.CONTROL, *guards)


async def _guards(
    caller: Principal, client: Client, run_ids: tuple[str, ...], *, anew: bool = False
) -> set[str]:
    guards: set[str] = set()
    for run_id in run_ids:
        try:
            guards.update(await client.run(run_id).guarded_by(anew=anew))
        except Refusal:
            # Without `runs:control` a caller does not learn which runs exist.
            require(caller, authority.CONTROL)
            raise
    return guards


async def require_message(
    caller: Principal,
    client: Client,
    message: commands.MessageBody,
    *run_ids: str,
    also: str | None = None,
) -> None:
    """Raise `capability_required` unless the caller may send the message to these runs.

    The action decides between `runs:steer` and `runs:control`. `also` is required in addition.
    """
    if message.action in authority.COURSE:
        await require_course(caller, client, *run_ids)
    capability = authority.takes_of_directive(message.action)
    require(caller, capability, *([] if also is None else [also]))


def view_for(caller: Principal, view: views.RunView) -> views.RunView | RunStatus:
    """Return the view of a run or, without `runs:read`, its id and status."""
    return view if caller.may(authority.READ) else RunStatus(run_id=view.run_id, status=view.status)


async def signal_response(  # noqa: PLR0917 the parameters of a route
    backend: Backend,
    caller: Principal,
    accepted: Accepted,
    wait: float | None,
    request: Request,
    response: Response,
    *,
    is_end: bool = False,
) -> SignalResponse:
    """Return the response of a route that sent a signal.

    With a `wait`, return the run once it processed the signal or, if `is_end`, once it has ended.
    """
    if not wait:
        return accepted
    client, run_id = backend.connection.client, accepted.run_id
    longest = min(wait, backend.settings.default_timeout)
    waiting = _wait_for_effect(client, run_id, longest, backend.stopping, is_end=is_end)
    try:
        view = await long_poll(request, waiting, stopping=backend.stopping)
    except ServiceStopping:
        view = await client.run(run_id).view()
    if view is None:
        # The caller has disconnected.
        return accepted
    response.status_code = 200
    return view_for(caller, view)


async def _wait_for_effect(
    client: Client, run_id: str, longest: float, stopping: asyncio.Event, *, is_end: bool
) -> views.RunView:
    until = time.monotonic() + longest
    while True:
        # A worker that answers the query has processed every earlier signal.
        view = await client.run(run_id).view()
        left = until - time.monotonic()
        if not view.degraded or view.ended_at is not None or left <= 0:
            break
        await sleep_unless(stopping, min(left, _POLL_SECONDS))
    if is_end and left > 0 and view.ended_at is None:
        return await client.run(run_id).wait(timeout=left)
    return view
