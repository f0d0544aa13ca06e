"""The way to a server: a process that is started, or requests over HTTP, as it is declared."""

from __future__ import annotations

import contextvars
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from abeyance.core.json import Json, size
from abeyance.duration import seconds
from abeyance.mcp.errors import McpToolError, McpUnusable
from abeyance.mcp.server import McpResult, McpServer

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

    from abeyance.mcp.server import McpServer
if TYPE_CHECKING:
    import mcp_types as types


_LARGEST_EVENT: Final = 32_000_000
"""In bytes. What is too large for a result has to come in before that can be said."""
_STDERR: Final = 2


class Transport:
    """The way to a server, as the protocol's library wants it.

    `ended` is called when the server closes its side, `answered` with the status of each response.
    """

    def __init__(
        self, server: McpServer, *, ended: Callable[[], None], answered: Callable[[int], None]
    ) -> None:
        self._ended = ended
        self._way: AbstractAsyncContextManager[TransportStreams] = (
            _process(server) if server.url is None else _requests(server, server.url, answered)
        )

    async def __aenter__(self) -> TransportStreams:
        read, write = await self._way.__aenter__()
        return _Watched(read, self._ended), write

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._way.__aexit__(kind, error, trace)


@asynccontextmanager
async def _process(server: McpServer) -> AsyncIterator[TransportStreams]:
    command = list(server.command or ())
    parameters = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**server.env, **{name: _variable(server, name) for name in server.env_from}},
        cwd=None if server.cwd is None else os.fspath(server.cwd),
    )
    with _standard_error() as errors:
        async with stdio_client(parameters, errors) as streams:
            yield streams


@asynccontextmanager
async def _requests(
    server: McpServer, url: str, answered: Callable[[int], None]
) -> AsyncIterator[TransportStreams]:
    headers = {
        **server.headers,
        **{header: _variable(server, name) for header, name in server.headers_from.items()},
    }
    if server.token_from is not None:
        headers["Authorization"] = f"Bearer {_variable(server, server.token_from)}"

    async def seen(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            answered(response.status_code)

    # No bound on reading: each call has one of its own, which spares the time in which people are asked.
    timeout = httpx2.Timeout(seconds(server.connect_timeout), read=None)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [seen]}
        ) as http,
        streamable_http_client(url, http_client=http, max_sse_event_size=_LARGEST_EVENT) as streams,
    ):
        yield streams


@contextmanager
def _standard_error() -> Iterator[TextIO]:
    # Where the worker's own errors go, whatever Python's `sys.stderr` is at the moment.
    with open(os.dup(_STDERR), "w", encoding="utf-8") as errors:  # noqa: PTH123 - it has no path
        yield errors


class _Watched:
    """A stream of what the server sends, which tells when it ends."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], ended: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._ended = ended

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _variable(server: McpServer, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        message = f"{server.title} needs the environment variable {name!r}, which is not set here"
        raise McpUnusable(message)
    return value


_UNSHOWN: Final = ("_meta", "annotations")


def result_of(result: types.CallToolResult, server: McpServer, tool: str) -> McpResult:
    """The result as JSON. Binary data is left out, with a note in its place, where the result would be
    too large with it. Raises McpToolError if it is too large without.
    """
    items = [_plain(each) for each in result.content]
    structured = result.structured_content
    if not items and structured is not None:
        items = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    if size(items) > server.max_result:
        items = [_without_data(each) for each in items]
    if structured is not None and size(structured) > server.max_result:
        structured = None
    bytes_ = size(items)
    if bytes_ > server.max_result:
        message = (
            f"the tool {tool!r} of {server.title} gave {bytes_} bytes, and may give "
            f"{server.max_result}: ask it for less"
        )
        raise McpToolError("result_too_large", message)
    return McpResult(content=items, structured=structured, is_error=result.is_error)


def _plain(block: types.ContentBlock) -> dict[str, Json]:
    item = block.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {key: value for key, value in item.items() if key not in _UNSHOWN}


def _without_data(item: dict[str, Json]) -> dict[str, Json]:
    for holder, key in ((item, "data"), (item.get("resource"), "blob")):
        if isinstance(holder, dict) and key in holder:
            left = {name: value for name, value in holder.items() if name != key}
            left["left_out"] = f"{len(holder[key])} characters of base64: too large for a result"
            return left if holder is item else {**item, "resource": left}
    return item
