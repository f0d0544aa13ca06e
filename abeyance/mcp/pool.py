"""The connections of one process to a server, and the tools that it said it has.

A connection is used by one call at a time, kept for the next, and closed when nobody has used it for a
while. There is a pool for each way to a server and each event loop: graphs that name the same server
share it.
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

_LETTING_GO: Final = 2.0
"""Seconds in which a server has to drop a call that was given up, to be used again."""

_pools: dict[asyncio.AbstractEventLoop, dict[str, Pool]] = {}


def pool_of(server: McpServer) -> Pool:
    """The pool of connections that this server's declaration means, in this event loop."""
    for loop in [each for each in _pools if each.is_closed()]:
        del _pools[loop]
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if server.key not in pools:
        pools[server.key] = Pool(server)
    return pools[server.key]


async def close_pools() -> None:
    """Close every connection of this event loop. A call that is under way gets McpDown."""
    pools = _pools.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(pool.close() for pool in pools.values()))


class Pool:
    """The connections to one server. `lease` gives one to a call."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._places = asyncio.Semaphore(server.connections)
        self._all: set[Connection] = set()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._behind: set[asyncio.Task[None]] = set()
        self._tools: list[types.Tool] | None = None
        self._closed = False
        self.handshake_tools: set[str] = set()
        """Tools that ask with a request of their own, which a server sends only in a protocol of 2025."""

    @property
    def connections(self) -> int:
        """How many there are, in use, idle or being closed."""
        return len(self._all)

    async def tools(self, wait: float) -> list[types.Tool]:
        """What the server offers. It is asked if nobody would have heard that it changed.

        `wait` is that of `lease`. Raises McpDown, McpUnusable.
        """
        if self._tools is None or not any(each.alive for each in self._all):
            async with self.lease(wait) as connection:
                if self._tools is None:
                    self._tools = await connection.list_tools()
        return self._tools or []

    @asynccontextmanager
    async def lease(self, wait: float, *, handshake: bool = False) -> AsyncIterator[Connection]:
        """A connection for one call, opened if none is idle. Raises McpDown, McpUnusable.

        `wait` is how many seconds to wait for one while all that there may be are in use. With
        `handshake`, it speaks a protocol of 2025.
        """
        await self._place(wait)
        try:
            connection = await self._taken(handshake=handshake)
        except BaseException:
            self._places.release()
            raise
        try:
            yield connection
        finally:
            connection.inbox = None
            if not self._closed and connection.alive and not connection.given_up:
                self._rest(connection)
                self._places.release()
            else:
                self._start(self._put_away(connection))

    async def close(self) -> None:
        """Close all of them, and wait until they are closed."""
        self._closed = True
        for timer in self._idle.values():
            timer.cancel()
        self._idle.clear()
        await asyncio.gather(*(each.close() for each in self._all), *self._behind)
        self._all.clear()

    async def _place(self, wait: float) -> None:
        try:
            async with asyncio.timeout(wait):
                await self._places.acquire()
        except TimeoutError as error:
            message = (
                f"all {self._server.connections} connections to {self._server.title} have been in use "
                f"for {wait:g} s: raise connections= if it can take more calls at once"
            )
            raise McpDown(message) from error

    async def _taken(self, *, handshake: bool) -> Connection:
        while (idle := self._next_idle(handshake=handshake)) is not None:
            self._idle.pop(idle).cancel()
            if idle.alive and idle.handshake == handshake:
                return idle
            await self._closed_down(idle)
        connection = Connection(self._server, self._tools_changed, handshake=handshake)
        self._all.add(connection)
        try:
            await connection.open()
            # Each connection lists the tools once: it has to know them to check and route calls.
            self._tools = await connection.list_tools()
        except BaseException:
            await self._closed_down(connection)
            raise
        return connection

    def _next_idle(self, *, handshake: bool) -> Connection | None:
        # One that speaks the right protocol; failing that, one to close if there may be no more.
        for each in reversed(self._idle):
            if each.handshake == handshake:
                return each
        full = len(self._all) >= self._server.connections
        return next(iter(self._idle), None) if full else None

    def _tools_changed(self) -> None:
        self._tools = None

    def _rest(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(
            seconds(self._server.idle), self._expired, connection
        )

    def _expired(self, connection: Connection) -> None:
        if self._idle.pop(connection, None) is not None:
            self._start(self._closed_down(connection))

    async def _put_away(self, connection: Connection) -> None:
        # Its place stays taken until it is idle or closed: the bound is on processes and sockets.
        try:
            if connection.alive and not self._closed and await connection.let_go(_LETTING_GO):
                self._rest(connection)
            else:
                await self._closed_down(connection)
        finally:
            self._places.release()

    async def _closed_down(self, connection: Connection) -> None:
        await connection.close()
        self._all.discard(connection)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
