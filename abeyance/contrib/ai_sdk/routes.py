"""The AI SDK: its `useChat` talks to a graph by the UI message stream. Needs the extra `agents`.

A chat is a conversation. A message of the user starts a run or steers the open one; approvals and the
outputs of the tool `ask` answer its questions.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias, assert_never

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, Field

from abeyance import views
from abeyance.api import openapi
from abeyance.api.auth import READ, Credentials, CredentialsDep
from abeyance.api.dependencies import CONNECTED, Backend, BackendDep
from abeyance.api.routers.conversations import ConversationId
from abeyance.api.routers.events import ServerSentEvents, place_of, stream_to
from abeyance.commands import fields
from abeyance.contrib.talk import parts, segments
from abeyance.contrib.talk.posted import Answer, Posted, ids_of, new_message, one_each
from abeyance.contrib.talk.segments import Segment
from abeyance.contrib.talk.threads import GraphName, Place, Thread, graph_of
from abeyance.core.json import Json
from abeyance.core.state import Status
from abeyance.util import invalid

router = APIRouter(prefix="/chat", tags=["user interfaces"], dependencies=[READ, CONNECTED])

Chunk: TypeAlias = dict[str, Any]

ASK: Final = "ask"
"""The tool that shows questions which are not approvals; its output is the answer."""
_DATA: Final = "data-abeyance"
_APPROVAL: Final = "approval"
_REGENERATE: Final = "regenerate-message"
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
    """A request of the AI SDK. Only the last message counts."""

    # The protocol grows, so unknown fields are ignored.
    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [_EXAMPLE]})

    id: fields.ConversationId = Field(description="The conversation.")
    messages: list[Any] = Field(description="The messages so far.")
    trigger: Any = Field(
        default=None, description="`regenerate-message` is refused: what a run has done stays done."
    )


@router.post(
    "/{graph}",
    response_description="The UI message stream, up to the next questions or the end.",
    responses=openapi.shown(_STREAM, "text/event-stream"),
    response_class=ServerSentEvents,
)
async def post_message(
    graph: GraphName,
    body: Annotated[ChatRequest, Body()],
    backend: BackendDep,
    credentials: CredentialsDep,
) -> Response:
    """Talk to a graph by the AI SDK: start a run of the chat, steer it, or answer its questions.

    If the last message is the user's, it starts a run, or steers the open one of the chat. If it is the
    assistant's, its parts that were approved, denied or, for the tool `ask`, given an output answer. All
    other messages, and arguments and results of tools, are ignored. A request that cannot be carried out
    is refused before the stream. If the connection breaks, the run goes on: the same request again starts
    nothing, and streams the reply once more.

    This requires `runs:read`, and also `runs:start`, `runs:steer` or `runs:respond`.
    """
    thread = Thread(backend, credentials, graph_of(backend, graph))
    if body.trigger == _REGENERATE:
        message = "cannot regenerate a message, as what a run has done stays done: send a new one"
        raise invalid([{"pointer": "/trigger", "message": message}])
    posted, calls = posted_by(body.id, body.messages), calls_in(body.messages)
    last = body.messages[-1] if body.messages else None
    is_continued = isinstance(last, dict) and last.get("role") == "assistant"
    # Hold the place first: a refused stream must not start a run.
    with place_of(credentials, backend) as held:
        place = await thread.take(posted)
        chunks = _chunks(thread, place, calls, is_continued=is_continued)
        return _stream(backend, credentials, chunks, held)


@router.get(
    "/{graph}/{conversation_id:anytext}/stream",
    responses={
        204: {"description": "The conversation has no open run.", "content": {}},
        **openapi.shown(_STREAM, "text/event-stream"),
    },
    response_description="The stream of the open run, from its beginning.",
    response_class=ServerSentEvents,
)
async def resume_stream(
    graph: GraphName,
    conversation_id: ConversationId,
    backend: BackendDep,
    credentials: CredentialsDep,
) -> Response:
    """Continue the stream of a chat whose page was reloaded; 204 if the chat has no open run.

    The message begins anew, with the whole conversation of the run.
    """
    thread = Thread(backend, credentials, graph_of(backend, graph))
    run_id = await thread.open_run(conversation_id)
    if run_id is None:
        return Response(status_code=204)
    place = Place(conversation_id=conversation_id, segment=Segment(run_id=run_id), is_new=False)
    with place_of(credentials, backend) as held:
        chunks = _chunks(thread, place, set(), is_continued=False)
        return _stream(backend, credentials, chunks, held)


def _stream(
    backend: Backend, credentials: Credentials, chunks: AsyncGenerator[str, None], held: ExitStack
) -> Response:
    return stream_to(
        credentials,
        backend,
        chunks,
        held,
        text=str,
        last_words=lambda reason: (
            _text({"type": "error", "errorText": f"{reason}; the run goes on"}) + _DONE
        ),
        headers=_HEADERS,
    )


async def _chunks(
    thread: Thread, place: Place, calls: set[str], *, is_continued: bool
) -> AsyncGenerator[str, None]:
    where = () if place.after is None else (place.after,)
    writer = ChunkWriter(calls=calls, where=where)
    yield _text(writer.begin(place.run_id, place.conversation_id, is_continued=is_continued))
    async for part in thread.follow(place):
        for chunk in writer.write(part):
            yield _text(chunk)
    yield _DONE


def _text(chunk: Chunk) -> str:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"


def posted_by(conversation_id: str, messages: Sequence[Any]) -> Posted:
    """Return the content of a request. Raises `invalid_body` for a message without text or id, and for an
    approval that is neither given nor denied, and `malformed_body` for two answers to a question.
    """
    said = [each for each in messages if isinstance(each, Mapping)]
    last = said[-1] if said else {}
    users = [each for each in said if each.get("role") == "user"]
    is_new = last.get("role") == "user"
    answers = _answers(_parts(last)) if last.get("role") == "assistant" else ()
    earlier = users[:-1] if is_new else users
    return Posted(
        conversation_id=conversation_id,
        message=new_message(last.get("id"), _text_of(last)) if is_new else None,
        answers=one_each(answers),
        earlier=ids_of(earlier),
        repeats=True,
    )


def calls_in(messages: Sequence[Any]) -> set[str]:
    """Return the ids of the tool calls in the message that the stream continues."""
    last = messages[-1] if messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return set()
    ids = [part.get("toolCallId") for part in _parts(last)]
    return {id_ for id_ in ids if isinstance(id_, str)}


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = message.get("parts")
    return [each for each in parts if isinstance(each, Mapping)] if isinstance(parts, list) else []


def _text_of(message: Mapping[str, Any]) -> str:
    texts = [part.get("text") for part in _parts(message) if part.get("type") == "text"]
    return "\n\n".join(each for each in texts if isinstance(each, str))


def _answers(parts: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
    begins = [at for at, part in enumerate(parts) if part.get("type") == "step-start"]
    latest = begins[-1] if begins else 0
    for at, part in enumerate(parts):
        # The message keeps the answers of earlier steps.
        is_history = at < latest
        approval = part.get("approval")
        match part.get("state"):
            case "approval-responded" if isinstance(approval, Mapping):
                yield _approval(approval, is_history=is_history)
            case "output-available" if part.get("toolName") == ASK:
                id_, digest = segments.parted_id(str(part.get("toolCallId")))
                yield _plain(id_, digest, part.get("output"), is_history=is_history)
            case _:
                pass


def _approval(approval: Mapping[str, Any], *, is_history: bool) -> Answer:
    approved, reason = approval.get("approved"), approval.get("reason")
    if not isinstance(approved, bool):
        message = "is neither approved nor denied: `approved` has to be true or false"
        raise invalid([{"pointer": "/messages", "message": message}])
    answer: dict[str, Json] = {"approved": approved}
    if not approved and isinstance(reason, str) and reason:
        answer["reason"] = reason
    id_, digest = segments.parted_id(str(approval.get("id")))
    return _plain(id_, digest, answer, is_history=is_history)


def _plain(id_: str, digest: str, value: Json, *, is_history: bool) -> Answer:
    return Answer(
        interrupt_id=id_,
        value=lambda _question: value,
        digest=digest or None,
        is_history=is_history,
    )


@dataclass(slots=True, kw_only=True)
class ChunkWriter:
    """Makes the chunks of one stream. `calls` are the tool calls that the message already has, and
    `where` sets the message apart from other messages of the run.
    """

    calls: set[str] = field(default_factory=set)
    where: tuple[str, ...] = ()
    _is_in_step: bool = False
    _texts: set[str] = field(default_factory=set)
    _spoken: str = ""

    def begin(self, run_id: str, conversation_id: str, *, is_continued: bool) -> Chunk:
        """Return the first chunk. A stream that continues a message keeps the id of the message."""
        about = {"run_id": run_id, "conversation_id": conversation_id}
        id_ = (
            {} if is_continued else {"messageId": segments.message_id(run_id, "chat", *self.where)}
        )
        return {"type": "start", **id_, "messageMetadata": {"abeyance": about}}

    def write(self, part: parts.Part) -> list[Chunk]:
        return list(self._chunks(part))

    def _chunks(self, part: parts.Part) -> Iterator[Chunk]:
        match part:
            case (
                parts.StepBegan()
                | parts.StepEnded()
                | parts.SubagentBegan()
                | parts.SubagentEnded()
            ):
                # Messages have no place for these parts. A step is a turn here.
                return
            case parts.TextBegan(id=id_):
                yield from self._step()
                self._spoken = id_
                self._texts.add(id_)
                yield {"type": "text-start", "id": id_}
            case parts.TextDelta(id=id_, text=text):
                yield {"type": "text-delta", "id": id_, "delta": text}
            case parts.TextEnded(id=id_):
                self._texts.discard(id_)
                yield {"type": "text-end", "id": id_}
            case parts.Turn(id=id_):
                if id_ != self._spoken:
                    yield from self._step()
                for call in part.calls:
                    yield self._call(call.id, call.tool, call.arguments)
            case parts.Result(call_id=call_id):
                if call_id not in self.calls:
                    arguments = None if part.call is None else part.call.arguments
                    yield self._call(call_id, part.tool, arguments)
                yield _result(part)
            case parts.Opened(interrupts=asked):
                for question in asked:
                    yield from self._question(question)
            case parts.Notice(name="abeyance", value=value):
                yield {"type": _DATA, "data": value, "transient": True}
            case parts.Notice(name=name, value=value):
                yield {"type": _DATA, "data": {"event": name, "data": value}}
            case parts.Waiting(interrupts=asked):
                for question in asked:
                    # Show it again: a vote leaves it open, but the message counts it as answered.
                    yield from self._question(question)
                yield from self._finish("tool-calls")
            case parts.Ended(view=view):
                yield from self._end(view)
            case _:
                assert_never(part)

    def _step(self) -> Iterator[Chunk]:
        if self._texts:
            # The end of the step would cut off the texts of agents that still speak.
            return
        if self._is_in_step:
            yield {"type": "finish-step"}
        self._is_in_step = True
        yield {"type": "start-step"}

    def _call(self, id_: str, tool: str, arguments: Json) -> Chunk:
        self.calls.add(id_)
        about = {"toolCallId": id_, "toolName": tool, "input": arguments}
        return {"type": "tool-input-available", **about}

    def _question(self, question: views.InterruptView) -> Iterator[Chunk]:
        call, id_ = segments.call_of(question.address), segments.shown_id(question)
        if question.kind == _APPROVAL and call is not None:
            tool, call_id = call
            if call_id not in self.calls:
                reason = question.reason if isinstance(question.reason, Mapping) else {}
                yield self._call(call_id, tool, reason.get("arguments"))
            yield {"type": "tool-approval-request", "approvalId": id_, "toolCallId": call_id}
        elif id_ not in self.calls:
            yield from self._step()
            yield {**self._call(id_, ASK, _shown(question)), "dynamic": True}

    def _finish(self, reason: str) -> Iterator[Chunk]:
        if self._is_in_step:
            yield {"type": "finish-step"}
        yield {"type": "finish", "finishReason": reason}

    def _end(self, view: views.RunView) -> Iterator[Chunk]:
        about: dict[str, Json] = {"status": view.status}
        match view.status:
            case Status.COMPLETED:
                yield {"type": _DATA, "data": {**about, "result": view.result}}
                yield from self._finish("stop")
            case Status.CANCELLED:
                yield {"type": _DATA, "data": {**about, "reason": view.reason}}
                yield from self._finish("other")
            case _:
                code, message = segments.why(view)
                yield {"type": _DATA, "data": {**about, "code": code, "message": message}}
                yield {"type": "error", "errorText": f"{code}: {message}"}
                yield from self._finish("error")


def _result(result: parts.Result) -> Chunk:
    about = {"toolCallId": result.call_id}
    match result.status:
        case "success":
            return {"type": "tool-output-available", **about, "output": result.content}
        case "denied":
            return {"type": "tool-output-denied", **about}
        case _:
            return {"type": "tool-output-error", **about, "errorText": str(result.content)}


def _shown(question: views.InterruptView) -> dict[str, Json]:
    deadline = question.deadline
    return {
        "message": question.prompt,
        "reason": question.reason,
        "payload": question.payload,
        "schema": question.response_schema,
        "deadline": None if deadline is None else deadline.isoformat(),
        "address": question.address,
        "kind": question.kind,
        "capability": question.requested_capability,
    }
