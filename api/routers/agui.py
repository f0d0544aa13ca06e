"""AG-UI 1.0: a user interface that speaks it talks to a graph. Needs the extra `agui`.

A thread is a conversation, and a run of AG-UI is a segment of ours: it ends where our run waits for
people, with all open questions as its interrupts. The next request answers any of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Final, Literal

from ag_ui import core as protocol
from ag_ui.core.capabilities import AgentCapabilities, HumanInTheLoopCapabilities
from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from abeyance.api import agui, openapi, parts
from abeyance.api.auth import READ, CredentialsDep
from abeyance.api.dependencies import CONNECTED, BackendDep
from abeyance.api.routers.events import EventStream, ServerSentEvents
from abeyance.api.threads import (
    TALK_CODES,
    Answer,
    GraphName,
    Place,
    Posted,
    Thread,
    graph_of,
    new_message,
)
from abeyance.commands import ConversationId, Name
from abeyance.errors import Code

router = APIRouter(prefix="/agui", tags=["user interfaces"], dependencies=[READ])

_EXAMPLE: Final[dict[str, Any]] = {
    "threadId": "chat-17",
    "runId": "1",
    "messages": [{"id": "m1", "role": "user", "content": "Refund order A-17."}],
}
_CAPABILITIES: Final = AgentCapabilities(
    human_in_the_loop=HumanInTheLoopCapabilities(
        supported=True, approvals=True, interrupts=True, approve_with_edits=True
    )
).model_dump(mode="json", by_alias=True, exclude_none=True)
_OFFERED: Final = {
    "name": "refund",
    "description": "Pays an order back.",
    "capabilities": _CAPABILITIES,
}
_STREAM: Final = (
    'data: {"type": "RUN_STARTED", "threadId": "chat-17", "runId": "1", "protocolVersion": "1.0"}\n\n'
    'data: {"type": "RUN_FINISHED", "threadId": "chat-17", "runId": "1", "outcome": {"type": "success"}}'
    "\n\n"
)


class _Input(BaseModel):
    # The protocol grows: what we do not know is ignored.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ResumeEntry(_Input):
    """An answer to an interrupt."""

    interrupt_id: str = Field(max_length=600, description="The id of the interrupt.")
    status: Literal["resolved", "cancelled"] = Field(
        description="`cancelled` rejects a tool call, and leaves any other question open."
    )
    payload: Any = Field(
        default=None,
        description="The answer. Of an approval: `approved`, `editedArgs` in place of all arguments, "
        "and the `reason` of a rejection.",
    )
    metadata: dict[str, Any] | None = Field(
        default=None,
        description="`abeyance.digest` of the interrupt that was shown: another one is refused.",
    )


class RunAgentInput(_Input):
    """A request of AG-UI. Of the messages, the last one counts if it is a user's."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    thread_id: ConversationId = Field(description="The conversation.")
    run_id: Name = Field(description="The id of this request, which the events repeat.")
    messages: list[Any] = Field(description="The messages so far.")
    resume: list[ResumeEntry] | None = Field(
        default=None, max_length=500, description="Answers to open interrupts, any subset of them."
    )


class Offered(BaseModel):
    """What a user interface can do with a graph."""

    name: str
    description: str
    capabilities: dict[str, Any]


@router.get(
    "/{graph}",
    responses=openapi.read("The graph.", _OFFERED, Code.UNKNOWN_GRAPH),
)
async def describe(graph: GraphName, backend: BackendDep) -> Offered:
    """Say what an AG-UI client can do with a graph."""
    found = graph_of(backend, graph)
    return Offered(name=found.name, description=found.description, capabilities=_CAPABILITIES)


@router.post(
    "/{graph}",
    dependencies=[CONNECTED],
    responses=openapi.talk(
        "The events of AG-UI 1.0, up to the next questions or the end.",
        _STREAM,
        *TALK_CODES,
    ),
    response_class=ServerSentEvents,
)
async def run_agent(
    graph: GraphName,
    body: Annotated[RunAgentInput, Body()],
    backend: BackendDep,
    credentials: CredentialsDep,
) -> Response:
    """Talk to a graph by AG-UI 1.0: start a run of the thread, steer it, or answer its interrupts.

    The last message starts a run if it is a user's and the thread has no open one, and steers that one
    otherwise; `resume` answers. All other messages, the state and the tools of the request are ignored.
    The stream ends with all open questions, with the end of the run, or with `RUN_ERROR`; what cannot be
    done is refused before it. If the connection breaks, the run goes on: the same request again starts
    nothing, and continues with a snapshot.

    This requires `runs:read`, and also `runs:start`, `runs:steer` or `runs:respond`.
    """
    thread = Thread(backend, credentials, graph_of(backend, graph))
    posted = posted_by(body)
    place = await thread.take(posted)
    return EventStream(
        _events(thread, posted, place, body.run_id),
        text=_text,
        last_words=lambda reason: _text(
            protocol.RunErrorEvent(message=f"{reason}; the run goes on", code=Code.UNAVAILABLE)
        ),
        stopping=backend.stopping,
        until=credentials.expires_at,
        is_revoked=lambda: backend.tokens.is_revoked(credentials),
    )


def posted_by(body: RunAgentInput) -> Posted:
    """Return what a request says. Raises `invalid_body` for a last message without a text or an id."""
    said = [each for each in body.messages if isinstance(each, Mapping)]
    roles = [each.get("role") for each in said]
    users = [each for each in said if each.get("role") == "user"]
    # System messages and the like may follow.
    after = roles[len(roles) - roles[::-1].index("user") :] if users else []
    is_new = bool(users) and not {"assistant", "tool"} & {*map(str, after)}
    last = users[-1] if is_new else None
    earlier = users[:-1] if is_new else users
    return Posted(
        conversation_id=body.thread_id,
        message=None if last is None else new_message(last.get("id"), _text_of(last)),
        answers=tuple(map(_answer, body.resume or ())),
        earlier=tuple(id_ for each in earlier if isinstance(id_ := each.get("id"), str)),
    )


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [each.get("text") for each in parts if isinstance(each, Mapping)]
    return "\n\n".join(each for each in texts if isinstance(each, str))


def _answer(entry: ResumeEntry) -> Answer:
    metadata = entry.metadata or {}
    ours = metadata.get(agui.OURS)
    digest = ours.get("digest") if isinstance(ours, Mapping) else metadata.get(agui.FINGERPRINT)
    return Answer(
        interrupt_id=entry.interrupt_id,
        value=lambda question: agui.value_of(entry.status, entry.payload, question),
        digest=digest if isinstance(digest, str) else None,
    )


async def _events(
    thread: Thread, posted: Posted, place: Place, segment_id: str
) -> AsyncGenerator[protocol.BaseEvent, None]:
    about = {"run_id": place.run_id, "conversation_id": place.conversation_id}
    yield protocol.RunStartedEvent(
        thread_id=place.conversation_id,
        run_id=segment_id,
        protocol_version=protocol.PROTOCOL_VERSION,
        metadata={agui.OURS: about},
    )
    if not place.is_new and (messages := await _messages(thread, posted, place, is_open=True)):
        yield protocol.MessagesSnapshotEvent(messages=messages)
    async for part in thread.follow(place):
        if isinstance(part, parts.Waiting | parts.Ended):
            yield protocol.StateSnapshotEvent(snapshot=part.view.values)
            is_open = isinstance(part, parts.Waiting)
            if messages := await _messages(thread, posted, place, is_open=is_open):
                yield protocol.MessagesSnapshotEvent(messages=messages)
        for event in agui.events_of(part, thread_id=place.conversation_id, segment_id=segment_id):
            yield event


async def _messages(
    thread: Thread, posted: Posted, place: Place, *, is_open: bool
) -> list[protocol.Message]:
    """The messages of the thread; none if they are too many to read, so that none is lost."""
    runs = await thread.earlier(posted, place)
    messages: list[protocol.Message] = []
    for run_id, first in runs or ():
        said = await thread.said(run_id, is_open=is_open and run_id == place.run_id)
        messages += agui.messages_of(run_id, said, first=first)
    return messages


def _text(event: protocol.BaseEvent) -> str:
    return f"data: {event.model_dump_json(by_alias=True)}\n\n"
