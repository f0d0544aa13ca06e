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
from abeyance.api.auth import CONTROL, Who, demand
from abeyance.api.backend import Backend, Behind, Runs
from abeyance.api.bodies import given_in
from abeyance.api.ids import Key, RunId
from abeyance.client import Client
from abeyance.core.policy import Principal
from abeyance.errors import Code

router = APIRouter(prefix="/runs/{run_id}", tags=["control"], dependencies=[CONTROL])

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
    *, run_id: RunId, who: Who, behind: Behind, runs: Runs, key: Key, body: PauseBody = None
) -> wire.RunView:
    """Start no new work: running nodes finish, or with `mode: now` are stopped until the run resumes.

    Answers are accepted meanwhile, and go on after the resume. With a `timeout` the run resumes by
    itself, is halted, or goes to a node, as `on_timeout` says; to go to a node takes the capabilities
    of the gates that are left and passed by it. To pause a paused run changes nothing.
    """
    if leads_on(body):
        await demand_gates(run_id, who, behind, runs)
    return await runs.pause(run_id, wire.Pause(**given_in(body), actor=who.subject, key=key))


@router.post(
    "/resume",
    status_code=202,
    responses=document.change(202, "The run, going on.", examples.RUN, *_REFUSED),
)
async def resume(
    run_id: RunId, who: Who, runs: Runs, key: Key, body: ResumeBody = None
) -> wire.RunView:
    """Go on after a pause. To resume a run that is not paused changes nothing."""
    return await runs.resume(run_id, wire.Resume(**given_in(body), actor=who.subject, key=key))


_CANCELLED: Final = document.change(202, "The run, ending.", examples.ENDING_RUN, *_REFUSED)


@router.post("/cancel", status_code=202, responses=_CANCELLED)
@router.post("/interrupt", status_code=202, responses=_CANCELLED)
async def cancel(
    run_id: RunId, who: Who, runs: Runs, key: Key, body: CancelBody = None
) -> wire.RunView:
    """End the run in good order: its interrupts are withdrawn, its nodes get `grace` to stop, its
    `finally` nodes run, and what it has reached is its result.

    `mode: now` gives no grace, and makes an earlier cancel so.
    """
    return await runs.cancel(run_id, wire.Cancel(**given_in(body), actor=who.subject, key=key))


def leads_on(body: wire.PauseBody | None) -> bool:
    """Whether the end of the pause would lead the run to another node."""
    return body is not None and body.on_timeout.startswith(_GOTO)


async def demand_gates(run_id: str, who: Principal, behind: Backend, runs: Client) -> None:
    """Whoever leads a run past a gate has to be somebody who could open it."""
    view = await runs.view(run_id)
    wanted = {entry.requested_capability for entry in view.interrupts}
    if (graph := behind.graphs.get(view.graph)) is not None:
        wanted |= {question.requested_capability for question in graph.build().questions}
    for capability in sorted(name for name in wanted if name is not None):
        demand(who, capability)
