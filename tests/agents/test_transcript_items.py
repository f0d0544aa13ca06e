from __future__ import annotations

from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from abeyance.agents.output import Correction, OutputType
from abeyance.agents.prompts import user_part
from abeyance.agents.transcript_view import transcript_items
from abeyance.core.events import Message


def plain(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    items = [
        item.model_dump(mode="json", exclude_defaults=True) for item in transcript_items(messages)
    ]
    for item in items:
        assert item.pop("at") is not None
    return items


def test_a_conversation_is_shown_in_the_order_in_which_it_was_held() -> None:
    steering = Message(message_id="m-1", text="Be <quick>.", sender="alice")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[SystemPromptPart("Be kind."), UserPromptPart("Pay 5 to Bob.")]),
        ModelResponse(
            parts=[
                ThinkingPart("Shall I?"),
                TextPart("I will."),
                ToolCallPart("pay", {"amount": 5}, "c1"),
                ToolCallPart("note", "{", "c2"),
            ],
            usage=RequestUsage(input_tokens=10, output_tokens=4, cache_read_tokens=6),
            model_name="gpt-5",
            finish_reason="tool_call",
        ),
        ModelRequest(
            parts=[
                ToolReturnPart("pay", {"paid": 5}, "c1"),
                ToolReturnPart("note", "That is not JSON.", "c2", outcome="retried"),
                user_part(steering),
            ]
        ),
        ModelResponse(parts=[TextPart("Do")], state="interrupted"),
    ]

    assert plain(messages) == [
        {"role": "system", "turn": 1, "text": "Be kind."},
        {"role": "user", "turn": 1, "text": "Pay 5 to Bob."},
        {
            "role": "assistant",
            "turn": 1,
            "text": "I will.",
            "calls": [
                {"call_id": "c1", "tool": "pay", "arguments": {"amount": 5}},
                {"call_id": "c2", "tool": "note", "arguments": "{"},
            ],
            "model": "gpt-5",
            "usage": {"input_tokens": 10, "output_tokens": 4, "cached_tokens": 6},
            "finish_reason": "tool_call",
        },
        {
            "role": "tool",
            "turn": 2,
            "tool": "pay",
            "call_id": "c1",
            "result": {"paid": 5},
            "outcome": "success",
        },
        {
            "role": "tool",
            "turn": 2,
            "tool": "note",
            "call_id": "c2",
            "result": "That is not JSON.",
            "outcome": "retried",
        },
        {"role": "user", "turn": 2, "text": "Be <quick>.", "sender": "alice", "message_id": "m-1"},
        {
            "role": "assistant",
            "turn": 2,
            "text": "Do",
            "usage": {"input_tokens": 0, "output_tokens": 0},
            "interrupted": True,
        },
    ]


def test_media_are_named_and_not_shown() -> None:
    sound = AudioUrl("https://media.example/a?key=1")
    picture = BinaryContent(b"12345", media_type="image/png")
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["Look", picture, sound])]),
        ModelRequest(parts=[ToolReturnPart("draw", ["Done", picture], "c1")]),
        ModelRequest(parts=[ToolReturnPart("draw", ImageUrl("https://media.example/b.png"), "c2")]),
    ]

    [asked, drawn, linked] = plain(messages)

    image = {"media_type": "image/png", "bytes": 5}
    other = {"media_type": "application/octet-stream", "url": "https://media.example/a?key=1"}
    assert asked["media"] == [image, other]
    assert (drawn["result"], drawn["media"]) == ("Done", [image])
    assert linked["media"] == [{"media_type": "image/png", "url": "https://media.example/b.png"}]


def test_a_correction_is_shown_as_a_system_message() -> None:
    reading = OutputType(int).read(ModelResponse(parts=[TextPart("Five.")]))
    assert isinstance(reading, Correction)

    [item] = plain([reading.message])

    assert item["role"] == "system"
    assert "final_result" in item["text"]
