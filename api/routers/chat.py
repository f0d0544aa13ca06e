"""The AI SDK: its `useChat` talks to a graph by the UI message stream. Needs the extra `agents`.

A chat is a conversation. A message of the user starts a run or steers the open one; approvals and the
outputs of the tool `ask` answer its questions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, Field

from abeyance.api import chat, openapi
from abeyance.api.auth import READ, Credentials, CredentialsDep
from abeyance.api.dependencies import Backend, BackendDep, ClientDep
from abeyance.api.routers.conversations import ConversationId
from abeyance.api.routers.events import EventStream, ServerSentEvents
from abeyance.api.schemas import Name
from abeyance.api.segments import Segment
from abeyance.api.threads import TALK_CODES, GraphName, Place, Thread, graph_of
from abeyance.errors import Code

router = APIRouter(prefix="/chat", tags=["user interfaces"], dependencies=[READ])

_HEADERS: Final = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE: Final = "data: [DONE]\n\n"
_EXAMPLE: Final[dict[str, Any]] = {
    "id": "chat-17",
    "messages": [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Refund order A-17."}]}
    ],
}
_STREAM: Final = (
    'data: {"type": "start", "messageId": "msg-1"}\n\n'
    'data: {"type": "finish", "finishReason": "stop"}\n\n'
    f"{_DONE}"
)


class ChatRequest(BaseModel):
    """A request of the AI SDK. Of the messages only the last one counts."""

    # The protocol grows: what we do not know is ignored.
    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE]})

    id: Name = Field(description="The conversation.")
    messages: list[Any] = Field(description="The messages so far.")


@router.post(
    "/{graph}",
    responses=openapi.talk(
        "The UI message stream, up to the next questions or the end.", _STREAM, *TALK_CODES
    ),
    response_class=ServerSentEvents,
)
async def post_message(
    graph: GraphName,
    body: Annotated[ChatRequest, Body()],
    backend: BackendDep,
    client: ClientDep,
    credentials: CredentialsDep,
) -> Response:
    """Talk to a graph by the AI SDK: start a run of the chat, steer it, or answer its questions.

    If the last message is the user's, it starts a run, or steers the open one of the chat. If it is the
    assistant's, its parts that were approved, denied or, for the tool `ask`, given an output answer. All
    other messages, and arguments and results of tools, are ignored. What cannot be done is refused before
    the stream. If the connection breaks, the run goes on.

    This requires `runs:read`, and also `runs:start`, `runs:steer` or `runs:respond`.
    """
    del client
    thread = Thread(backend, credentials, graph_of(backend, graph))
    place = await thread.take(chat.posted_by(body.id, body.messages))
    calls = chat.calls_in(body.messages)
    last = body.messages[-1] if body.messages else None
    is_continued = isinstance(last, dict) and last.get("role") == "assistant"
    return _stream(backend, credentials, _chunks(thread, place, calls, is_continued=is_continued))


@router.get(
    "/{graph}/{conversation_id:anytext}/stream",
    responses={
        204: {"description": "The conversation has no open run.", "content": {}},
        **openapi.talk(
            "The stream of the open run, from its beginning.",
            _STREAM,
            *(Code.UNKNOWN_GRAPH, Code.AMBIGUOUS_RUN, Code.CONVERSATION_BUSY, Code.TOO_MANY_RUNS),
            *(Code.UNKNOWN_RUN, Code.GONE, Code.ERASED),
        ),
    },
    response_class=ServerSentEvents,
)
async def resume_stream(
    graph: GraphName,
    conversation_id: ConversationId,
    backend: BackendDep,
    client: ClientDep,
    credentials: CredentialsDep,
) -> Response:
    """Take up the stream of a chat whose page was loaded again; 204 if it has no open run.

    The message begins anew, with all that was said in the run.
    """
    del client
    thread = Thread(backend, credentials, graph_of(backend, graph))
    run_id = await thread.open_run(conversation_id)
    if run_id is None:
        return Response(status_code=204)
    place = Place(conversation_id=conversation_id, segment=Segment(run_id=run_id), is_new=False)
    return _stream(backend, credentials, _chunks(thread, place, set(), is_continued=False))


def _stream(
    backend: Backend, credentials: Credentials, chunks: AsyncGenerator[str, None]
) -> Response:
    return EventStream(
        chunks,
        text=str,
        last_words=lambda reason: (
            _text({"type": "error", "errorText": f"{reason}; the run goes on"}) + _DONE
        ),
        stopping=backend.stopping,
        until=credentials.expires_at,
        is_revoked=lambda: backend.tokens.is_revoked(credentials),
        headers=_HEADERS,
    )


async def _chunks(
    thread: Thread, place: Place, calls: set[str], *, is_continued: bool
) -> AsyncGenerator[str, None]:
    where = () if place.after is None else (place.after,)
    writer = chat.ChunkWriter(calls=calls, where=where)
    yield _text(writer.begin(place.run_id, place.conversation_id, is_continued=is_continued))
    async for part in thread.follow(place):
        for chunk in writer.write(part):
            yield _text(chunk)
    yield _DONE


def _text(chunk: chat.Chunk) -> str:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
