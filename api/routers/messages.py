"""Messages to a run: steer, send, list and clear."""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, Field

from abeyance import commands, views
from abeyance.api import examples
from abeyance.api.auth import READ, STEER, require
from abeyance.api.dependencies import (
    Call,
    CallDep,
    ClientDep,
    RunId,
    WaitSeconds,
    long_poll,
    sleep_unless,
)
from abeyance.api.routers.control import SIGNALLED, SignalDep, SignalResponse
from abeyance.api.schemas import Accepted, fields_set
from abeyance.core import policy
from abeyance.errors import Code, Refusal
from abeyance.util import invalid


def to_signal(body: commands.MessageBody, call: Call) -> commands.SteerMessage:
    """Return the message of a request. Raises `invalid_body` for a key that differs from its id."""
    caller, key = call.caller, call.key
    if None not in (key, body.message_id) and key != body.message_id:
        message = f"{body.message_id!r} differs from the Idempotency-Key {key!r}: send one of them"
        raise invalid([{"pointer": "/message_id", "message": message}])
    message_id = body.message_id or key or uuid.uuid4().hex
    fields = {**fields_set(body), "message_id": message_id}
    return commands.SteerMessage(**fields, sender=caller.subject, capabilities=caller.capabilities)


router = APIRouter(prefix="/runs/{run_id}", tags=["messages"])

MessageBody: TypeAlias = Annotated[commands.MessageBody, Body(examples=[examples.MESSAGE])]

_MAX_PAGE_SIZE: Final = 1_000
_DEFAULT_PAGE_SIZE: Final = 50
_MIN_BACKOFF: Final = 0.1
_MAX_BACKOFF: Final = 1.0


class MessagePage(BaseModel):
    """A page of unread messages, in the order of reading. `total` counts all pages."""

    items: list[views.MessageView]
    page: int = Field(examples=[1])
    page_size: int = Field(examples=[50])
    total: int = Field(examples=[1])


Timeout: TypeAlias = Annotated[
    WaitSeconds | None,
    Query(
        description="How long to retry while the run's queue is full: ISO 8601, `30s`, or seconds. The "
        "service caps it at its `default_timeout`.",
        examples=["PT10S"],
    ),
]


@router.post("/steer", status_code=202, dependencies=[STEER], responses=SIGNALLED)
async def steer(run_id: RunId, body: MessageBody, signal: SignalDep) -> SignalResponse:
    """Send a message to a run, which reads it at the next boundary.

    A message that is not delivered is listed in the run's `undelivered` or `rejected` and recorded as an
    event; if the run refuses it, a call with `wait` is refused too. A retry with the same `message_id` or
    `Idempotency-Key` changes nothing.
    """
    message = to_signal(body, signal.call)
    since = await signal.present(run_id)
    message_id = await signal.call.client.run(run_id).signal_message(message)
    accepted = Accepted(run_id=run_id, message_id=message_id)
    return await signal.respond(accepted, since, {"message_id": message_id})


@router.post(
    "/messages",
    status_code=201,
    dependencies=[STEER],
    response_model=views.MessageReceipt,
    response_description="The message is queued.",
)
async def send_message(
    run_id: RunId, body: MessageBody, call: CallDep, request: Request, timeout: Timeout = None
) -> views.MessageReceipt | Response:
    """Send a message to a run, and return the run's receipt.

    If the queue is full, the service retries for `timeout`, or refuses at once without one.
    """
    message = to_signal(body, call)
    longest = min(timeout or 0.0, call.backend.settings.default_timeout)
    receipt = await long_poll(request, _send_until_accepted(call, run_id, message, longest))
    # The caller has disconnected.
    return Response(status_code=204) if receipt is None else receipt


@router.get("/messages", dependencies=[READ], response_description="A page of messages.")
async def list_messages(
    run_id: RunId,
    client: ClientDep,
    page: Annotated[int, Query(description="The page number, from 1.")] = 1,
    page_size: Annotated[
        int, Query(description="The messages per page, 1 to 1000. Other values mean 50.")
    ] = _DEFAULT_PAGE_SIZE,
) -> MessagePage:
    """List the unread messages of a run. They stay unread. A page past the end is empty."""
    unread = await client.run(run_id).messages()
    page = max(1, page)
    page_size = page_size if 0 < page_size <= _MAX_PAGE_SIZE else _DEFAULT_PAGE_SIZE
    first = (page - 1) * page_size
    return MessagePage(
        items=unread[first : first + page_size],
        page=page,
        page_size=page_size,
        total=len(unread),
    )


@router.delete(
    "/messages",
    dependencies=[STEER],
    response_description="The number of deleted messages.",
)
async def clear_messages(run_id: RunId, call: CallDep) -> views.Cleared:
    """Delete the unread messages of a run. They are listed as undelivered, with the reason `cleared`.

    A retry with the same `Idempotency-Key` does not delete messages that arrived since.
    """
    run = call.client.run(run_id)
    return views.Cleared(cleared=await run.clear_messages(principal=call.caller, key=call.key))


@router.post("/pause-and-send", status_code=202, response_description="The message is queued.")
async def pause_and_send(run_id: RunId, body: MessageBody, call: CallDep) -> views.MessageReceipt:
    """Pause a run and send it a message, which it reads after the resume.

    If the message is refused, the run is not paused. A retry pauses once. This requires `runs:control`
    and `runs:steer`.
    """
    require(call.caller, policy.STEER, policy.CONTROL)
    message = to_signal(body, call)
    command = commands.Pause(actor=call.caller.subject, key=call.key or body.message_id)
    return await call.client.run(run_id).pause_and_send_message(message, command)


async def _send_until_accepted(
    call: Call, run_id: str, message: commands.SteerMessage, longest: float
) -> views.MessageReceipt:
    until = time.monotonic() + longest
    backoff = _MIN_BACKOFF
    while True:
        try:
            return await call.client.run(run_id).send_message(message)
        except Refusal as refusal:
            left = until - time.monotonic()
            if refusal.code is not Code.QUEUE_FULL or left <= 0 or call.backend.stopping.is_set():
                raise
        await sleep_unless(call.backend.stopping, min(backoff, left))
        backoff = min(2 * backoff, _MAX_BACKOFF)
