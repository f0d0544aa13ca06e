"""Examples of messages, and what an agent said."""

from __future__ import annotations

from typing import Any, Final

from abeyance.api.examples.runs import ACCEPTED

ACCEPTED_MESSAGE: Final[dict[str, Any]] = {**ACCEPTED, "message_id": "note-1"}

MESSAGE: Final[dict[str, Any]] = {
    "message_id": "note-1",
    "text": "The customer accepts half of the amount.",
    "target": "pay",
    "priority": "high",
}

MESSAGE_RECEIPT: Final[dict[str, Any]] = {
    "message_id": "note-1",
    "duplicate": False,
    "queue_depth": 1,
}

MESSAGE_PAGE: Final[dict[str, Any]] = {
    "items": [
        {
            "message_id": "note-1",
            "text": "The customer accepts half of the amount.",
            "sender": "ada",
            "metadata": {},
            "parts": [],
            "action": None,
            "params": {},
            "target": "pay",
            "priority": "high",
            "sent_at": "2026-03-02T09:10:00Z",
            "expires_at": None,
        }
    ],
    "page": 1,
    "page_size": 50,
    "total": 1,
}

CLEARED: Final[dict[str, Any]] = {"cleared": 1}

SAID: Final[dict[str, Any]] = {
    "role": "assistant",
    "turn": 1,
    "at": "2026-03-02T09:00:02Z",
    "text": "I will refund half of the amount.",
    "media": [],
    "sender": None,
    "message_id": None,
    "calls": [
        {"call_id": "call_1", "tool": "transfer", "arguments": {"amount": 125.0, "to": "A-17"}}
    ],
    "tool": None,
    "call_id": None,
    "result": None,
    "outcome": None,
    "decision": None,
    "answered_by": None,
    "on_behalf_of": None,
    "arguments": None,
    "model": "gpt-5",
    "usage": {"input_tokens": 412, "output_tokens": 31, "cached_tokens": 0},
    "finish_reason": "tool_call",
    "interrupted": False,
}

AGENT: Final = "graph:refund;node:review;agent:clerk"
