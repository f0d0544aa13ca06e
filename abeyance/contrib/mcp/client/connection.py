"""Connections to servers, and the pool of a process's connections to one server, with its list of tools.

The protocol library requires that the task that opened a connection also closes it. So each connection
has a task of its own, which outlives the calls. Calls on it are serial, because an elicitation of the
server does not name its call. It is reused, and closed after an idle timeout.

There is one pool for each server declaration and event loop: graphs that name the same server share it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import mcp_types as types
from mcp import Client, ClientSession, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from abeyance.agents.tool import close_with_worker
from abeyance.contrib.mcp.client.errors import McpDown, McpError, McpUnusable, of_status
from abeyance.contrib.mcp.client.transport import transport
from abeyance.duration import seconds

if TYPE_CHECKING:
    from abeyance.contrib.mcp.client.server import McpServer

Inbox: TypeAlias = (
    "asyncio.Queue[tuple[types.ElicitRequestParams, asyncio.Future[types.ElicitResult]]]"
)

_CLOSE_TIMEOUT: Final = 10.0
_MAX_PAGES: Final = 100
_LISTED_FOR: Final = 60.0
"""Seconds until tools are listed again."""
_DROP_TIMEOUT: Final = 2.0
"""Seconds for a server to drop an abandoned call, so that its connection can be reused."""
_log = logging.getLogger(__name__)


class Connection:
    """A connection, from `open` to `close`. `inbox` receives the elicitations of the current call."""

    def __init__(self, server: McpServer, *, handshake: bool) -> None:
        self.server = server
        self.handshake = handshake
        """Speak a protocol of 2025, even if the server supports a newer one."""
        self.inbox: Inbox | None = None
        self.abandoned = False
        """A call was abandoned: messages of the server may still belong to it."""
        self.status: int | None = None
        """HTTP status of the last response."""
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._open_questions: set[asyncio.Future[types.ElicitResult]] = set()
        # An empty context: the connection must not inherit the first caller's span.
        self._task = asyncio.create_task(
            self._run(), name=f"mcp {server.title}", context=contextvars.Context()
        )

    @property
    def session(self) -> ClientSession:
        return self._ready.result()

    @property
    def alive(self) -> bool:
        return not (self._closing.is_set() or self._task.done())

    @property
    def stateless(self) -> bool:
        """True for a protocol in which the server elicits by its response and keeps no state."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def open(self) -> None:
        """Wait until it is ready. Raises McpDown or McpUnusable after closing it."""
        limit = seconds(self.server.connect_timeout)
        try:
            async with asyncio.timeout(limit):
                # Shielded: the timeout of one caller must not settle the future.
                await asyncio.shield(self._ready)
        except TimeoutError as error:
            await self.close()
            message = f"{self.server.title} did not answer within {limit:g} s of connecting to it"
            raise McpDown(message) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close it, and wait until it is closed and a started server has ended."""
        self._closing.set()
        if not self._ready.done():
            # Still opening, so the task does not look at the event.
            self._task.cancel()
        _, pending = await asyncio.wait({self._task}, timeout=_CLOSE_TIMEOUT)
        if pending:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_TIMEOUT)

    async def wait_until_idle(self, timeout: float) -> bool:
        """Return True once the server has dropped the abandoned call and withdrawn its questions."""
        if self.stateless:
            # Its server sends no requests, so no late one can be mistaken for another call's.
            self.abandoned = False
        elif self._open_questions:
            _, pending = await asyncio.wait(set(self._open_questions), timeout=timeout)
            self.abandoned = bool(pending)
        return not self.abandoned

    async def list_tools(self) -> list[types.Tool]:
        """List the tools of the server. Raises McpDown, McpUnusable."""
        limit = seconds(self.server.connect_timeout)
        tools: list[types.Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(limit):
                for _ in range(_MAX_PAGES):
                    params = types.PaginatedRequestParams(cursor=cursor)
                    page = await self.session.list_tools(params=params if cursor else None)
                    tools.extend(page.tools)
                    cursor = page.next_cursor
                    if not cursor:
                        return tools
        except TimeoutError as error:
            message = f"{self.server.title} did not list its tools within {limit:g} s"
            raise McpDown(message) from error
        except (MCPError, ValidationError) as error:
            if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                return []
            raise self._fault(error) from error
        raise McpUnusable(f"{self.server.title} lists its tools on more than {_MAX_PAGES} pages")

    async def _run(self) -> None:
        try:
            async with Client(
                transport(self.server, on_end=self.mark_ended, on_status=self._on_status),
                mode="legacy" if self.handshake else "auto",
                elicitation_callback=self._on_elicitation,
                client_info=types.Implementation(name="abeyance", version="1"),
                cache=None,
            ) as client:
                self._ready.set_result(client.session)
                await self._closing.wait()
        except asyncio.CancelledError:
            if not self._ready.done():
                # The waiting caller is not cancelled, so it gets McpDown instead.
                self._fail(McpDown(f"{self.server.title} was closed before it was connected"))
            raise
        except Exception as error:  # noqa: BLE001 - any error is reported to the caller that opens or uses it
            self._fail(error)
        finally:
            self._closing.set()

    def _fail(self, error: Exception) -> None:
        fault = self._fault(error)
        if self._ready.done():
            _log.info("the connection to %s ended: %s", self.server.title, fault)
            return
        self._ready.set_exception(fault)
        # Retrieved here, because no caller may be waiting.
        self._ready.exception()

    def _fault(self, error: Exception) -> McpError:
        cause = _first_leaf(error)
        if isinstance(cause, McpError):
            return cause
        label = f"{self.server.title} ({_target(self.server)})"
        by_status = of_status(self.status, f"{label} refuses the connection")
        if by_status is not None:
            return by_status
        if isinstance(cause, MCPError) and cause.code == types.UNSUPPORTED_PROTOCOL_VERSION:
            return McpUnusable(
                f"{label} supports no protocol version that this worker supports: {cause}"
            )
        if isinstance(cause, ValidationError):
            return McpUnusable(f"{label} sent an invalid response: {cause}")
        if isinstance(cause, MCPError) and cause.code == types.CONNECTION_CLOSED:
            return McpDown(f"{label} closed the connection: see its standard error")
        if isinstance(cause, MCPError):
            return McpDown(f"{label} failed: {cause} (code {cause.code})")
        return McpDown(f"{label} cannot be reached: {type(cause).__name__}: {cause}")

    async def _on_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the library passes it
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        if self.inbox is None:
            message = "no call is in progress that this elicitation could belong to"
            return types.ErrorData(code=types.INVALID_REQUEST, message=message)
        answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()
        self._open_questions.add(answer)
        try:
            self.inbox.put_nowait((params, answer))
            return await answer
        finally:
            self._open_questions.discard(answer)

    def mark_ended(self) -> None:
        """Mark the connection as closed by the server."""
        self._closing.set()

    def _on_status(self, status: int) -> None:
        self.status = status


def _target(server: McpServer) -> str:
    # Without the query, which may hold a key.
    if server.url is not None:
        return urlsplit(server.url)._replace(query="", fragment="").geturl()
    return " ".join(server.command or ())[:200]


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_pools: dict[asyncio.AbstractEventLoop, dict[str, Pool]] = {}


def pool_of(server: McpServer) -> Pool:
    """Return the pool of a server in this event loop."""
    for loop in [each for each in _pools if each.is_closed()]:
        del _pools[loop]
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if server.key not in pools:
        pools[server.key] = Pool(server)
    return pools[server.key]


async def _close_pools() -> None:
    """Close every connection of this event loop. A call in progress gets McpDown."""
    pools = _pools.pop(asyncio.get_running_loop(), {})
    await asyncio.gather(*(pool.close() for pool in pools.values()))


close_with_worker(_close_pools)


class Pool:
    """The connections to one server. `lease` lends one to a call."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._slots = asyncio.Semaphore(server.connections)
        self._all: set[Connection] = set()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._tools: list[types.Tool] = []
        self._listed_at: float | None = None
        self._closed = False
        self.handshake_tools: set[str] = set()
        """Tools that elicit by requests to the client, which need a protocol of 2025."""

    @property
    def connections(self) -> int:
        """The number of connections, in use, idle or being closed."""
        return len(self._all)

    async def tools(self, wait: float) -> list[types.Tool]:
        """Return the tools of the server, which may have been listed a minute ago.

        `wait` is as in `lease`. Raises McpDown, McpUnusable.
        """
        is_alive = any(each.alive for each in self._all)
        # A busy connection may list only the next time: nobody waits for it.
        is_due = bool(self._idle) and self._is_old()
        if not self._tools or not is_alive or is_due:
            async with self.lease(wait) as connection:
                if self._is_old():
                    await self._list(connection)
        return self._tools

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
        connection = Connection(self._server, handshake=handshake)
        self._all.add(connection)
        try:
            await connection.open()
            # A connection must list the tools once, to check and route calls.
            await self._list(connection)
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

    def _is_old(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._listed_at is None or now - self._listed_at >= _LISTED_FOR

    async def _list(self, connection: Connection) -> None:
        self._tools = await connection.list_tools()
        self._listed_at = asyncio.get_running_loop().time()

    def _keep_idle(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle[connection] = loop.call_later(
            seconds(self._server.idle), self._on_idle_timeout, connection
        )

    def _on_idle_timeout(self, connection: Connection) -> None:
        if self._idle.pop(connection, None) is not None:
            self._start(self._discard(connection))

    async def _release(self, connection: Connection) -> None:
        # The slot is held until the end, because it limits processes and sockets.
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
