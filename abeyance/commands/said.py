"""What agents have said, and the calls of their tools, as a person reads them in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from abeyance.commands.terminal import Line, call_text, short_time

_LINES: Final = 40
_CHARS: Final = 4_000
"""How much of one text is shown: a terminal is not for reading files. `--json` has it whole."""
_SHORT: Final = 100
_OUTCOMES: Final = {
    "success": "result",
    "failed": "failed",
    "denied": "denied",
    "retried": "once more",
    "interrupted": "stopped",
}


def item_lines(item: Mapping[str, Any]) -> list[Line]:
    """One item of a transcript: who said what, or what a tool gave back."""
    match item["role"]:
        case "assistant":
            return list(_turn(item))
        case "tool":
            label = _OUTCOMES.get(item["outcome"], str(item["outcome"]))
            told = _shortened(_plain(item["result"]))
            return [
                Line(label, f"{item['tool']}  {item['call_id']}"),
                *_more([told]),
                *_media(item),
            ]
        case role:
            text = _shortened(item["text"] or "")
            if item.get("sender") is None:
                return [Line("input" if role == "user" else role, text), *_media(item)]
            by = f"from {item['sender']}, message {item['message_id']}"
            return [Line("message", by), *_more([text]), *_media(item)]


def _turn(item: Mapping[str, Any]) -> Iterator[Line]:
    told = [_shortened(item["text"])] if item["text"] else []
    told += [
        f"calls {call_text(call['tool'], call['arguments'])}  {call['call_id']}"
        for call in item["calls"]
    ]
    if item["interrupted"]:
        told.append("(stopped before its end)")
    told.append(_about(item))
    yield Line(f"turn {item['turn']}", told[0])
    yield from _more(told[1:])


def _about(item: Mapping[str, Any]) -> str:
    """What a turn cost, and when it was."""
    parts = [short_time(item["at"])] if item["at"] else []
    if item["model"]:
        parts.append(item["model"])
    if (usage := item["usage"]) is not None:
        cached = f" ({usage['cached_tokens']} cached)" if usage["cached_tokens"] else ""
        parts.append(f"{usage['input_tokens']} tokens in{cached}, {usage['output_tokens']} out")
    if item["finish_reason"] not in (None, "stop", "tool_call"):
        parts.append(f"ended by {item['finish_reason']}")
    return "  ".join(["--", *parts])


def _media(item: Mapping[str, Any]) -> Iterator[Line]:
    for each in item["media"]:
        where = each["url"] or f"{each['bytes']} bytes"
        yield Line("", f"({each['media_type']}, {where})")


def _more(texts: list[str]) -> list[Line]:
    return [Line("", text) for text in texts]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = _json(value)
    return text if len(text) <= _SHORT else json.dumps(value, ensure_ascii=False, indent=2)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    lines = text.split("\n")
    kept = "\n".join(lines[:_LINES])[:_CHARS]
    if kept == text:
        return text
    return f"{kept}\n... ({len(text)} characters in {len(lines)} lines; --json prints all of it)"
