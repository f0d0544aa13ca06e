"""Reading interrupts and answering them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Body, Query

from abeyance import wire
from abeyance.api import document, examples
from abeyance.api.auth import READ, RESPOND, Who, demand
from abeyance.api.backend import Runs
from abeyance.api.bodies import AnswerBody, Answered, Listed, given_in
from abeyance.api.ids import InterruptId, Key, RunId, unknown_interrupt
from abeyance.client import Client
from abeyance.core.canonical import sha256
from abeyance.core.ledger import Receipt
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal, Unavailable

router = APIRouter(tags=["interrupts"])

StatusAsked: TypeAlias = Literal["open", "answered", "expired", "cancelled", "superseded", "all"]

AnswersBody: TypeAlias = Annotated[wire.Answers, Body(openapi_examples=examples.ANSWERS)]

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
    responses=document.read(
        "The interrupts, the open ones first.",
        examples.listed(examples.INTERRUPT),
        Code.UNKNOWN_RUN,
    ),
)
async def list_interrupts(
    run_id: RunId,
    runs: Runs,
    status: Annotated[StatusAsked, Query(description="Of which status; `all` is any.")] = "open",
) -> Listed[wire.InterruptView]:
    """List a run's interrupts."""
    return Listed(items=await runs.run(run_id).interrupts(status=status))


@router.get(
    "/interrupts/{interrupt_id}",
    dependencies=[READ],
    responses=document.read(
        "The interrupt, open or settled.",
        examples.INTERRUPT,
        Code.UNKNOWN_RUN,
        Code.UNKNOWN_INTERRUPT,
    ),
)
async def read_interrupt(interrupt_id: InterruptId, runs: Runs) -> wire.InterruptView:
    """Read one interrupt; its id names its run."""
    found = await runs.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if found is None:
        raise unknown_interrupt(interrupt_id.id)
    return found


@router.post(
    "/runs/{run_id}/respond",
    dependencies=[RESPOND],
    responses=document.change(
        200,
        "The receipts of all answers.",
        examples.RECEIPTS,
        *_JUDGED,
        Code.AMBIGUOUS_INTERRUPT,
        Code.RUN_FINISHED,
    ),
)
async def respond(
    run_id: RunId, body: AnswersBody, who: Who, runs: Runs, key: Key, *, view: WithView = False
) -> Answered | wire.Receipts:
    """Answer interrupts of a run, all or nothing.

    By id (`responses`), one (`interrupt_id` and `response`), or, if exactly one is open, without an id
    (`response`). null is an answer. The same answer again gets the first receipt, `replayed`; another
    answer to what is settled is refused. `digests` tell what was shown to the answering person.
    """
    order = wire.Respond(**given_in(body), principal=who)
    return await _answer(runs, run_id, order, key, view=view)


@router.post(
    "/interrupts/{interrupt_id}/respond",
    dependencies=[RESPOND],
    responses=document.change(200, "The receipt of the answer.", examples.RECEIPTS, *_JUDGED),
)
async def respond_to_interrupt(
    interrupt_id: InterruptId,
    body: AnswerBody,
    who: Who,
    runs: Runs,
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
    )
    return await _answer(runs, interrupt_id.run_id, order, key, view=view)


async def _answer(
    runs: Client, run_id: str, order: wire.Respond, key: str | None, *, view: bool
) -> Answered | wire.Receipts:
    if view:
        demand(order.principal, "runs:read")
    receipts = await receipts_of(runs, run_id, order, key)
    if not view:
        return wire.Receipts(receipts=receipts)
    return Answered(receipts=receipts, run=await runs.run(run_id).view())


async def receipts_of(
    runs: Client, run_id: str, order: wire.Respond, key: str | None
) -> list[Receipt]:
    """Answer a run; with the same key again, get the same receipts."""
    if key is None:
        return await runs.run(run_id).respond_to(order)
    earlier = await runs.run(run_id).earlier_receipts(key)
    receipts = earlier or await runs.run(run_id).respond_to(order, key=key)
    # Temporal gives a known key its first result, whatever it comes with the second time: also when
    # the two calls were under way together, so the receipts are held against the answers either way.
    await _check_same(runs, run_id, order, receipts, key)
    return [replace(receipt, replayed=True) for receipt in receipts] if earlier else receipts


async def _check_same(
    runs: Client, run_id: str, order: wire.Respond, receipts: list[Receipt], key: str
) -> None:
    """Raise `idempotency_conflict` unless the receipts are those of these answers."""
    settled = {entry.id: entry for entry in await runs.run(run_id).interrupts(status="all")}
    given = _answers_by_id(order, receipts)
    is_same = given.keys() == {receipt.interrupt_id for receipt in receipts}
    for receipt in receipts if is_same else ():
        entry = settled.get(receipt.interrupt_id)
        if entry is None or entry.answer_sha256 is None:
            await runs.run(run_id).refuse_natively_paused()
            raise Unavailable(
                f"the key {key!r} was used on the run {run_id!r} before, and it cannot be told now "
                "whether with the same answers. The same call may be repeated."
            )
        is_same = is_same and entry.answer_sha256 == sha256(given[receipt.interrupt_id])
        is_same = is_same and (receipt.replayed or _is_by(receipt, order.principal))
    if not is_same:
        raise Refusal(
            Code.IDEMPOTENCY_CONFLICT,
            f"The key {key!r} was used on the run {run_id!r} before, with other answers or by somebody "
            "else. Send the same call, or another key.",
        )


def _answers_by_id(order: wire.Respond, receipts: list[Receipt]) -> dict[str, object]:
    if order.responses is not None:
        return dict(order.responses)
    # Without an id the answer was for whatever was open then.
    ids = [order.interrupt_id] if order.interrupt_id else [entry.interrupt_id for entry in receipts]
    return dict.fromkeys(ids[:1], order.response)


def _is_by(receipt: Receipt, principal: Principal) -> bool:
    return receipt.answered_by == principal.subject
