"""AG-UI 1.0: the parts of a segment as its events, our questions as its interrupts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, Final, Literal, assert_never

from ag_ui import core as protocol

from abeyance import views
from abeyance.agents import tool_results
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api import parts, segments
from abeyance.api.threads import Said
from abeyance.core.json import Json
from abeyance.core.state import Status

OURS: Final = "abeyance"
"""The name of what we add: in metadata, and of custom events."""
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
                    tool_call_id=call.id, delta=_plain(call.arguments), subagent_run_id=by
                )
                yield protocol.ToolCallEndEvent(tool_call_id=call.id, subagent_run_id=by)
        case parts.Result(status=status):
            yield protocol.ToolCallResultEvent(
                message_id=part.id,
                tool_call_id=part.call_id,
                content=_plain(part.content),
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
        case parts.Ended(view=view):
            yield _end(view, part, thread_id, segment_id)
        case _:
            assert_never(part)


def _end(
    view: views.RunView, part: parts.Ended, thread_id: str, segment_id: str
) -> protocol.BaseEvent:
    outcome: protocol.RunFinishedOutcome
    match view.status:
        case Status.COMPLETED:
            outcome = protocol.RunFinishedSuccessOutcome()
        case Status.CANCELLED:
            outcome = protocol.RunFinishedCancelledOutcome()
        case _:
            code, message = segments.why(view)
            return protocol.RunErrorEvent(message=message, code=code)
    return protocol.RunFinishedEvent(
        thread_id=thread_id,
        run_id=segment_id,
        result=view.result,
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
    """Return the schema of the answers to a question; that of an approval has the protocol's names."""
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
    # A turn that has stored what it heard may wait, with the results that it began with.
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
                    content=_plain(content),
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
                        name=call.tool, arguments=_plain(call.arguments)
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
                content=_plain(item.result),
                tool_call_id=item.call_id or "",
                subagent_run_id=by,
            )
        case _:
            # Instructions are the author's.
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


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    if "editedArgs" in answer:
        answer["arguments"] = answer.pop("editedArgs")
    if answer.get("approved") is True:
        # A form may have a reason for both decisions.
        answer.pop("reason", None)
    return answer
