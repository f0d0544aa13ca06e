"""A conversation for people and their programs: one item for each message, response and tool result.

Thinking parts of a model are left out: they belong to the provider and are often unreadable. Media are
listed without their content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, TypeAdapter

from abeyance.agents.prompts import is_note, steering_of
from abeyance.core.json import Json
from abeyance.wire import Record, is_none

if TYPE_CHECKING:
    from pydantic_ai.messages import (
        FileUrl,
        ModelMessage,
        ModelRequestPart,
        ModelResponse,
        ToolReturnPart,
        UserPromptPart,
    )

_PLAIN: TypeAdapter[Any] = TypeAdapter(Any)


class TranscriptMedia(Record):
    """A picture, a sound or a document: its `url`, or its size in `bytes`."""

    media_type: str
    url: str | None = None
    bytes: int | None = None


class TranscriptCall(Record):
    """A tool call. `arguments` is a text if the model wrote invalid JSON."""

    call_id: str
    tool: str
    arguments: Json


class TranscriptUsage(Record):
    """The token usage of one response."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class TranscriptItem(Record):
    """One item of a conversation.

    `turn` counts the model's responses from 1; an item without a response yet belongs to the next turn.

    - `system`: instructions in the conversation, corrections of an invalid response, and notes that a
      person has changed the arguments of a call.
    - `user`: the agent's input (no `sender`), or a message (`sender`, `message_id`).
    - `assistant`: a response: `text`, `calls` and `usage`.
    - `tool`: the result of a call, by `call_id`; `outcome` is `success`, `failed`, `denied`, `retried`
      (the call was invalid, and the model is asked to repeat it) or `interrupted`. If a person,
      `answered_by` (on behalf of `on_behalf_of`), has given the result in place of the call, `decision`
      is `respond`; if they have reported it after the call's worker was lost, it is `report`; if they
      have edited the arguments, it is `edit`. `arguments` are those of the call, if they were edited.
      `approval` has the `grant` under which the call ran unasked, and who made it (`by`).
    """

    role: Literal["system", "user", "assistant", "tool"] = Field(examples=["assistant"])
    turn: int = Field(examples=[1])
    at: datetime | None = None
    text: str | None = Field(default=None, examples=["I will refund half of the amount."])
    media: tuple[TranscriptMedia, ...] = ()
    sender: str | None = None
    message_id: str | None = None
    calls: tuple[TranscriptCall, ...] = ()
    tool: str | None = None
    call_id: str | None = None
    result: Json = None
    outcome: str | None = None
    decision: Literal["edit", "report", "respond"] | None = None
    answered_by: str | None = None
    on_behalf_of: str | None = None
    arguments: Json = None
    approval: dict[str, str] | None = Field(default=None, exclude_if=is_none)
    model: str | None = Field(default=None, examples=["gpt-5"])
    usage: TranscriptUsage | None = None
    finish_reason: str | None = None
    interrupted: bool = Field(default=False, description="The response was stopped before its end.")


def transcript_items(messages: Sequence[ModelMessage]) -> list[TranscriptItem]:
    """Return the items of a conversation, oldest first."""
    from pydantic_ai.messages import ModelRequest

    items: list[TranscriptItem] = []
    turn = 1
    for message in messages:
        if isinstance(message, ModelRequest):
            items.extend(item for part in message.parts for item in _request_items(part, turn))
        else:
            items.append(_response_item(message, turn))
            turn += 1
    return items


def _request_items(part: ModelRequestPart, turn: int) -> Iterator[TranscriptItem]:
    from pydantic_ai.messages import (
        RetryFeedbackPart,
        SystemPromptPart,
        ToolReturnPart,
        UserPromptPart,
    )

    match part:
        case SystemPromptPart():
            yield TranscriptItem(role="system", turn=turn, at=part.timestamp, text=part.content)
        case RetryFeedbackPart():
            yield TranscriptItem(
                role="system", turn=turn, at=part.timestamp, text=str(part.content)
            )
        case UserPromptPart():
            yield _user_item(part, turn)
        case ToolReturnPart():
            yield _tool_item(part, turn)
        case _:
            # The model library's internal parts are left out.
            return


def _user_item(part: UserPromptPart, turn: int) -> TranscriptItem:
    from pydantic_ai.messages import TextContent

    content = [part.content] if isinstance(part.content, str) else part.content
    message = steering_of(part)
    texts = [
        entry if isinstance(entry, str) else entry.content
        for entry in content
        if isinstance(entry, str | TextContent)
    ]
    return TranscriptItem(
        role="system" if is_note(part) else "user",
        turn=turn,
        at=part.timestamp,
        media=tuple(_media(content)),
        text=("\n\n".join(texts) if message is None else message.text) or None,
        sender=None if message is None else message.sender,
        message_id=None if message is None else message.message_id,
    )


def _tool_item(part: ToolReturnPart, turn: int) -> TranscriptItem:
    content = part.content if isinstance(part.content, list) else [part.content]
    media = tuple(_media(content))
    plain = [item for item in content if not list(_media([item]))]
    marks = part.metadata if isinstance(part.metadata, dict) else {}
    result = part.content if not media else plain[0] if len(plain) == 1 else plain
    return TranscriptItem(
        role="tool",
        turn=turn,
        at=part.timestamp,
        tool=part.tool_name,
        call_id=part.tool_call_id,
        result=_PLAIN.dump_python(result, mode="json"),
        media=media,
        outcome=part.outcome,
        decision=marks.get("decision"),
        answered_by=marks.get("by"),
        on_behalf_of=marks.get("on_behalf_of"),
        arguments=marks.get("edited"),
        approval=marks.get("approval"),
    )


def _response_item(response: ModelResponse, turn: int) -> TranscriptItem:
    return TranscriptItem(
        role="assistant",
        turn=turn,
        at=response.timestamp,
        text=response.text,
        calls=tuple(
            TranscriptCall(
                call_id=call.tool_call_id, tool=call.tool_name, arguments=_arguments(call)
            )
            for call in response.tool_calls
        ),
        model=response.model_name,
        usage=TranscriptUsage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cached_tokens=response.usage.cache_read_tokens,
        ),
        finish_reason=response.finish_reason,
        interrupted=response.state == "interrupted",
    )


def _arguments(call: Any) -> Json:
    try:
        return call.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return call.args


def _media(content: Sequence[Any]) -> Iterator[TranscriptMedia]:
    from pydantic_ai.messages import BinaryContent, FileUrl

    for item in content:
        match item:
            case BinaryContent():
                yield TranscriptMedia(media_type=item.media_type, bytes=len(item.data))
            case FileUrl():
                yield TranscriptMedia(media_type=_media_type(item), url=item.url)
            case _:
                pass


def _media_type(media: FileUrl) -> str:
    try:
        return media.media_type
    except ValueError:
        # The media type is not declared, and the url does not show it.
        return "application/octet-stream"
