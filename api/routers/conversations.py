"""Control of the active runs of a conversation.

A workflow for each conversation knows its runs, so a run that was just started is included.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, Field
from starlette.convertors import StringConvertor, register_url_convertor

from abeyance import commands, views
from abeyance.api import examples
from abeyance.api.auth import CONTROL, STEER, require
from abeyance.api.dependencies import Call, CallDep
from abeyance.api.routers.control import (
    CancelBody,
    PauseBody,
    ResumeBody,
    goes_to_node,
    require_course,
)
from abeyance.api.routers.messages import to_signal
from abeyance.api.schemas import fields_set
from abeyance.commands import fields
from abeyance.core import policy
from abeyance.orders import control_order


class AnyText(StringConvertor):
    """Matches conversation ids in a path, which can have slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anytext", AnyText())
router = APIRouter(prefix="/conversations/{conversation_id:anytext}", tags=["conversations"])

ConversationId: TypeAlias = Annotated[
    fields.ConversationId, Path(description="The id of the conversation.", examples=["chat-17"])
]
MessageBody: TypeAlias = Annotated[commands.MessageBody, Body(examples=[examples.TO_ALL])]


class Reached(BaseModel):
    """The active runs that got the signal, oldest first."""

    count: int = Field(examples=[1])
    runs: list[views.RunId]


class Steered(Reached):
    """The run that was steered, and the id of the message."""

    message_id: views.MessageId


@router.post(
    "/interrupt",
    status_code=202,
    dependencies=[CONTROL],
    response_description="The runs that are being cancelled.",
)
async def interrupt(
    conversation_id: ConversationId, call: CallDep, body: CancelBody = None
) -> Reached:
    """Cancel every active run of a conversation. Having none is not an error."""
    return await _control(conversation_id, commands.Cancel, body, call)


@router.post("/pause", status_code=202, response_description="The runs that are being paused.")
async def pause(conversation_id: ConversationId, call: CallDep, body: PauseBody = None) -> Reached:
    """Pause every active run of a conversation."""
    if goes_to_node(body):
        run_ids = await call.client.conversations.runs(conversation_id, reads=call.reads)
        await require_course(call.caller, call.client, *run_ids)
    require(call.caller, policy.CONTROL)
    return await _control(conversation_id, commands.Pause, body, call)


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    response_description="The runs that are being resumed.",
)
async def resume(
    conversation_id: ConversationId, call: CallDep, body: ResumeBody = None
) -> Reached:
    """Resume every active run of a conversation."""
    return await _control(conversation_id, commands.Resume, body, call)


async def _control(
    conversation_id: str, kind: type[commands.Order], body: BaseModel | None, call: Call
) -> Reached:
    order = control_order(kind, fields_set(body), call.caller, call.key)
    runs = await call.client.conversations.control(conversation_id, order, reads=call.reads)
    return Reached(count=len(runs), runs=runs)


@router.post(
    "/steer",
    status_code=202,
    dependencies=[STEER],
    response_description="The run that gets the message.",
)
async def steer(conversation_id: ConversationId, body: MessageBody, call: CallDep) -> Steered:
    """Send a message to the one active run of the type `agent`.

    A retry with the same `message_id` or `Idempotency-Key` changes nothing.
    """
    message, conversations = to_signal(body, call), call.client.conversations
    steered = await conversations.signal_message(conversation_id, message, reads=call.reads)
    return Steered(count=1, runs=[steered.run_id], message_id=steered.message_id)
