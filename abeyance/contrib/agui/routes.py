"""AG-UI 1.0: user interfaces that speak the protocol talk to a graph. Needs the extra `agui`.

A thread is a conversation, and a run of AG-UI is a segment of our run: it ends where our run waits for
people, with all open questions as its interrupts. The next request may answer any of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Annotated, Any, Final, Literal, assert_never

from ag_ui import core as protocol
from ag_ui.core.capabilities import AgentCapabilities, HumanInTheLoopCapabilities
from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from abeyance import views
from abeyance.agents import tool_results
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api import openapi
from abeyance.api.auth import READ, CredentialsDep
from abeyance.api.dependencies import CONNECTED, BackendDep
from abeyance.api.routers.events import ServerSentEvents, place_of, stream_to
from abeyance.commands.fields import ConversationId, Name
from abeyance.contrib.talk import parts, segments
from abeyance.contrib.talk.posted import Answer, Posted, ids_of, new_message, one_each
from abeyance.contrib.talk.threads import GraphName, Place, Said, Thread, graph_of
from abeyance.core.json import Json
from abeyance.core.state import Status
from abeyance.errors import Code

router = APIRouter(prefix="/agui", tags=["user interfaces"], dependencies=[READ])

OURS: Final = "abeyance"
"""The name of our additions: in metadata, and of custom events."""
FINGERPRINT: Final = "actionFingerprint"
_APPROVAL: Final = "approval"
_REASONS: Final = {
    _APPROVAL: "tool_call",
    "static": f"{OURS}:look",
    "error": f"{OURS}:failure",
    "outcome": f"{OURS}:outcome",
}
"""The reasons of interrupts by the kinds of our questions; any other kind is `input_required`."""
_INPUT: Final = "input_required"

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
_STREAM: Final = (
    'data: {"type": "RUN_STARTED", "threadId": "chat-17", "runId": "1", "protocolVersion": "1.0"}\n\n'
    'data: {"type": "RUN_FINISHED", "threadId": "chat-17", "runId": "1", "outcome": {"type": "success"}}'
    "\n\n"
)


class _Input(BaseModel):
    # The protocol grows, so unknown fields are ignored.
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
    """A request of AG-UI. Only the last message counts, if it is a user's."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    thread_id: ConversationId = Field(description="The conversation.")
    run_id: Name = Field(description="The id of this request, which the events repeat.")
    messages: list[Any] = Field(description="The messages so far.")
    resume: list[ResumeEntry] | None = Field(
        default=None, max_length=500, description="Answers to open interrupts, any subset of them."
    )


class Offered(BaseModel):
    """The abilities of a graph for user interfaces."""

    name: views.GraphName
    description: str = Field(examples=["Pays an order back."])
    capabilities: dict[str, Any] = Field(examples=[_CAPABILITIES])


@router.get("/{graph}", response_description="The graph.")
async def describe(graph: GraphName, backend: BackendDep) -> Offered:
    """Describe what an AG-UI client can do with a graph."""
    found = graph_of(backend, graph)
    return Offered(name=found.name, description=found.description, capabilities=_CAPABILITIES)


@router.post(
    "/{graph}",
    dependencies=[CONNECTED],
    response_description="The events of AG-UI 1.0, up to the next questions or the end.",
    responses=openapi.shown(_STREAM, "text/event-stream"),
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
    The stream ends with all open questions, with the end of the run, or with `RUN_ERROR`. A request that
    cannot be carried out is refused before the stream. If the connection breaks, the run goes on: the
    same request again starts nothing, and continues with a snapshot.

    This requires `runs:read`, and also `runs:start`, `runs:steer` or `runs:respond`.
    """
    thread = Thread(backend, credentials, graph_of(backend, graph))
    posted = posted_by(body)
    # Hold the place first: a refused stream must not start a run.
    with place_of(credentials, backend) as held:
        place = await thread.take(posted)
        return stream_to(
            credentials,
            backend,
            _events(thread, posted, place, body.run_id),
            held,
            text=_text,
            last_words=lambda reason: _text(
                protocol.RunErrorEvent(message=f"{reason}; the run goes on", code=Code.UNAVAILABLE)
            ),
        )


def posted_by(body: RunAgentInput) -> Posted:
    """Return the content of a request. Raises `invalid_body` for a last message without a text or an id,
    and `malformed_body` for two answers to a question.
    """
    said = [each for each in body.messages if isinstance(each, Mapping)]
    roles = [each.get("role") for each in said]
    users = [each for each in said if each.get("role") == "user"]
    # System messages and the like may follow the user's message.
    after = roles[len(roles) - roles[::-1].index("user") :] if users else []
    is_new = bool(users) and not {"assistant", "tool"} & {*map(str, after)}
    last = users[-1] if is_new else None
    earlier = users[:-1] if is_new else users
    return Posted(
        conversation_id=body.thread_id,
        message=None if last is None else new_message(last.get("id"), _text_of(last)),
        answers=one_each(map(_answer, body.resume or ())),
        earlier=ids_of(earlier),
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
    ours = metadata.get(OURS)
    digest = ours.get("digest") if isinstance(ours, Mapping) else metadata.get(FINGERPRINT)
    return Answer(
        interrupt_id=entry.interrupt_id,
        value=lambda question: value_of(entry.status, entry.payload, question),
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
        metadata={OURS: about},
    )
    if not place.is_new and (messages := await _messages(thread, posted, place, is_open=True)):
        yield protocol.MessagesSnapshotEvent(messages=messages)
    async for part in thread.follow(place):
        if isinstance(part, parts.Waiting | parts.Ended):
            yield protocol.StateSnapshotEvent(snapshot=part.view.values)
            is_open = isinstance(part, parts.Waiting)
            if messages := await _messages(thread, posted, place, is_open=is_open):
                yield protocol.MessagesSnapshotEvent(messages=messages)
        for event in events_of(part, thread_id=place.conversation_id, segment_id=segment_id):
            yield event


async def _messages(
    thread: Thread, posted: Posted, place: Place, *, is_open: bool
) -> list[protocol.Message]:
    """Return the messages of the thread; none if there are too many, as a part would replace all."""
    runs = await thread.earlier(posted, place)
    messages: list[protocol.Message] = []
    for run_id, first in runs or ():
        said = await thread.said(run_id, is_open=is_open and run_id == place.run_id)
        messages += messages_of(run_id, said, first=first)
    return messages


def _text(event: protocol.BaseEvent) -> str:
    return f"data: {event.model_dump_json(by_alias=True)}\n\n"


def events_of(part: parts.Part, *, thread_id: str, segment_id: str) -> Iterator[protocol.BaseEvent]:
    """Yield the events of a part."""
    match part:
        case parts.StepBegan(name=name):
            yield protocol.StepStartedEvent(step_name=name)
        case parts.StepEnded(name=name):
            yield protocol.StepFinishedEvent(step_name=name)
        case parts.SubagentBegan(agent=agent):
            yield protocol.SubagentStartedEvent(
                subagent_run_id=agent.id,
                name=agent.name,
                parent_subagent_run_id=agent.parent,
                parent_tool_call_id=agent.call_id,
            )
        case parts.SubagentEnded(agent=agent, is_waiting=True, interrupts=ids):
            suspended = protocol.SubagentFinishedSuspendedOutcome(interrupt_ids=[*ids])
            yield protocol.SubagentFinishedEvent(subagent_run_id=agent.id, outcome=suspended)
        case parts.SubagentEnded(agent=agent):
            yield protocol.SubagentFinishedEvent(subagent_run_id=agent.id)
        case parts.TextBegan(id=id_, subagent=by):
            yield protocol.TextMessageStartEvent(
                message_id=id_, role="assistant", subagent_run_id=by
            )
        case parts.TextDelta(id=id_, text=text, subagent=by):
            yield protocol.TextMessageContentEvent(message_id=id_, delta=text, subagent_run_id=by)
        case parts.TextEnded(id=id_, subagent=by):
            yield protocol.TextMessageEndEvent(message_id=id_, subagent_run_id=by)
        case parts.Turn():
            by = part.subagent
            for call in part.calls:
                yield protocol.ToolCallStartEvent(
                    tool_call_id=call.id,
                    tool_call_name=call.tool,
                    parent_message_id=part.id,
                    subagent_run_id=by,
                )
                yield protocol.ToolCallArgsEvent(
                    tool_call_id=call.id, delta=segments.as_text(call.arguments), subagent_run_id=by
                )
                yield protocol.ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=by)
        case parts.Result(status=status):
            yield protocol.ToolCallResultEvent(
                message_id=part.id,
                tool_call_id=part.call_id,
                content=segments.as_text(part.content),
                role="tool",
                subagent_run_id=part.subagent,
                metadata={OURS: {"status": status}},
            )
        case parts.Opened(interrupts=asked):
            value = {
                "status": "asked",
                "interrupts": [
                    interrupt_of(each).model_dump(mode="json", by_alias=True) for each in asked
                ],
            }
            yield protocol.CustomEvent(name=OURS, value=value)
        case parts.Notice(name=name, value=value):
            yield protocol.CustomEvent(name=name, value=value)
        case parts.Waiting(interrupts=asked):
            yield protocol.RunFinishedEvent(
                thread_id=thread_id,
                run_id=segment_id,
                outcome=protocol.RunFinishedInterruptOutcome(
                    interrupts=[interrupt_of(each) for each in asked]
                ),
                usage=_usage(part.usage),
            )
        case parts.Ended():
            yield _end(part, thread_id, segment_id)
        case _:
            assert_never(part)


def _end(part: parts.Ended, thread_id: str, segment_id: str) -> protocol.BaseEvent:
    outcome: protocol.RunFinishedOutcome
    match part.view.status:
        case Status.COMPLETED:
            outcome = protocol.RunFinishedSuccessOutcome()
        case Status.CANCELLED:
            outcome = protocol.RunFinishedCancelledOutcome()
        case _:
            code, message = segments.why(part.view)
            return protocol.RunErrorEvent(message=message, code=code)
    return protocol.RunFinishedEvent(
        thread_id=thread_id,
        run_id=segment_id,
        result=part.view.result,
        outcome=outcome,
        usage=_usage(part.usage),
    )


def interrupt_of(question: views.InterruptView) -> protocol.Interrupt:
    """Return an open question as an interrupt of the protocol."""
    call = segments.call_of(question.address)
    subagent = segments.subagent_of(segments.agent_of(question.address))
    about = {
        "address": question.address,
        "digest": question.digest,
        "capability": question.requested_capability,
        "kind": question.kind,
        "parents": [
            {"id": each.id, "address": each.address, "reason": each.reason}
            for each in question.parents
        ],
        "reason": question.reason,
        "payload": question.payload,
    }
    return protocol.Interrupt(
        id=question.id,
        reason=_REASONS.get(question.kind, _INPUT),
        message=question.prompt,
        tool_call_id=None if call is None else call[1],
        response_schema=schema_of(question),
        expires_at=question.deadline and question.deadline.isoformat(),
        subagent_run_id=None if subagent is None else subagent.id,
        metadata={OURS: about, **({FINGERPRINT: question.digest} if question.digest else {})},
    )


def schema_of(question: views.InterruptView) -> dict[str, Any] | None:
    """Return the schema of the answers to a question, for an approval with the protocol's names."""
    schema = question.response_schema
    if not isinstance(schema, Mapping):
        return None
    if question.kind != _APPROVAL or not isinstance(schema.get("properties"), Mapping):
        return dict(schema)
    properties = dict(schema["properties"])
    if "arguments" in properties:
        properties["editedArgs"] = properties.pop("arguments")
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return {
        "type": "object",
        "properties": properties,
        "required": ["approved"],
        "additionalProperties": False,
        **definitions,
    }


def messages_of(run_id: str, said: Said, *, first: str = "") -> list[protocol.Message]:
    """Return the messages of a run. `first` is the id of the message that has started it."""
    ordered: list[tuple[float, int, protocol.Message]] = []
    for number, (agent, items) in enumerate(said.transcripts.items()):
        latest = 0.0
        for at, item in enumerate(items):
            moment = 0.0 if item.at is None else item.at.timestamp()
            # The order within a transcript is right, whatever the clocks of workers say.
            latest = max(latest, moment)
            id_ = first if (number, at) == (0, 0) and first else _id_of(run_id, agent, item, at)
            is_input = item.role == "user" and item.sender is None
            if is_input and (number or segments.subagent_of(agent)):
                continue
            if (message := _message(id_, agent, item)) is not None:
                ordered.append((latest, number, message))
    messages = [message for *_, message in sorted(ordered, key=lambda each: each[:2])]
    # A turn that waits may have stored results in its transcript that the run still lists.
    known = {message.id for message in messages}
    for agent, results in said.results.items():
        for call_id, result in results.items():
            id_ = segments.message_id(run_id, agent, "result", call_id)
            if id_ in known:
                continue
            _, content = tool_results.to_model_text(result)
            messages.append(
                protocol.ToolMessage(
                    id=id_,
                    content=segments.as_text(content),
                    tool_call_id=call_id,
                    subagent_run_id=segments.speaker_of(agent),
                )
            )
    messages += [
        protocol.UserMessage(id=each.message_id, content=each.text) for each in said.unread
    ]
    return messages


def _id_of(run_id: str, agent: str, item: TranscriptItem, at: int) -> str:
    match item.role:
        case "assistant":
            return segments.message_id(run_id, agent, item.turn)
        case "tool":
            return segments.message_id(run_id, agent, "result", item.call_id)
        case _:
            return item.message_id or segments.message_id(run_id, agent, "item", at)


def _message(id_: str, agent: str, item: TranscriptItem) -> protocol.Message | None:
    by = segments.speaker_of(agent)
    match item.role:
        case "user":
            return protocol.UserMessage(id=id_, content=item.text or "", subagent_run_id=by)
        case "assistant":
            calls = [
                protocol.ToolCall(
                    id=call.id,
                    function=protocol.FunctionCall(
                        name=call.tool, arguments=segments.as_text(call.arguments)
                    ),
                )
                for call in segments.calls_of(item)
            ]
            return protocol.AssistantMessage(
                id=id_, content=item.text, tool_calls=calls or None, subagent_run_id=by
            )
        case "tool":
            return protocol.ToolMessage(
                id=id_,
                content=segments.as_text(item.result),
                tool_call_id=item.call_id or "",
                subagent_run_id=by,
            )
        case _:
            # Instructions belong to the author of the graph, and are not shown.
            return None


def _usage(usage: Sequence[parts.Usage]) -> list[protocol.TokenUsage] | None:
    return [
        protocol.TokenUsage(
            model=each.model,
            input_tokens=each.input_tokens,
            output_tokens=each.output_tokens,
            total_tokens=each.input_tokens + each.output_tokens,
        )
        for each in usage
    ] or None


def value_of(
    status: Literal["resolved", "cancelled"], payload: Json, question: views.InterruptView
) -> Json | EllipsisType:
    """Return an answer in the form that a question takes; `...` leaves the question open."""
    if question.kind != _APPROVAL:
        return payload if status == "resolved" else ...
    if status == "cancelled":
        return {"approved": False}
    if not isinstance(payload, Mapping):
        return payload
    answer = {name: value for name, value in payload.items() if value is not None}
    # The run refuses an answer with both names.
    if "editedArgs" in answer and "arguments" not in answer:
        answer["arguments"] = answer.pop("editedArgs")
    if answer.get("approved") is True:
        # A form may send a reason with any decision; the run refuses one beside an approval.
        answer.pop("reason", None)
    return answer
