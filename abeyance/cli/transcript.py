"""Print and follow the transcript of an agent."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, RunId, run_path, with_api
from abeyance.cli.errors import ErrorText, print_error
from abeyance.cli.formatting import Line, call_text, can_draw, short_time, show
from abeyance.cli.watch import Said, render
from abeyance.errors import Code, Refusal, Unavailable

if TYPE_CHECKING:
    from rich.live import Live

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
            return [
                Line(label, f"{item['tool']}  {item['call_id']}"),
                *_more([result]),
                *_media(item),
            ]
        case role:
            text = _clip(item["text"] or "")
            if item.get("sender") is None:
                return [Line("input" if role == "user" else role, text), *_media(item)]
            by = f"from {item['sender']}, message {item['message_id']}"
            return [Line("message", by), *_more([text]), *_media(item)]


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

_PAGE: Final = "500"
_PAUSE: Final = 0.25
"""Seconds between two reads."""
_READ_AGAIN: Final = 2.0
"""Seconds before the next read after a failed one."""
_NEWS: Final = frozenset({"model.turn", "tool.finished", "node.stopped"})
"""Events that may add to a transcript."""


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
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Continue until the run ends. In a terminal, also show text while the model speaks.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each item as one line of JSON.")
    ] = False,
) -> None:
    """Print the transcript of an agent: messages, model turns, tool calls and results."""
    reader = _Reader(run_path(run_id), address, as_json=as_json)
    with_api(reader.follow if follow else reader.read)


class _Reader:
    """Prints each item of a transcript once."""

    def __init__(self, path: str, address: str | None, *, as_json: bool) -> None:
        self._path = path
        self._as_json = as_json
        self._query = {"limit": _PAGE, **({} if address is None else {"address": address})}
        self._position: dict[str, str] = {}
        inner = re.match(r"(.*;agent:[^;]+)", address or "")
        self._agent = None if inner is None else inner[1]
        self._said = Said()
        self._live: Live | None = None

    async def read(self, api: Connection) -> bool:
        """Print new items. Return True if the transcript is complete."""
        while True:
            path = f"{self._path}/transcript"
            page = await api.get(path, **self._query, **self._position)
            for item in page["items"]:
                self._print(item)
            if page["next_cursor"] is None:
                return True
            self._position = {"cursor": page["next_cursor"]}
            if not page["items"]:
                return False

    async def follow(self, api: Connection) -> None:
        """Print items until the run ends."""
        news = asyncio.Event()
        # Read what exists before the first event.
        news.set()
        listening = asyncio.create_task(self._listen(api, news))
        try:
            while True:
                is_last = await _wait_for_news(news, listening)
                try:
                    if await self._read_on(api, is_last=is_last) or is_last:
                        return
                    await asyncio.sleep(_PAUSE)
                except Unavailable:
                    if is_last:
                        raise
                    await asyncio.sleep(_READ_AGAIN)
                    news.set()
        finally:
            listening.cancel()
            await asyncio.wait({listening})
            self._end_speech()

    async def _read_on(self, api: Connection, *, is_last: bool) -> bool:
        try:
            return await self.read(api)
        except Refusal as refusal:
            if refusal.code is Code.GONE and self._position:
                self._position = {}
                print_error(
                    "part of the output above was undone: printing the transcript from its start"
                )
                return await self.read(api)
            if is_last or not _is_too_early(refusal):
                raise
            return False

    async def _listen(self, api: Connection, news: asyncio.Event) -> None:
        from abeyance.http.events import follow

        def on_gap() -> None:
            if not self._as_json:
                print_error("the event stream was interrupted; reconnecting")

        on_delta = self._speak if can_draw() and not self._as_json else None
        stream = follow(api, self._path, None, on_gap=on_gap, on_delta=on_delta)
        async with aclosing(stream) as events:
            async for event in events:
                self._said.end(event)
                if event["type"] in _NEWS:
                    news.set()

    def _speak(self, delta: Mapping[str, Any]) -> None:
        """Draw what the model says below the items, until the next one is printed."""
        from rich.console import Console
        from rich.live import Live

        if self._agent is not None and delta["address"].rpartition(";")[0] != self._agent:
            return
        self._said.hear(delta)
        if self._live is None:
            console = Console(highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(render(self._said.lines()), refresh=True)

    def _end_speech(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, item: dict[str, Any]) -> None:
        self._end_speech()
        if self._as_json:
            typer.echo(json.dumps(item))
            return

        show(transcript_lines(item))


async def _wait_for_news(news: asyncio.Event, listening: asyncio.Task[None]) -> bool:
    """Wait for a relevant event. Return True if the stream has ended; raise its error."""
    waiting = asyncio.create_task(news.wait())
    try:
        await asyncio.wait({waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    news.clear()
    if listening.done():
        listening.result()
    return listening.done()


def _is_too_early(refusal: Refusal) -> bool:
    """Return True if no agent of the run has a transcript yet."""
    return refusal.code is Code.UNKNOWN_NODE and refusal.details.get("addresses") == []
