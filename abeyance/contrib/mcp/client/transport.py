"""Transports to a server, by stdio or HTTP."""

from __future__ import annotations

import contextvars
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from abeyance.contrib.mcp.client.errors import McpUnusable
from abeyance.duration import seconds

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

    from abeyance.contrib.mcp.client.server import McpServer


_MAX_EVENT_BYTES: Final = 32_000_000
"""A result above `max_result` must be received before it can be rejected."""
_STDERR_FD: Final = 2


@asynccontextmanager
async def transport(
    server: McpServer, *, on_end: Callable[[], None], on_status: Callable[[int], None]
) -> AsyncIterator[TransportStreams]:
    """Open the streams to a server, for the protocol library.

    `on_end` is called when the server closes its side, `on_status` with the status of each response.
    """
    streams = _stdio(server) if server.url is None else _http(server, server.url, on_status)
    async with streams as (read, write):
        yield _ReadStreamWithEnd(read, on_end), write


@asynccontextmanager
async def _stdio(server: McpServer) -> AsyncIterator[TransportStreams]:
    command = list(server.command or ())
    parameters = StdioServerParameters(
        command=command[0],
        args=command[1:],
        env={**server.env, **{name: _env_variable(server, name) for name in server.env_from}},
        cwd=None if server.cwd is None else os.fspath(server.cwd),
    )
    with _standard_error() as errors:
        async with stdio_client(parameters, errors) as streams:
            yield streams


@asynccontextmanager
async def _http(
    server: McpServer, url: str, on_status: Callable[[int], None]
) -> AsyncIterator[TransportStreams]:
    headers = {
        **server.headers,
        **{header: _env_variable(server, name) for header, name in server.headers_from.items()},
    }
    if server.token_from is not None:
        headers["Authorization"] = f"Bearer {_env_variable(server, server.token_from)}"

    async def report_status(response: httpx2.Response) -> None:
        if response.request.method == "POST":
            on_status(response.status_code)

    # No read timeout: each call has its own, which excludes the time that people take.
    timeout = httpx2.Timeout(seconds(server.connect_timeout), read=None)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [report_status]}
        ) as http,
        streamable_http_client(
            url, http_client=http, max_sse_event_size=_MAX_EVENT_BYTES
        ) as streams,
    ):
        yield streams


@contextmanager
def _standard_error() -> Iterator[TextIO]:
    # The worker's own file descriptor, even if `sys.stderr` is replaced.
    with open(os.dup(_STDERR_FD), "w", encoding="utf-8") as errors:  # noqa: PTH123 - it has no path
        yield errors


class _ReadStreamWithEnd:
    """A read stream that calls `on_end` at its end."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], on_end: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._on_end = on_end

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
            self._on_end()
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


def _env_variable(server: McpServer, name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise McpUnusable(
            f"{server.title} needs the environment variable {name!r}: set it where the worker runs"
        )
    return value
