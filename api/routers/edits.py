"""Changing a run that has stopped: its values, and the deadlines of what it asks."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import Who, may_read
from abeyance.api.dependencies import AppState, ClientDep
from abeyance.api.path_params import InterruptId, Key, RunId
from abeyance.api.routers.control import demand_course, shown_to
from abeyance.api.schemas import InterruptStatus, RunStatus, given_in
from abeyance.errors import Code, Unavailable

router = APIRouter(tags=["edits"])

ValuesBody: TypeAlias = Annotated[wire.ValuesBody, Body(examples=[openapi_examples.VALUES])]
DeadlineBody: TypeAlias = Annotated[wire.DeadlineBody, Body(examples=[openapi_examples.DEADLINE])]


_OF_EDITS = (
    Code.UNKNOWN_RUN,
    Code.IDEMPOTENCY_CONFLICT,
    Code.NATIVELY_PAUSED,
)


@router.patch(
    "/runs/{run_id}/values",
    responses=openapi.change(
        200,
        "The run with its new values.",
        openapi_examples.RUN,
        *_OF_EDITS,
        Code.NOT_RUNNING,
        Code.UNKNOWN_GRAPH,
        Code.NOT_STOPPED,
        Code.STALE,
        Code.INVALID_INPUT,
    ),
)
async def edit_values(
    *, run_id: RunId, body: ValuesBody, who: Who, behind: AppState, client: ClientDep, key: Key
) -> wire.RunView | RunStatus:
    """Set fields of a run's values, if they are still at `version`.

    The run must be paused or waiting, with no node running. Reducers do not apply: each field is
    replaced. Interrupts that show changed values are asked again. This requires every capability in the
    run's `guarded_by`. Without `runs:read` the response has only the run's id and status.
    """
    await demand_course(who, client, run_id)
    view = await client.run(run_id).view()
    run = client.run(run_id, behind.graph(view.graph))
    await run.edit_values(body.patch, version=body.version, principal=who, key=key)
    return shown_to(who, await run.view())


@router.patch(
    "/interrupts/{interrupt_id}",
    responses=openapi.change(
        200,
        "The interrupt with its new deadline.",
        openapi_examples.INTERRUPT,
        *_OF_EDITS,
        Code.UNKNOWN_INTERRUPT,
        Code.UNKNOWN_NODE,
        Code.ALREADY_ANSWERED,
        Code.WITHDRAWN,
    ),
)
async def edit_deadline(
    interrupt_id: InterruptId, body: DeadlineBody, who: Who, client: ClientDep, key: Key
) -> wire.InterruptView | InterruptStatus:
    """Change the deadline of an open interrupt, or the action on its timeout.

    A `deadline` or `timeout` of null removes it. This requires every capability in the run's
    `guarded_by`. A default answer can only be declared in the graph. Without `runs:read` the response has
    only the interrupt's id and status.
    """
    await demand_course(who, client, interrupt_id.run_id)
    order = wire.EditDeadline(
        **given_in(body), interrupt_id=interrupt_id.id, principal=who, key=key
    )
    run = client.run(interrupt_id.run_id)
    await run.edit(order)
    edited = await run.interrupt(interrupt_id.id)
    if edited is None:
        raise Unavailable(
            f"the run {run.run_id!r} cannot be read now, but its deadline was changed: read it later"
        )
    if may_read(who):
        return edited
    return InterruptStatus(id=edited.id, run_id=edited.run_id, status=edited.status)
