"""Interrupts: the inbox, and reading, answering and postponing them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Body, Query
from pydantic import Field

from abeyance import views, wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ, RESPOND, RESPONDS, Caller, require
from abeyance.api.dependencies import ClientDep, InterruptId, Key, RunId, unknown_interrupt
from abeyance.api.inbox import markdown
from abeyance.api.read_rights import Reads
from abeyance.api.routers.control import require_course
from abeyance.api.schemas import (
    MAX_FILTERS,
    AnswerBody,
    Answered,
    InterruptStatus,
    Listed,
    ListQuery,
    Name,
    Question,
    fields_set,
)
from abeyance.client import Client
from abeyance.core import authority
from abeyance.errors import Code, Unavailable
from abeyance.handle import InboxFilter

router = APIRouter(tags=["interrupts"])

StatusFilter: TypeAlias = Literal[
    "open", "held", "answered", "expired", "cancelled", "superseded", "all"
]

AnswersBody: TypeAlias = Annotated[wire.Answers, Body(openapi_examples=openapi_examples.ANSWERS)]
TakeBackBody: TypeAlias = Annotated[
    wire.TakeBackBody | None, Body(examples=[openapi_examples.TAKE_BACK])
]
DeadlineBody: TypeAlias = Annotated[wire.DeadlineBody, Body(examples=[openapi_examples.DEADLINE])]

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

_ANSWER_CODES: Final = (
    Code.UNKNOWN_RUN,
    Code.UNKNOWN_INTERRUPT,
    Code.ALREADY_ANSWERED,
    Code.NOT_ROOT_CAUSE,
    Code.NOT_ASSIGNED,
    Code.WITHDRAWN,
    Code.STALE,
    Code.IDEMPOTENCY_CONFLICT,
    Code.NATIVELY_PAUSED,
    Code.EXPIRED,
    Code.INVALID_ANSWER,
    Code.DECISION_NOT_ALLOWED,
)


@router.get(
    "/runs/{run_id}/interrupts",
    dependencies=[READ],
    responses=openapi.read(
        "The interrupts, open ones first.",
        openapi_examples.listed(openapi_examples.INTERRUPT),
        *(Code.UNKNOWN_RUN, Code.ERASED),
    ),
)
async def list_interrupts(
    run_id: RunId,
    client: ClientDep,
    status: Annotated[
        StatusFilter, Query(description="The status of the interrupts; `all` is any.")
    ] = "open",
) -> Listed[views.InterruptView]:
    """List the interrupts of a run."""
    return Listed(items=await client.run(run_id).interrupts(status=status))


@router.get(
    "/interrupts/{interrupt_id}",
    dependencies=[READ],
    responses=openapi.read(
        "The interrupt.",
        openapi_examples.INTERRUPT,
        *(Code.UNKNOWN_RUN, Code.UNKNOWN_INTERRUPT, Code.ERASED),
    ),
)
async def read_interrupt(
    interrupt_id: InterruptId, client: ClientDep, render: Render = None
) -> Question:
    """Retrieve an interrupt, open or settled."""
    interrupt = await client.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if interrupt is None:
        raise unknown_interrupt(interrupt_id.id)
    html = None if render is None else markdown.safe_html(interrupt.prompt)
    return Question(**dict(interrupt), prompt_html=html)


class InboxQuery(ListQuery):
    """The query of the inbox."""

    status: Literal["open", "held"] = Field(
        default="open",
        description="`held`: those with a yes that can still be taken back.",
    )
    capability: list[Name] = Field(
        default_factory=list,
        max_length=MAX_FILTERS,
        description="Only interrupts that require one of these capabilities.",
        examples=[["refunds:approve"]],
    )
    before: wire.Moment | None = Field(
        default=None,
        description="Only interrupts with a deadline before this time.",
        examples=["2026-03-05T00:00Z"],
    )


@router.get(
    "/interrupts",
    dependencies=[READ],
    responses=openapi.read(
        "A page of open or held interrupts, sorted by deadline.",
        openapi_examples.listed(openapi_examples.LISTED_INTERRUPT, "eyJub3ci.2c26b46b"),
    ),
)
async def list_open_interrupts(
    query: Annotated[InboxQuery, Query()], client: ClientDep, reads: Reads
) -> Listed[views.InterruptView]:
    """List the open interrupts of all runs, or the held ones, by urgency: overdue, due within a day,
    within a week, later, and without a deadline. Each page is sorted by deadline.

    The list is read from Temporal's visibility store: it lags by a moment, and has no schemas and
    payloads. A page may have fewer than `limit` entries: only a null `next_cursor` means that it is the
    last.
    """
    filter_ = InboxFilter(
        status=query.status,
        capabilities=frozenset(query.capability),
        graph=query.graph,
        conversation_id=query.conversation_id,
        before=query.before,
        reads=reads,
    )
    items, next_cursor = await client.inbox.list(filter_, cursor=query.cursor, limit=query.limit)
    return Listed(items=items, next_cursor=next_cursor)


@router.post(
    "/runs/{run_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(
        200,
        "A receipt for each answer.",
        openapi_examples.RECEIPTS,
        *_ANSWER_CODES,
        Code.NOTHING_OPEN,
        Code.AMBIGUOUS_INTERRUPT,
        Code.RUN_FINISHED,
    ),
)
async def respond(
    run_id: RunId,
    body: AnswersBody,
    caller: Caller,
    client: ClientDep,
    key: Key,
    *,
    view: WithView = False,
) -> Answered | views.Receipts:
    """Answer interrupts of a run. Either all answers are accepted or none.

    The `status` of a receipt is `answered`; `voted` if the question takes several people, of whom
    `missing` have not approved yet; or `held` if the yes can be taken back until `held_until`.

    Answer several by id (`responses`), one by id (`interrupt_id` and `response`), or, if exactly one is
    open, without an id (`response`). null is a valid answer. Repeating an answer returns the first
    receipt, marked `replayed`; a different answer to a settled interrupt is refused. With `digests`, an
    answer is refused if the interrupt shows something else than the approver saw.
    """
    command = wire.Respond(**fields_set(body), principal=caller, key=key)
    return await _answer(client, run_id, command, view=view)


@router.post(
    "/interrupts/{interrupt_id}/respond",
    dependencies=[RESPOND],
    responses=openapi.change(
        200, "A receipt for the answer.", openapi_examples.RECEIPTS, *_ANSWER_CODES
    ),
)
async def respond_to_interrupt(
    interrupt_id: InterruptId,
    body: AnswerBody,
    caller: Caller,
    client: ClientDep,
    key: Key,
    *,
    view: WithView = False,
) -> Answered | views.Receipts:
    """Answer one interrupt. null is a valid answer."""
    command = wire.Respond(
        responses={interrupt_id.id: body.response},
        note=body.note,
        digests=body.digests,
        principal=caller,
        key=key,
    )
    return await _answer(client, interrupt_id.run_id, command, view=view)


async def _answer(
    client: Client, run_id: str, command: wire.Respond, *, view: bool
) -> Answered | views.Receipts:
    if view:
        require(command.principal, authority.READ)
    receipts = await client.run(run_id).respond_to(command)
    if not view:
        return views.Receipts(receipts=receipts)
    return Answered(receipts=receipts, run=await client.run(run_id).view())


@router.patch(
    "/interrupts/{interrupt_id}",
    responses=openapi.change(
        200,
        "The interrupt with its new deadline.",
        openapi_examples.INTERRUPT,
        Code.UNKNOWN_RUN,
        Code.IDEMPOTENCY_CONFLICT,
        Code.NATIVELY_PAUSED,
        Code.UNKNOWN_INTERRUPT,
        Code.UNKNOWN_NODE,
        Code.ALREADY_ANSWERED,
        Code.WITHDRAWN,
    ),
)
async def edit_deadline(
    interrupt_id: InterruptId, body: DeadlineBody, caller: Caller, client: ClientDep, key: Key
) -> views.InterruptView | InterruptStatus:
    """Change the deadline of an open interrupt, or the action on its timeout.

    A `deadline` or `timeout` of null removes it. This requires every capability in the run's
    `guarded_by`. A default answer can only be declared in the graph. Without `runs:read` the response has
    only the interrupt's id and status.
    """
    await require_course(caller, client, interrupt_id.run_id)
    command = wire.EditDeadline(
        **fields_set(body), interrupt_id=interrupt_id.id, principal=caller, key=key
    )
    run = client.run(interrupt_id.run_id)
    await run.edit(command)
    return await _after(caller, client, interrupt_id, "its deadline was changed")


@router.post(
    "/interrupts/{interrupt_id}/take-back",
    responses=openapi.change(
        200,
        "The interrupt, which is open again.",
        openapi_examples.INTERRUPT,
        Code.UNKNOWN_RUN,
        Code.NOT_RUNNING,
        Code.UNKNOWN_INTERRUPT,
        Code.NOT_HELD,
        Code.IDEMPOTENCY_CONFLICT,
        Code.NATIVELY_PAUSED,
    ),
)
async def take_back(
    interrupt_id: InterruptId,
    caller: Caller,
    client: ClientDep,
    key: Key,
    body: TakeBackBody = None,
) -> views.InterruptView | InterruptStatus:
    """Take back a yes while its question is held, so that the question is open again.

    Whoever approved takes back their own yes; of a question with a quorum the other votes stay. With
    `runs:control` anybody's yes can be taken back, which clears all votes. This requires `runs:respond`
    or `runs:control`. Without `runs:read` the response has only the interrupt's id and status.
    """
    if not caller.may(authority.CONTROL):
        require(caller, RESPONDS)
    about = {} if body is None else fields_set(body)
    command = wire.TakeBack(**about, interrupt_id=interrupt_id.id, principal=caller, key=key)
    await client.run(interrupt_id.run_id).edit(command)
    return await _after(caller, client, interrupt_id, "the answer was taken back")


async def _after(
    caller: Caller, client: Client, interrupt_id: InterruptId, done: str
) -> views.InterruptView | InterruptStatus:
    """Return an interrupt after it was changed, as much of it as the caller may read."""
    changed = await client.run(interrupt_id.run_id).interrupt(interrupt_id.id)
    if changed is None:
        raise Unavailable(
            f"the run {interrupt_id.run_id!r} cannot be read now, but {done}: read it later"
        )
    if caller.may(authority.READ):
        return changed
    return InterruptStatus(id=changed.id, run_id=changed.run_id, status=changed.status)
