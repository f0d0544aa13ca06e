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
    Query(description="Answer with the run as well, as `run`; takes the capability runs:read."),
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
        "The interrupts, the open ones first.",
        openapi_examples.listed(openapi_examples.INTERRUPT),
        Code.UNKNOWN_RUN,
    ),
)
async def list_interrupts(
    run_id: RunId,
    client: ClientDep,
    status: Annotated[StatusAsked, Query(description="Of which status; `all` is any.")] = "open",
) -> Listed[wire.InterruptView]:
    """List a run's interrupts."""
    return Listed(items=await client.run(run_id).interrupts(status=status))


@router.get(
    "/interrupts/{interrupt_id}",
    dependencies=[READ],
    responses=openapi.read(
        "The interrupt, open or settled.",
        openapi_examples.INTERRUPT,
        Code.UNKNOWN_RUN,
        Code.UNKNOWN_INTERRUPT,
    ),
)
async def read_interrupt(interrupt_id: InterruptId, client: ClientDep) -> wire.InterruptView:
    """Read one interrupt; its id names its run."""
    found = await client.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if found is None:
        raise unknown_interrupt(interrupt_id.id)
    return found


@router.post(
    "/runs/{run_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(
        200,
        "The receipts of all answers.",
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
    """Answer interrupts of a run, all or nothing.

    By id (`responses`), one (`interrupt_id` and `response`), or, if exactly one is open, without an id
    (`response`). null is an answer. The same answer again gets the first receipt, `replayed`; another
    answer to what is settled is refused. `digests` tell what was shown to the answering person.
    """
    order = wire.Respond(**given_in(body), principal=who, key=key)
    return await _answer(client, run_id, order, view=view)


@router.post(
    "/interrupts/{interrupt_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(
        200, "The receipt of the answer.", openapi_examples.RECEIPTS, *_JUDGED
    ),
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
    """Answer one interrupt; its id names its run. null is an answer."""
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
