"""Print the transcript of an agent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, RunId, run_path, with_api
from abeyance.cli.errors import ErrorText
from abeyance.cli.formatting import Line, call_text, short_time, show
from abeyance.util import without_none

if TYPE_CHECKING:
    from abeyance.http import Connection


_LINES: Final = 40
_CHARS: Final = 4_000
"""Maximum characters of one text. `--json` prints all of it."""
_SHORT: Final = 100
_OUTCOMES: Final = {
    "success": "result",
    "failed": "failed",
    "denied": "denied",
    "retried": "retry",
    "interrupted": "stopped",
}


def transcript_lines(item: Mapping[str, Any]) -> list[Line]:
    """Return one item of a transcript: a message, a model turn, or a tool result."""
    match item["role"]:
        case "assistant":
            return list(_turn(item))
        case "tool":
            label = _OUTCOMES.get(item["outcome"], str(item["outcome"]))
            result = _clip(_plain(item["result"]))
            granted = item.get("approval")
            unasked = [] if granted is None else [_under(granted)]
            return [
                Line(label, f"{item['tool']}  {item['call_id']}"),
                *_more([*unasked, result]),
                *_media(item),
            ]
        case role:
            text = _clip(item["text"] or "")
            if item.get("sender") is None:
                return [Line("input" if role == "user" else role, text), *_media(item)]
            by = f"from {item['sender']}, message {item['message_id']}"
            return [Line("message", by), *_more([text]), *_media(item)]


def _under(granted: Mapping[str, Any]) -> str:
    return f"(ran unasked, under the grant {granted['grant']} of {granted['by']})"


def _turn(item: Mapping[str, Any]) -> Iterator[Line]:
    texts = [_clip(item["text"])] if item["text"] else []
    texts += [
        f"calls {call_text(call['tool'], call['arguments'])}  {call['call_id']}"
        for call in item["calls"]
    ]
    if item["interrupted"]:
        texts.append("(interrupted)")
    texts.append(_about(item))
    yield Line(f"turn {item['turn']}", texts[0])
    yield from _more(texts[1:])


def _about(item: Mapping[str, Any]) -> str:
    """Return the time, model and tokens of a turn."""
    parts = [short_time(item["at"])] if item["at"] else []
    if item["model"]:
        parts.append(item["model"])
    if (usage := item["usage"]) is not None:
        cached = f" ({usage['cached_tokens']} cached)" if usage["cached_tokens"] else ""
        parts.append(f"{usage['input_tokens']} tokens in{cached}, {usage['output_tokens']} out")
    if item["finish_reason"] not in (None, "stop", "tool_call"):
        parts.append(f"finish reason: {item['finish_reason']}")
    return "  ".join(["--", *parts])


def _media(item: Mapping[str, Any]) -> Iterator[Line]:
    for media in item["media"]:
        where = media["url"] or f"{media['bytes']} bytes"
        yield Line("", f"({media['media_type']}, {where})")


def _more(texts: list[str]) -> list[Line]:
    return [Line("", text) for text in texts]


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = _json(value)
    return text if len(text) <= _SHORT else json.dumps(value, ensure_ascii=False, indent=2)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clip(text: str) -> str:
    lines = text.split("\n")
    start = "\n".join(lines[:_LINES])[:_CHARS]
    if start == text:
        return text
    return f"{start}\n... ({len(text)} characters in {len(lines)} lines; --json prints all of it)"


transcribing = typer.Typer()


@transcribing.command(cls=ErrorText, rich_help_panel=PANEL)
def transcript(
    run_id: RunId,
    *,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of the agent, or of a node inside it. Default: the only agent of the run."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each item as one line of JSON.")
    ] = False,
) -> None:
    """Print the transcript of an agent: messages, model turns, tool calls and results."""
    path = f"{run_path(run_id)}/transcript"

    async def read(api: Connection) -> None:
        async for page in api.pages(path, **without_none(address=address)):
            for item in page["items"]:
                if as_json:
                    typer.echo(json.dumps(item))
                else:
                    show(transcript_lines(item))

    with_api(read)
