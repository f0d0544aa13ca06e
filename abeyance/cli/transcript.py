"""What agents have said, and the calls of their tools, as a person reads them in a terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from abeyance.cli.api_call import PANEL, RunId, run_path, with_api
from abeyance.cli.errors import ErrorText, print_error
from abeyance.cli.formatting import Line, call_text, short_time
from abeyance.errors import Code, Refusal, Unavailable

if TYPE_CHECKING:
    from abeyance.http import Connection


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


def transcript_lines(item: Mapping[str, Any]) -> list[Line]:
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


transcribing = typer.Typer()

_PAGE: Final = "500"
_PAUSE: Final = 0.25
"""In seconds: between two readings."""
_READ_AGAIN: Final = 2.0
"""The same where the last one was in vain."""
_NEWS: Final = frozenset({"model.turn", "tool.finished", "node.stopped"})
"""The events after which a transcript may be longer."""


@transcribing.command(cls=ErrorText, rich_help_panel=PANEL)
def transcript(
    run_id: RunId,
    *,
    address: Annotated[
        str | None,
        typer.Option(
            help="Of the agent at this address, or around it. Without it, the only one that there is.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="And what is said until the run has ended.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each item as one line of the API's own JSON.")
    ] = False,
) -> None:
    """Print what an agent was told, what it said, and the calls of its tools with their results."""
    reader = _Reader(run_path(run_id), address, as_json=as_json)
    with_api(reader.follow if follow else reader.read)


class _Reader:
    """Prints the items of a transcript, each of them once."""

    def __init__(self, path: str, address: str | None, *, as_json: bool) -> None:
        self._path = path
        self._as_json = as_json
        self._asked = {"limit": _PAGE, **({} if address is None else {"address": address})}
        self._place: dict[str, str] = {}

    async def read(self, api: Connection) -> bool:
        """Print what has been said since. Returns whether nothing more will be."""
        while True:
            path = f"{self._path}/transcript"
            page = await api.get(path, **self._asked, **self._place)
            for item in page["items"]:
                self._print(item)
            if page["next_cursor"] is None:
                return True
            self._place = {"cursor": page["next_cursor"]}
            if not page["items"]:
                return False

    async def follow(self, api: Connection) -> None:
        """Print what is said until the run has ended."""
        heard = asyncio.Event()
        # At its beginning, too, there may be something to read.
        heard.set()
        listening = asyncio.create_task(self._listen(api, heard))
        try:
            while True:
                is_last = await _until_heard(heard, listening)
                try:
                    if await self._read_on(api, is_last=is_last) or is_last:
                        return
                    await asyncio.sleep(_PAUSE)
                except Unavailable:
                    if is_last:
                        raise
                    await asyncio.sleep(_READ_AGAIN)
                    heard.set()
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _read_on(self, api: Connection, *, is_last: bool) -> bool:
        try:
            return await self.read(api)
        except Refusal as refusal:
            if refusal.code is Code.GONE:
                self._place = {}
                print_error("a part of what is printed above was undone; from the beginning:")
                return await self.read(api)
            if is_last or not _is_too_early(refusal):
                raise
            return False

    async def _listen(self, api: Connection, heard: asyncio.Event) -> None:
        from abeyance.http.events import follow

        def lost() -> None:
            if not self._as_json:
                print_error("the stream of events broke off; trying again")

        async with aclosing(follow(api, self._path, None, on_gap=lost)) as found:
            async for event in found:
                if event["type"] in _NEWS:
                    heard.set()

    def _print(self, item: dict[str, Any]) -> None:
        if self._as_json:
            typer.echo(json.dumps(item))
            return
        from abeyance.cli.formatting import show

        show(transcript_lines(item))


async def _until_heard(heard: asyncio.Event, listening: asyncio.Task[None]) -> bool:
    """Wait for news. Returns whether there will be no more. Raises what the listening ended with."""
    waiting = asyncio.create_task(heard.wait())
    try:
        await asyncio.wait({waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    heard.clear()
    if listening.done():
        listening.result()
    return listening.done()


def _is_too_early(refusal: Refusal) -> bool:
    """Whether no agent of the run has said anything yet."""
    return refusal.code is Code.UNKNOWN_NODE and refusal.details.get("addresses") == []
