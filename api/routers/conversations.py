"""Control of all active runs of a conversation.

Runs that were started a moment ago are found: a workflow of the conversation's own knows them.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import CONTROL, Who, demand
from abeyance.api.dependencies import AppState, ClientDep
from abeyance.api.path_params import Key
from abeyance.api.routers.control import (
    CancelBody,
    PauseBody,
    ResumeBody,
    demand_course,
    demand_message,
    leads_on,
)
from abeyance.api.routers.messages import fitted, message_of
from abeyance.api.schemas import Name, given_in
from abeyance.core.authority import CONTROL as CONTROLS
from abeyance.core.authority import COURSE
from abeyance.core.conversation import EXCLUSIVE
from abeyance.errors import Code


class AnyText(StringConvertor):
    """What a caller may have called a conversation: also with slashes, and over several lines."""

    regex = r"[\s\S]*"


register_url_convertor("anytext", AnyText())
router = APIRouter(prefix="/conversations/{conversation_id:anytext}", tags=["conversations"])

ConversationId: TypeAlias = Annotated[
    Name, Path(description="The id of the conversation.", examples=["chat-17"])
]
MessageBody: TypeAlias = Annotated[wire.MessageBody, Body(examples=[openapi_examples.TO_ALL])]


class Reached(BaseModel):
    """The active runs that got the signal, oldest first."""

    count: int
    runs: list[str]

    @classmethod
    def of(cls, runs: list[str]) -> Reached:
        """All of these."""
        return cls(count=len(runs), runs=runs)


class Steered(Reached):
    """The run that was steered, and the id of the message."""

    message_id: str


@router.post(
    "/interrupt",
    status_code=202,
    dependencies=[CONTROL],
    responses=openapi.change(
        202,
        "The runs that are being cancelled.",
        openapi_examples.REACHED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def interrupt(
    conversation_id: ConversationId, who: Who, client: ClientDep, key: Key, body: CancelBody = None
) -> Reached:
    """Cancel every active run of a conversation. Having none is not an error."""
    order = wire.Cancel(**given_in(body), actor=who.subject, key=key)
    return Reached.of(await client.conversations.control(conversation_id, order))


@router.post(
    "/pause",
    status_code=202,
    responses=openapi.change(
        202,
        "The runs that are being paused.",
        openapi_examples.REACHED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def pause(
    *,
    conversation_id: ConversationId,
    who: Who,
    client: ClientDep,
    key: Key,
    body: PauseBody = None,
) -> Reached:
    """Pause every active run of a conversation."""
    if leads_on(body):
        await demand_course(who, client, *await client.conversations.runs(conversation_id))
    demand(who, CONTROLS)
    order = wire.Pause(**given_in(body), actor=who.subject, capabilities=who.capabilities, key=key)
    return Reached.of(await client.conversations.control(conversation_id, order))


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    responses=openapi.change(
        202, "The runs that are being resumed.", openapi_examples.REACHED, Code.IDEMPOTENCY_CONFLICT
    ),
)
async def resume(
    conversation_id: ConversationId, who: Who, client: ClientDep, key: Key, body: ResumeBody = None
) -> Reached:
    """Resume every active run of a conversation."""
    order = wire.Resume(**given_in(body), actor=who.subject, key=key)
    return Reached.of(await client.conversations.control(conversation_id, order))


@router.post(
    "/steer",
    status_code=202,
    responses=openapi.change(
        202,
        "The run that gets the message.",
        openapi_examples.STEERED,
        Code.NO_ACTIVE_RUN,
        Code.AMBIGUOUS_RUN,
        Code.MESSAGE_CONFLICT,
        Code.INVALID_MESSAGE,
    ),
)
async def steer(
    *,
    conversation_id: ConversationId,
    body: MessageBody,
    who: Who,
    behind: AppState,
    client: ClientDep,
    key: Key,
) -> Steered:
    """Send a message to the one active run of the type `agent`.

    A retry with the same `message_id` or `Idempotency-Key` changes nothing. The required capabilities are
    those of `POST /runs/{run_id}/steer`.
    """
    message = message_of(body, who, key)
    meant: list[str] = []
    if message.action in COURSE:
        meant = await client.conversations.runs(conversation_id, session_type=EXCLUSIVE)
    await demand_message(who, client, message, *meant)
    for run_id in meant:
        message = await fitted(message, run_id, behind, client)
    steered = await client.conversations.signal_message(conversation_id, message)
    return Steered(count=1, runs=[steered.run_id], message_id=steered.message_id)
