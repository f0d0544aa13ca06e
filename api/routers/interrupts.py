"""Interrupts: the inbox, and reading, answering and postponing them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, Field

from abeyance import commands, views
from abeyance.api import examples
from abeyance.api.auth import READ, RESPOND, RESPONDS, Caller, require
from abeyance.api.dependencies import (
    Call,
    CallDep,
    ClientDep,
    InterruptId,
    InterruptPath,
    RunId,
    unknown_interrupt,
)
from abeyance.api.inbox import prompts
from abeyance.api.rights import Reads, seen_by, vouched
from abeyance.api.routers.control import require_course
from abeyance.api.schemas import (
    AnswerBody,
    Answered,
    InterruptStatus,
    Listed,
    Page,
    Question,
    fields_set,
)
from abeyance.commands import lists
from abeyance.core import policy
from abeyance.errors import Unavailable
from abeyance.filters import InboxFilter

router = APIRouter(tags=["interrupts"])

StatusFilter: TypeAlias = commands.ListedStatus

AnswersBody: TypeAlias = Annotated[commands.Answers, Body(openapi_examples=examples.ANSWERS)]
TakeBackBody: TypeAlias = Annotated[
    commands.TakeBackBody | None, Body(examples=[examples.TAKE_BACK])
]
ReleaseBody: TypeAlias = Annotated[commands.ReleaseBody | None, Body(examples=[{}])]
ClaimBody: TypeAlias = Annotated[commands.ClaimBody | None, Body(examples=[examples.CLAIM])]
ReassignBody: TypeAlias = Annotated[commands.ReassignBody, Body(examples=[examples.REASSIGN])]
DeadlineBody: TypeAlias = Annotated[commands.DeadlineBody, Body(examples=[examples.DEADLINE])]

WithView: TypeAlias = Annotated[
    bool,
    Query(
        description="Include the run in the response, as `run`. Requires the capability runs:read."
    ),
]

Render: TypeAlias = Annotated[
    Literal["html"] | None,
    Query(description="`html`: with the prompt, which may be Markdown, as safe HTML."),
]


@router.get(
    "/runs/{run_id}/interrupts",
    dependencies=[READ],
    response_description="The interrupts, open ones first.",
)
async def list_interrupts(
    *,
    run_id: RunId,
    caller: Caller,
    client: ClientDep,
    status: Annotated[
        StatusFilter, Query(description="The status of the interrupts; `all` is any.")
    ] = "open",
    discarded: Annotated[
        bool,
        Query(
            description="Whether the list also has those that a rewind has discarded, as the last."
        ),
    ] = False,
) -> Listed[views.InterruptView]:
    """List the interrupts of a run. For open ones, `may_answer` tells whether the caller may answer them.

    If no worker responds, they are shown as last recorded.
    """
    run = client.run(run_id)
    found = await seen_by(caller, await run.interrupts(status=status), client)
    return Listed(items=[*found, *(await run.discarded(status=status) if discarded else [])])


@router.get(
    "/interrupts/{interrupt_id}",
    dependencies=[READ],
    response_description="The interrupt.",
)
async def read_interrupt(
    interrupt_id: InterruptId, caller: Caller, client: ClientDep, render: Render = None
) -> Question:
    """Retrieve an interrupt, open or settled. `may_answer` says whether the caller may answer it.

    If no worker responds, it is shown as last recorded.
    """
    interrupt = await client.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if interrupt is None:
        raise unknown_interrupt(interrupt_id.id)
    (interrupt,) = await seen_by(caller, [interrupt], client)
    html = prompts.html_of(interrupt) if render else None
    return Question(**dict(interrupt), prompt_html=html)


class InboxQuery(lists.InboxPage):
    """The query of the inbox."""

    mine: bool = Field(
        default=False,
        description="Only interrupts for the caller or one of their groups, and those that they claimed.",
    )


@router.get(
    "/interrupts",
    dependencies=[READ],
    response_description="A page of open or held interrupts.",
)
async def list_open_interrupts(
    query: Annotated[InboxQuery, Query()], caller: Caller, client: ClientDep, reads: Reads
) -> Page[views.InterruptView]:
    """List the open or held interrupts of all runs, in an order, without schemas and payloads.

    Answers that arrive meanwhile do not move an interrupt from one page to another.
    """
    filter_ = lists.narrowed(InboxFilter(reads=reads), query)
    filter_ = replace(filter_, mine=caller if query.mine else None)
    page = await client.inbox.page(filter_, cursor=query.cursor, limit=query.most)
    return Page(
        items=await seen_by(caller, page.items, client),
        next_cursor=page.next_cursor,
        total=page.total,
        searched=client.records.searched,
    )


@router.post(
    "/runs/{run_id}/respond",
    dependencies=[RESPOND],
    response_description="A receipt for each answer, and with `view` the run.",
)
async def respond(
    run_id: RunId, body: AnswersBody, call: CallDep, *, view: WithView = False
) -> Answered | views.Receipts:
    """Answer interrupts of a run. Either all answers are accepted or none.

    The `status` of a receipt is `answered`; `voted` if the question takes several people, of whom
    `missing` have not approved yet; or `held` if the yes can be taken back until `held_until`.

    Answer several by id (`responses`), one by id (`interrupt_id` and `response`), or, if exactly one is
    open, without an id (`response`). null is a valid answer. Repeating an answer returns the first
    receipt, marked `replayed`; a different answer to a settled interrupt is refused. With `digests`, an
    answer is refused if the interrupt shows something else than the approver saw.
    """
    return await _answer(call, run_id, fields_set(body), view=view)


@router.post(
    "/interrupts/{interrupt_id}/respond",
    dependencies=[RESPOND],
    response_description="A receipt for the answer, and with `view` the run.",
)
async def respond_to_interrupt(
    interrupt_id: InterruptId, body: AnswerBody, call: CallDep, *, view: WithView = False
) -> Answered | views.Receipts:
    """Answer one interrupt. null is a valid answer."""
    answers = {
        "responses": {interrupt_id.id: body.response},
        "note": body.note,
        "digests": body.digests,
        "on_behalf_of": body.on_behalf_of,
    }
    return await _answer(call, interrupt_id.run_id, answers, view=view)


async def _answer(
    call: Call, run_id: str, answers: Mapping[str, Any], *, view: bool
) -> Answered | views.Receipts:
    if view:
        require(call.caller, policy.READ)
    run = call.client.run(run_id)
    order = commands.Respond(**answers, principal=call.caller, key=call.key)
    order = vouched(order, call.credentials)
    receipts = await run.respond_to(order)
    if not view:
        return views.Receipts(receipts=receipts)
    return Answered(receipts=receipts, run=await run.view())


@router.patch(
    "/interrupts/{interrupt_id}",
    response_description="The interrupt with its new deadline.",
)
async def edit_deadline(
    interrupt_id: InterruptId, body: DeadlineBody, call: CallDep
) -> views.InterruptView | InterruptStatus:
    """Change the deadline of an open interrupt, or the action on its timeout.

    A `deadline` or `timeout` of null removes it. This requires every capability in the run's
    `guarded_by`. A default answer can only be declared in the graph. Without `runs:read` the response has
    only the interrupt's id and status.
    """
    await require_course(call.caller, call.client, interrupt_id.run_id)
    return await _edit(call, interrupt_id, commands.EditDeadline, body, "its deadline was changed")


@router.post(
    "/interrupts/{interrupt_id}/claim",
    dependencies=[RESPOND],
    response_description="The interrupt, with the claim.",
)
async def claim(
    interrupt_id: InterruptId, call: CallDep, body: ClaimBody = None
) -> views.InterruptView | InterruptStatus:
    """Claim an open question for the caller, for half an hour or `for` (at most a day).

    Until then an answer of another person is refused with `claimed`. Everybody who may answer the
    question may claim it, and extend their own claim. Without `runs:read` the response has only the
    interrupt's id and status.
    """
    return await _edit(call, interrupt_id, commands.Claim, body, "it was claimed")


@router.post(
    "/interrupts/{interrupt_id}/release",
    response_description="The interrupt, without a claim.",
)
async def release(
    interrupt_id: InterruptId, call: CallDep, body: ReleaseBody = None
) -> views.InterruptView | InterruptStatus:
    """End the claim of a question before its time.

    The person who has claimed it can do this, or a caller with `runs:control`. Without a claim nothing
    changes. This requires `runs:respond` or `runs:control`. Without `runs:read` the response has only the
    interrupt's id and status.
    """
    require(call.caller, RESPONDS, unless=policy.CONTROL)
    return await _edit(call, interrupt_id, commands.ReleaseClaim, body, "the claim was ended")


@router.post(
    "/interrupts/{interrupt_id}/reassign",
    response_description="The interrupt, with its new assignees.",
)
async def reassign(
    interrupt_id: InterruptId, body: ReassignBody, call: CallDep
) -> views.InterruptView | InterruptStatus:
    """Replace the assignees of a question. This ends a claim.

    Its assignees, the person who has claimed it, or a caller with `runs:control` can do this. The voters
    change only with `votes`, which takes `runs:control` and the capability of the question; else
    `warnings` name the assignees without a vote. This requires `runs:respond` or `runs:control`. Without
    `runs:read` the response has only the interrupt's id and status.
    """
    require(call.caller, RESPONDS, unless=policy.CONTROL)
    return await _edit(call, interrupt_id, commands.Reassign, body, "it was reassigned")


@router.post(
    "/interrupts/{interrupt_id}/take-back",
    response_description="The interrupt, which is open again.",
)
async def take_back(
    interrupt_id: InterruptId, call: CallDep, body: TakeBackBody = None
) -> views.InterruptView | InterruptStatus:
    """Take back a yes while its question is held, so that the question is open again.

    An approver takes back their own yes; if the question has a quorum, the other votes stay. With
    `runs:control` a caller can take back anybody's yes, which clears all votes. This requires
    `runs:respond` or `runs:control`. Without `runs:read` the response has only the interrupt's id and
    status.
    """
    require(call.caller, RESPONDS, unless=policy.CONTROL)
    return await _edit(call, interrupt_id, commands.TakeBack, body, "the answer was taken back")


async def _edit(
    call: Call,
    interrupt: InterruptPath,
    kind: type[commands.QuestionEdit],
    body: BaseModel | None,
    done: str,
) -> views.InterruptView | InterruptStatus:
    """Edit an interrupt, and return as much of it as the caller may read."""
    run = call.client.run(interrupt.run_id)
    by: dict[str, Any] = {"principal": call.caller, "key": call.key}
    await run.edit(kind(**fields_set(body), interrupt_id=interrupt.id, **by))
    changed = None
    with suppress(Unavailable):
        changed = await run.interrupt(interrupt.id)
    if changed is None:
        raise Unavailable(f"the run {run.run_id!r} cannot be read now, but {done}: read it later")
    if call.caller.may(policy.READ):
        return (await seen_by(call.caller, [changed], call.client))[0]
    return InterruptStatus(id=changed.id, run_id=changed.run_id, status=changed.status)
