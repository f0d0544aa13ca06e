"""Pausing, resuming and cancelling runs.

The operations are signals: they are accepted also when no worker is up, and take effect when one is.
The answer says that Temporal has the signal; with `wait` it is the run as the signal left it. The run
knows each by its `Idempotency-Key`, so that a repeat has no further effect, whatever came in between.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Body, Request, Response

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import CONTROL, Who, demand, may_read
from abeyance.api.dependencies import AppState, Backend
from abeyance.api.long_poll import Leaving, Wait, long_poll, sleep_unless
from abeyance.api.path_params import Key, RunId
from abeyance.api.schemas import Accepted, RunStatus, given_in
from abeyance.client import Client
from abeyance.core.authority import CONTROL as CONTROLS
from abeyance.core.authority import COURSE, takes_of_directive
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal

router = APIRouter(prefix="/runs/{run_id}", tags=["control"])

PauseBody: TypeAlias = Annotated[wire.PauseBody | None, Body(examples=[openapi_examples.PAUSE])]
ResumeBody: TypeAlias = Annotated[wire.ControlBody | None, Body(examples=[openapi_examples.RESUME])]
CancelBody: TypeAlias = Annotated[wire.CancelBody | None, Body(examples=[openapi_examples.CANCEL])]
Sent: TypeAlias = Accepted | wire.RunView | RunStatus

_GOTO: Final = "goto:"
_LOOK_EVERY: Final = 0.5
"""In seconds, while no worker has taken a signal."""
_REFUSED: Final = (Code.UNKNOWN_RUN, Code.NOT_RUNNING, Code.IDEMPOTENCY_CONFLICT)


def signalled(example: Any, with_wait: Any, *refusals: Code) -> openapi.Answers:
    """The answers of a call that sends a signal to one run."""
    return {
        200: openapi.also(
            "The run after the signal took effect, with `wait`.", with_wait, wire.RunView
        ),
        **openapi.change(202, "Temporal has accepted the signal.", example, *refusals),
    }


@router.post(
    "/pause",
    status_code=202,
    responses=signalled(openapi_examples.ACCEPTED, openapi_examples.PAUSED_RUN, *_REFUSED),
)
async def pause(
    *,
    run_id: RunId,
    who: Who,
    behind: AppState,
    key: Key,
    request: Request,
    response: Response,
    body: PauseBody = None,
    wait: Wait = None,
) -> Sent:
    """Pause a run: running nodes finish, or with `mode: now` stop at once, and no new nodes start.

    A paused run accepts answers and acts on them after the resume. After `timeout` the run resumes, halts
    or goes to a node, as `on_timeout` says. Going to a node requires every capability in the run's
    `guarded_by`. Pausing a paused run changes nothing. If the run refuses the pause, for example because
    the node is unknown, it records the event `signal.refused`.
    """
    if leads_on(body):
        await demand_course(who, behind.link.client, run_id)
    # Who may not do this is told so also while Temporal is away.
    demand(who, CONTROLS)
    order = wire.Pause(**given_in(body), actor=who.subject, capabilities=who.capabilities, key=key)
    await behind.link.client.run(run_id).control(order)
    return await sent(behind, who, Accepted(run_id=run_id), wait, request, response)


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    responses=signalled(openapi_examples.ACCEPTED, openapi_examples.RUN, *_REFUSED),
)
async def resume(
    *,
    run_id: RunId,
    who: Who,
    behind: AppState,
    key: Key,
    request: Request,
    response: Response,
    body: ResumeBody = None,
    wait: Wait = None,
) -> Sent:
    """Resume a paused run. Resuming a run that is not paused changes nothing."""
    order = wire.Resume(**given_in(body), actor=who.subject, key=key)
    await behind.link.client.run(run_id).control(order)
    return await sent(behind, who, Accepted(run_id=run_id), wait, request, response)


_CANCELLED: Final = signalled(openapi_examples.ACCEPTED, openapi_examples.ENDING_RUN, *_REFUSED)


@router.post("/cancel", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
@router.post("/interrupt", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
async def cancel(
    *,
    run_id: RunId,
    who: Who,
    behind: AppState,
    key: Key,
    request: Request,
    response: Response,
    body: CancelBody = None,
    wait: Wait = None,
) -> Sent:
    """Cancel a run: withdraw its interrupts, give running nodes `grace` to stop, and run the `finally`
    nodes. The values so far are the result.

    `mode: now` gives no grace, and ends the grace of an earlier cancel. `wait` waits until the run has
    ended.
    """
    order = wire.Cancel(**given_in(body), actor=who.subject, key=key)
    await behind.link.client.run(run_id).control(order)
    accepted = Accepted(run_id=run_id)
    return await sent(behind, who, accepted, wait, request, response, is_end=True)


def leads_on(body: wire.PauseBody | None) -> bool:
    """Whether the end of the pause would lead the run to another node."""
    return body is not None and body.on_timeout.startswith(_GOTO)


async def demand_course(who: Principal, client: Client, *run_ids: str) -> None:
    """Raise `capability_required` unless somebody may change the course of these runs: that takes
    everything that their graphs can ask for.
    """
    guards = await _guards(who, client, run_ids)
    if who.lacks(guards):
        # The id may have been given to a run of another graph since this process saw it.
        guards = await _guards(who, client, run_ids, anew=True)
    demand(who, CONTROLS, *guards)


async def _guards(
    who: Principal, client: Client, run_ids: tuple[str, ...], *, anew: bool = False
) -> set[str]:
    guards: set[str] = set()
    for run_id in run_ids:
        try:
            guards.update(await client.run(run_id).guarded_by(anew=anew))
        except Refusal:
            # Who may control nothing does not learn which runs there are.
            demand(who, CONTROLS)
            raise
    return guards


async def demand_message(
    who: Principal,
    client: Client,
    message: wire.MessageBody,
    *run_ids: str,
    beside: str | None = None,
) -> None:
    """Raise `capability_required` unless somebody may send a message to these runs: to talk takes
    `runs:steer`, and what does more is control. `beside` is what it takes as well.
    """
    if message.action in COURSE:
        await demand_course(who, client, *run_ids)
    demand(who, takes_of_directive(message.action), *([] if beside is None else [beside]))


def shown_to(who: Principal, view: wire.RunView) -> wire.RunView | RunStatus:
    """The view of a run; without `runs:read`, its id and status."""
    return view if may_read(who) else RunStatus(run_id=view.run_id, status=view.status)


async def sent(  # noqa: PLR0917 what a call has at hand
    behind: Backend,
    who: Principal,
    accepted: Accepted,
    wait: float | None,
    request: Request,
    response: Response,
    *,
    is_end: bool = False,
) -> Sent:
    """The answer of a call that has sent a signal: with a `wait`, the run once it has taken the signal,
    or, if `is_end`, has ended.
    """
    if not wait:
        return accepted
    client, run_id = behind.link.client, accepted.run_id
    longest = min(wait, behind.settings.default_timeout)
    waiting = _taken(client, run_id, longest, behind.leaving, is_end=is_end)
    try:
        view = await long_poll(request, waiting, leaving=behind.leaving)
    except Leaving:
        view = await client.run(run_id).view()
    if view is None:
        # Nobody reads what is answered to a caller who has gone.
        return accepted
    response.status_code = 200
    return shown_to(who, view)


async def _taken(
    client: Client, run_id: str, longest: float, leaving: asyncio.Event, *, is_end: bool
) -> wire.RunView:
    until = time.monotonic() + longest
    while True:
        # A worker that can be asked has been told of every signal that came before.
        view = await client.run(run_id).view()
        left = until - time.monotonic()
        if not view.degraded or view.ended_at is not None or left <= 0:
            break
        await sleep_unless(leaving, min(left, _LOOK_EVERY))
    if is_end and left > 0 and view.ended_at is None:
        return await client.run(run_id).wait(timeout=left)
    return view
