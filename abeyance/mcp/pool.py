"""The pool of a process's connections to one server, and its list of tools.

A connection serves one call at a time, is reused, and is closed after an idle timeout. There is one pool
for each server declaration and event loop: graphs that name the same server share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from abeyance.duration import seconds
from abeyance.mcp.connection import Connection
from abeyance.mcp.errors import McpDown

if TYPE_CHECKING:
    import mcp_types as types

    from abeyance.mcp.server import McpServer

_DROP_TIMEOUT: Final = 2.0
"""Seconds for a server to drop an abandoned call, so that its connection can be reused."""

_pools: dict[asyncio.AbstractEventLoop, dict[str, Pool]] = {}


def pool_of(server: McpServer) -> Pool:
    """Return the pool of a server in this event loop."""
    for loop in [each for each in _pools if each.is_closed()]:
        del _pools[loop]
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if server.key not in pools:
        pools[server.key] = Pool(server)
    return pools[server.key]


async def close_pools() -> None:
    """Close every connection of this event loop. A call in progress gets McpDown."""
    pools = _pools.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(pool.close() for pool in pools.values()))


class Pool:
    """The connections to one server. `lease` lends one to a call."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._slots = asyncio.Semaphore(server.connections)
        self._all: set[Connection] = set()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._tools: list[types.Tool] | None = None
        self._closed = False
        self.handshake_tools: set[str] = set()
        """Tools that elicit by requests to the client, which need a protocol of 2025."""

    @property
    def connections(self) -> int:
        """The number of connections, in use, idle or being closed."""
        return len(self._all)

    async def tools(self, wait: float) -> list[types.Tool]:
        """Return the tools of the server, cached while a connection would report a change.

        `wait` is that of `lease`. Raises McpDown, McpUnusable.
        """
        if self._tools is None or not any(each.alive for each in self._all):
            async with self.lease(wait) as connection:
                if self._tools is None:
                    self._tools = await connection.list_tools()
        return self._tools or []

    @asynccontextmanager
    async def lease(self, wait: float, *, handshake: bool = False) -> AsyncIterator[Connection]:
        """Lend a connection to one call, opening one if none is idle. Raises McpDown, McpUnusable.

        `wait` is the time limit in seconds while all connections are in use. With `handshake`, the
        connection speaks a protocol of 2025.
        """
        await self._acquire_slot(wait)
        try:
            connection = await self._connection(handshake=handshake)
        except BaseException:
            self._slots.release()
            raise
        try:
            yield connection
        finally:
            connection.inbox = None
            if not self._closed and connection.alive and not connection.abandoned:
                self._keep_idle(connection)
                self._slots.release()
            else:
                self._start(self._release(connection))

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._closed = True
        for timer in self._idle.values():
            timer.cancel()
        self._idle.clear()
        await asyncio.gather(*(each.close() for each in self._all), *self._background)
        self._all.clear()

    async def _acquire_slot(self, wait: float) -> None:
        try:
            async with asyncio.timeout(wait):
                await self._slots.acquire()
        except TimeoutError as error:
            raise McpDown(
                f"all {self._server.connections} connections to {self._server.title} have been in use "
                f"for {wait:g} s: raise connections= if it can take more calls at once"
            ) from error

    async def _connection(self, *, handshake: bool) -> Connection:
        while (idle := self._next_idle(handshake=handshake)) is not None:
            self._idle.pop(idle).cancel()
            if idle.alive and idle.handshake == handshake:
                return idle
            await self._discard(idle)
        connection = Connection(self._server, self._tools_changed, handshake=handshake)
        self._all.add(connection)
        try:
            await connection.open()
            # A connection must list the tools once, to check and route calls.
            self._tools = await connection.list_tools()
        except BaseException:
            await self._discard(connection)
            raise
        return connection

    def _next_idle(self, *, handshake: bool) -> Connection | None:
        # One of the right protocol; else one to close, if the pool is full.
        for each in reversed(self._idle):
            if each.handshake == handshake:
                return each
        full = len(self._all) >= self._server.connections
        return next(iter(self._idle), None) if full else None

    def _tools_changed(self) -> None:
        self._tools = None

    def _keep_idle(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(
            seconds(self._server.idle), self._on_idle_timeout, connection
        )

    def _on_idle_timeout(self, connection: Connection) -> None:
        if self._idle.pop(connection, None) is not None:
            self._start(self._discard(connection))

    async def _release(self, connection: Connection) -> None:
        # The slot is held until then: the limit is on processes and sockets.
        try:
            if (
                connection.alive
                and not self._closed
                and await connection.wait_until_idle(_DROP_TIMEOUT)
            ):
                self._keep_idle(connection)
            else:
                await self._discard(connection)
        finally:
            self._slots.release()

    async def _discard(self, connection: Connection) -> None:
        await connection.close()
        self._all.discard(connection)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
