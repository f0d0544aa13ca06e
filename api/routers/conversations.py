"""Control of the active runs of a conversation.

A workflow for each conversation knows its runs, so a run that was just started is included.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel
from starlette.convertors import StringConvertor, register_url_convertor

from abeyance import commands
from abeyance.api import examples, openapi
from abeyance.api.auth import CONTROL, Caller, require
from abeyance.api.dependencies import BackendDep, ClientDep, Key
from abeyance.api.rights import Reads
from abeyance.api.routers.control import (
    CancelBody,
    PauseBody,
    ResumeBody,
    goes_to_node,
    require_course,
    require_message,
)
from abeyance.api.routers.messages import to_signal, with_valid_patch
from abeyance.api.schemas import fields_set
from abeyance.core import authority
from abeyance.core.conversation import EXCLUSIVE
from abeyance.errors import Code


class AnyText(StringConvertor):
    """Matches conversation ids in a path, which can have slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("anytext", AnyText())
router = APIRouter(prefix="/conversations/{conversation_id:anytext}", tags=["conversations"])

ConversationId: TypeAlias = Annotated[
    commands.ConversationId, Path(description="The id of the conversation.", examples=["chat-17"])
]
MessageBody: TypeAlias = Annotated[commands.MessageBody, Body(examples=[examples.TO_ALL])]


class Reached(BaseModel):
    """The active runs that got the signal, oldest first."""

    count: int
    runs: list[str]

    @classmethod
    def of(cls, runs: list[str]) -> Reached:
        """Return the response for these runs."""
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
        examples.REACHED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def interrupt(
    *,
    conversation_id: ConversationId,
    caller: Caller,
    client: ClientDep,
    key: Key,
    reads: Reads,
    body: CancelBody = None,
) -> Reached:
    """Cancel every active run of a conversation. Having none is not an error."""
    command = commands.Cancel(**fields_set(body), actor=caller.subject, key=key)
    return Reached.of(await client.conversations.control(conversation_id, command, reads=reads))


@router.post(
    "/pause",
    status_code=202,
    responses=openapi.change(
        202,
        "The runs that are being paused.",
        examples.REACHED,
        Code.IDEMPOTENCY_CONFLICT,
    ),
)
async def pause(
    *,
    conversation_id: ConversationId,
    caller: Caller,
    client: ClientDep,
    key: Key,
    reads: Reads,
    body: PauseBody = None,
) -> Reached:
    """Pause every active run of a conversation."""
    if goes_to_node(body):
        run_ids = await client.conversations.runs(conversation_id, reads=reads)
        await require_course(caller, client, *run_ids)
    require(caller, authority.CONTROL)
    command = commands.Pause(
        **fields_set(body), actor=caller.subject, capabilities=caller.capabilities, key=key
    )
    return Reached.of(await client.conversations.control(conversation_id, command, reads=reads))


@router.post(
    "/resume",
    status_code=202,
    dependencies=[CONTROL],
    responses=openapi.change(
        202, "The runs that are being resumed.", examples.REACHED, Code.IDEMPOTENCY_CONFLICT
    ),
)
async def resume(
    *,
    conversation_id: ConversationId,
    caller: Caller,
    client: ClientDep,
    key: Key,
    reads: Reads,
    body: ResumeBody = None,
) -> Reached:
    """Resume every active run of a conversation."""
    command = commands.Resume(**fields_set(body), actor=caller.subject, key=key)
    return Reached.of(await client.conversations.control(conversation_id, command, reads=reads))


@router.post(
    "/steer",
    status_code=202,
    responses=openapi.change(
        202,
        "The run that gets the message.",
        examples.STEERED,
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
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    key: Key,
    reads: Reads,
) -> Steered:
    """Send a message to the one active run of the type `agent`.

    A retry with the same `message_id` or `Idempotency-Key` changes nothing. The required capabilities are
    those of `POST /runs/{run_id}/steer`.
    """
    message = to_signal(body, caller, key)
    run_ids: list[str] = []
    if message.action in authority.COURSE:
        run_ids = await client.conversations.runs(
            conversation_id, session_type=EXCLUSIVE, reads=reads
        )
    await require_message(caller, client, message, *run_ids)
    for run_id in run_ids:
        message = await with_valid_patch(message, run_id, backend, client)
    steered = await client.conversations.signal_message(conversation_id, message, reads=reads)
    return Steered(count=1, runs=[steered.run_id], message_id=steered.message_id)
