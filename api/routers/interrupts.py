"""Reading interrupts and answering them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Body, Query

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ, RESPOND, Who, demand
from abeyance.api.dependencies import ClientDep
from abeyance.api.path_params import InterruptId, Key, RunId, unknown_interrupt
from abeyance.api.schemas import AnswerBody, Answered, Listed, given_in
from abeyance.client import Client
from abeyance.errors import Code

router = APIRouter(tags=["interrupts"])

StatusAsked: TypeAlias = Literal["open", "answered", "expired", "cancelled", "superseded", "all"]

AnswersBody: TypeAlias = Annotated[wire.Answers, Body(openapi_examples=openapi_examples.ANSWERS)]

WithView: TypeAlias = Annotated[
    bool,
    Query(
        description="Include the run in the response, as `run`. Requires the capability runs:read."
    ),
]

_JUDGED = (
    Code.UNKNOWN_RUN,
    Code.UNKNOWN_INTERRUPT,
    Code.ALREADY_ANSWERED,
    Code.NOT_ROOT_CAUSE,
    Code.WITHDRAWN,
    Code.STALE,
    Code.IDEMPOTENCY_CONFLICT,
    Code.NATIVELY_PAUSED,
    Code.EXPIRED,
    Code.INVALID_ANSWER,
)


@router.get(
    "/runs/{run_id}/interrupts",
    dependencies=[READ],
    responses=openapi.read(
        "The interrupts, open ones first.",
        openapi_examples.listed(openapi_examples.INTERRUPT),
        Code.UNKNOWN_RUN,
    ),
)
async def list_interrupts(
    run_id: RunId,
    client: ClientDep,
    status: Annotated[
        StatusAsked, Query(description="The status of the interrupts; `all` is any.")
    ] = "open",
) -> Listed[wire.InterruptView]:
    """List the interrupts of a run."""
    return Listed(items=await client.run(run_id).interrupts(status=status))


@router.get(
    "/interrupts/{interrupt_id}",
    dependencies=[READ],
    responses=openapi.read(
        "The interrupt.",
        openapi_examples.INTERRUPT,
        Code.UNKNOWN_RUN,
        Code.UNKNOWN_INTERRUPT,
    ),
)
async def read_interrupt(interrupt_id: InterruptId, client: ClientDep) -> wire.InterruptView:
    """Retrieve an interrupt, open or settled."""
    found = await client.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if found is None:
        raise unknown_interrupt(interrupt_id.id)
    return found


@router.post(
    "/runs/{run_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(
        200,
        "A receipt for each answer.",
        openapi_examples.RECEIPTS,
        *_JUDGED,
        Code.AMBIGUOUS_INTERRUPT,
        Code.RUN_FINISHED,
    ),
)
async def respond(
    run_id: RunId,
    body: AnswersBody,
    who: Who,
    client: ClientDep,
    key: Key,
    *,
    view: WithView = False,
) -> Answered | wire.Receipts:
    """Answer interrupts of a run. Either all answers are accepted or none.

    Answer several by id (`responses`), one by id (`interrupt_id` and `response`), or, if exactly one is
    open, without an id (`response`). null is a valid answer. Repeating an answer returns the first
    receipt, marked `replayed`; a different answer to a settled interrupt is refused. With `digests`, an
    answer is refused if the interrupt shows something else than the approver saw.
    """
    order = wire.Respond(**given_in(body), principal=who, key=key)
    return await _answer(client, run_id, order, view=view)


@router.post(
    "/interrupts/{interrupt_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(200, "A receipt for the answer.", openapi_examples.RECEIPTS, *_JUDGED),
)
async def respond_to_interrupt(
    interrupt_id: InterruptId,
    body: AnswerBody,
    who: Who,
    client: ClientDep,
    key: Key,
    *,
    view: WithView = False,
) -> Answered | wire.Receipts:
    """Answer one interrupt. null is a valid answer."""
    order = wire.Respond(
        responses={interrupt_id.id: body.response},
        note=body.note,
        digests=body.digests,
        principal=who,
        key=key,
    )
    return await _answer(client, interrupt_id.run_id, order, view=view)


async def _answer(
    client: Client, run_id: str, order: wire.Respond, *, view: bool
) -> Answered | wire.Receipts:
    if view:
        demand(order.principal, "runs:read")
    receipts = await client.run(run_id).respond_to(order)
    if not view:
        return wire.Receipts(receipts=receipts)
    return Answered(receipts=receipts, run=await client.run(run_id).view())
