"""Pausing, resuming and cancelling runs.

The operations are signals: they are accepted also when no worker is up, and take effect when one is.
The answer is the run as it is after the signal. The run knows each by its `Idempotency-Key`, so that a
repeat has no further effect, whatever came in between.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Body

from abeyance import wire
from abeyance.api import document, examples
from abeyance.api.auth import CONTROL, Who, demand, may_read
from abeyance.api.backend import Behind, Runs
from abeyance.api.bodies import RunStatus, given_in
from abeyance.api.ids import Key, RunId
from abeyance.client import Client
from abeyance.core.authority import CONTROL as CONTROLS
from abeyance.core.authority import COURSE, takes_of_directive
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal

router = APIRouter(prefix="/runs/{run_id}", tags=["control"])

PauseBody: TypeAlias = Annotated[wire.PauseBody | None, Body(examples=[examples.PAUSE])]
ResumeBody: TypeAlias = Annotated[wire.ControlBody | None, Body(examples=[examples.RESUME])]
CancelBody: TypeAlias = Annotated[wire.CancelBody | None, Body(examples=[examples.CANCEL])]

_GOTO: Final = "goto:"
_REFUSED: Final = (Code.UNKNOWN_RUN, Code.NOT_RUNNING, Code.IDEMPOTENCY_CONFLICT)


@router.post(
    "/pause",
    status_code=202,
    responses=document.change(
        202, "The run, paused.", examples.PAUSED_RUN, *_REFUSED, Code.UNKNOWN_NODE
    ),
)
async def pause(
    *, run_id: RunId, who: Who, behind: Behind, key: Key, body: PauseBody = None
) -> wire.RunView | RunStatus:
    """Start no new work: running nodes finish, or with `mode: now` are stopped until the run resumes.

    Answers are accepted meanwhile, and go on after the resume. With a `timeout` the run resumes by
    itself, is halted, or goes to a node, as `on_timeout` says; to go to a node takes every capability
    that the graph can ask for (`guarded_by`). To pause a paused run changes nothing. Without `runs:read`
    the answer is the run's id and status.
    """
    if leads_on(body):
        await demand_course(who, behind.link.client, run_id)
    # Who may not do this is told so also while Temporal is away.
    demand(who, CONTROLS)
    order = wire.Pause(**given_in(body), actor=who.subject, capabilities=who.capabilities, key=key)
    return shown_to(who, await behind.link.client.pause(run_id, order))


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    responses=document.change(202, "The run, going on.", examples.RUN, *_REFUSED),
)
async def resume(
    run_id: RunId, who: Who, runs: Runs, key: Key, body: ResumeBody = None
) -> wire.RunView | RunStatus:
    """Go on after a pause. To resume a run that is not paused changes nothing."""
    order = wire.Resume(**given_in(body), actor=who.subject, key=key)
    return shown_to(who, await runs.resume(run_id, order))


_CANCELLED: Final = document.change(202, "The run, ending.", examples.ENDING_RUN, *_REFUSED)


@router.post("/cancel", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
@router.post("/interrupt", status_code=202, dependencies=[CONTROL], responses=_CANCELLED)
async def cancel(
    run_id: RunId, who: Who, runs: Runs, key: Key, body: CancelBody = None
) -> wire.RunView | RunStatus:
    """End the run in good order: its interrupts are withdrawn, its nodes get `grace` to stop, its
    `finally` nodes run, and what it has reached is its result.

    `mode: now` gives no grace, and makes an earlier cancel so.
    """
    order = wire.Cancel(**given_in(body), actor=who.subject, key=key)
    return shown_to(who, await runs.cancel(run_id, order))


def leads_on(body: wire.PauseBody | None) -> bool:
    """Whether the end of the pause would lead the run to another node."""
    return body is not None and body.on_timeout.startswith(_GOTO)


async def demand_course(who: Principal, runs: Client, *run_ids: str) -> None:
    """Raise `capability_required` unless somebody may change the course of these runs: that takes
    everything that their graphs can ask for.
    """
    guards: set[str] = set()
    for run_id in run_ids:
        try:
            guards.update(await runs.guarded_by(run_id))
        except Refusal:
            # Who may control nothing does not learn which runs there are.
            demand(who, CONTROLS)
            raise
    demand(who, CONTROLS, *guards)


async def demand_message(
    who: Principal,
    runs: Client,
    message: wire.MessageBody,
    *run_ids: str,
    beside: str | None = None,
) -> None:
    """Raise `capability_required` unless somebody may send a message to these runs: to talk takes
    `runs:steer`, and what does more is control. `beside` is what it takes as well.
    """
    if message.action in COURSE:
        await demand_course(who, runs, *run_ids)
    demand(who, takes_of_directive(message.action), *([] if beside is None else [beside]))


def shown_to(who: Principal, view: wire.RunView) -> wire.RunView | RunStatus:
    """The view of a run; without `runs:read`, its id and status."""
    return view if may_read(who) else RunStatus(run_id=view.run_id, status=view.status)
