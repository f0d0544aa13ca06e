"""A model provider on this machine, with the part of OpenAI's chat API that a streamed text needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from pydantic_ai.models.openai import OpenAIChatModel


@dataclass(kw_only=True)
class ModelServer:
    """A server that streams `pieces`. If it `holds`, it then sends nothing until the client goes away.
    With another `status` than 200 it responds with `body`.
    """

    pieces: Sequence[Mapping[str, Any]] = ({"content": "Hello"}, {"content": " there"})
    holds: bool = False
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    spoken: asyncio.Event = field(default_factory=asyncio.Event)
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0] or 0)
            self.asked.append(json.loads(await reader.readexactly(length) or b"{}"))
            await self._respond(writer)
            if self.holds:
                self.spoken.set()
                await reader.read()
                self.abandoned.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.abandoned.set()
        finally:
            writer.close()

    async def _respond(self, writer: asyncio.StreamWriter) -> None:
        is_stream = self.status == 200
        kind = "text/event-stream" if is_stream else "application/json"
        headers = {"content-type": kind, "connection": "close", **self.headers}
        lines = [f"HTTP/1.1 {self.status} Status", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if is_stream:
            for piece in self.pieces:
                writer.write(_event(piece, None))
            if not self.holds:
                writer.write(_event({}, "stop") + b"data: [DONE]\n\n")
        else:
            writer.write(json.dumps(self.body).encode())
        await writer.drain()


def _event(delta: Mapping[str, Any], finish: str | None) -> bytes:
    chunk = {
        "id": "chat-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


@asynccontextmanager
async def serving(server: ModelServer) -> AsyncIterator[ModelServer]:
    """Serve on a free port as long as the context lasts."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listening.close()


def chat_model(url: str) -> OpenAIChatModel:
    """Return a model of the server at this address, whose client makes no retries.

    The client gets its HTTP client from here. Otherwise it would close its connections when it is garbage
    collected, maybe in the event loop of another test, which may end too early.
    """
    # These imports take a second in each process that collects such a test, so they come late.
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = AsyncOpenAI(
        base_url=url, api_key="made-up", max_retries=0, http_client=httpx2.AsyncClient()
    )
    return OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))
