"""A TCP proxy in front of a server, which can slow connections down or drop them."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_CHUNK = 65_536


class Proxy:
    """Forwards data after `delay` seconds; `drop` ends all its connections."""

    def __init__(self, port: int, to: int) -> None:
        self.delay = 0.0
        self._port = port
        self._to = to
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def drop(self) -> None:
        """End all connections, as a failing network does."""
        for connection in self._connections:
            connection.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._connected(reader, writer)
        except (OSError, asyncio.CancelledError):
            # The caller sees a lost connection.
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            ways = [
                asyncio.ensure_future(self._pass_on(reader, to_writer)),
                asyncio.ensure_future(self._pass_on(to_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            to_writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            if self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
