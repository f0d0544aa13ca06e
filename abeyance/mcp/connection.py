"""One connection to a server: a task that opens it, keeps it, and closes it.

The protocol's library wants a connection to be closed by the task that opened it, while those who use
it come and go. So each connection has a task of its own, which outlives the calls. Its calls come one
after another: a server that asks in the middle of one does not say which one it means.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import mcp_types as types
from mcp import Client, ClientSession, MCPError
from mcp.client.context import ClientRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from abeyance.duration import seconds
from abeyance.mcp.errors import McpDown, McpError, McpUnusable, of_status
from abeyance.mcp.transport import Transport

if TYPE_CHECKING:
    from abeyance.mcp.server import McpServer

Inbox: TypeAlias = (
    "asyncio.Queue[tuple[types.ElicitRequestParams, asyncio.Future[types.ElicitResult]]]"
)

_CLOSING: Final = 10.0
_MOST_PAGES: Final = 100
_log = logging.getLogger(__name__)


class Connection:
    """A connection, from `open` to `close`. `inbox` is where elicitations go while a call is made."""

    def __init__(
        self, server: McpServer, tools_changed: Callable[[], None], *, handshake: bool
    ) -> None:
        self.server = server
        self.handshake = handshake
        """Speak a protocol of 2025, whatever else the server knows."""
        self.inbox: Inbox | None = None
        self.given_up = False
        """A call was given up in it: what the server still says may be about that."""
        self.status: int | None = None
        """Of the last answer to a request over HTTP."""
        self._tools_changed = tools_changed
        self._leave = asyncio.Event()
        self._ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._open_questions: set[asyncio.Future[types.ElicitResult]] = set()
        # A context of its own: what the first caller carries, such as a span, is not the connection's.
        self._task = asyncio.create_task(
            self._keep(), name=f"mcp {server.title}", context=contextvars.Context()
        )

    @property
    def session(self) -> ClientSession:
        return self._ready.result()

    @property
    def alive(self) -> bool:
        return not (self._leave.is_set() or self._task.done())

    @property
    def stateless(self) -> bool:
        """Whether it speaks the protocol in which the server asks by answering, and keeps nothing."""
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def open(self) -> None:
        """Wait until it is ready. Raises McpDown or McpUnusable, and is closed then."""
        limit = seconds(self.server.connect_timeout)
        try:
            async with asyncio.timeout(limit):
                # Shielded: that nobody waits for it any longer does not make it ready or failed.
                await asyncio.shield(self._ready)
        except TimeoutError as error:
            await self.close()
            message = f"{self.server.title} did not answer within {limit:g} s of connecting to it"
            raise McpDown(message) from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close it, and wait until it is closed: a started server has then ended."""
        self._leave.set()
        if not self._ready.done():
            # Still opening: nothing looks at whether to leave.
            self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=_CLOSING)
        if late:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSING)

    async def let_go(self, timeout: float) -> bool:
        """Whether the server has dropped the call that was given up: it takes its questions back then."""
        if self.stateless:
            # It never asks by itself, so nothing that is left over can be taken for another call's.
            self.given_up = False
        elif self._open_questions:
            _, held = await asyncio.wait(set(self._open_questions), timeout=timeout)
            self.given_up = bool(held)
        return not self.given_up

    async def list_tools(self) -> list[types.Tool]:
        """Ask for the tools. Raises McpDown, McpUnusable."""
        limit = seconds(self.server.connect_timeout)
        found: list[types.Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(limit):
                for _ in range(_MOST_PAGES):
                    params = types.PaginatedRequestParams(cursor=cursor)
                    page = await self.session.list_tools(params=params if cursor else None)
                    found.extend(page.tools)
                    cursor = page.next_cursor
                    if not cursor:
                        return found
        except TimeoutError as error:
            message = f"{self.server.title} did not list its tools within {limit:g} s"
            raise McpDown(message) from error
        except (MCPError, ValidationError) as error:
            if isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND:
                return []
            raise self._fault(error) from error
        message = f"{self.server.title} lists its tools on more than {_MOST_PAGES} pages"
        raise McpUnusable(message)

    async def _keep(self) -> None:
        try:
            async with Client(
                Transport(self.server, ended=self.ended, answered=self._answered),
                mode="legacy" if self.handshake else "auto",
                elicitation_callback=self._elicited,
                message_handler=self._told,
                client_info=types.Implementation(name="abeyance", version="1"),
                cache=None,
            ) as client:
                self._ready.set_result(client.session)
                if self.stateless and _changes(client):
                    await self._listen(client)
                else:
                    await self._leave.wait()
        except asyncio.CancelledError:
            if not self._ready.done():
                # Who waits for it has not been cancelled, and must not look as if.
                self._failed(McpDown(f"{self.server.title} was closed before it was connected"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever ended it is told to who opens or uses it
            self._failed(error)
        finally:
            self._leave.set()

    async def _listen(self, client: Client) -> None:
        leave = asyncio.create_task(self._leave.wait())
        try:
            # A server that does not give the changes is asked again when it is connected anew.
            with suppress(MCPError, RuntimeError):
                async with client.listen(tools_list_changed=True) as changes:
                    # What changed before it was listened to was not told.
                    self._tools_changed()
                    while not leave.done():
                        change = asyncio.ensure_future(anext(changes, None))
                        await asyncio.wait({change, leave}, return_when="FIRST_COMPLETED")
                        if not change.done():
                            change.cancel()
                            await asyncio.wait({change})
                            break
                        if change.result() is None:
                            break
                        self._tools_changed()
            await leave
        finally:
            leave.cancel()

    def _failed(self, error: Exception) -> None:
        fault = self._fault(error)
        if self._ready.done():
            _log.info("the connection to %s ended: %s", self.server.title, fault)
            return
        self._ready.set_exception(fault)
        # Who waited for it may be gone.
        self._ready.exception()

    def _fault(self, error: Exception) -> McpError:
        inner = _first(error)
        if isinstance(inner, McpError):
            return inner
        told = f"{self.server.title} ({_where(self.server)})"
        by_status = of_status(self.status, f"{told} refuses the connection")
        if by_status is not None:
            return by_status
        if isinstance(inner, MCPError) and inner.code == types.UNSUPPORTED_PROTOCOL_VERSION:
            return McpUnusable(
                f"{told} speaks no version of the protocol that is spoken here: {inner}"
            )
        if isinstance(inner, ValidationError):
            return McpUnusable(f"{told} answered with what the protocol does not know: {inner}")
        if isinstance(inner, MCPError) and inner.code == types.CONNECTION_CLOSED:
            return McpDown(f"{told} ended the connection: what it wrote to its errors may say why")
        if isinstance(inner, MCPError):
            return McpDown(f"{told} does not do what it has to: {inner} (code {inner.code})")
        return McpDown(f"{told} cannot be reached: {type(inner).__name__}: {inner}")

    async def _elicited(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - so the library calls it
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        if self.inbox is None:
            message = "no call is under way to which this question could belong"
            return types.ErrorData(code=types.INVALID_REQUEST, message=message)
        answer: asyncio.Future[types.ElicitResult] = asyncio.get_running_loop().create_future()
        self._open_questions.add(answer)
        try:
            self.inbox.put_nowait((params, answer))
            return await answer
        finally:
            self._open_questions.discard(answer)

    async def _told(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._tools_changed()

    def ended(self) -> None:
        """The server has closed its side."""
        self._leave.set()

    def _answered(self, status: int) -> None:
        self.status = status


def _changes(client: Client) -> bool:
    offered = client.server_capabilities.tools
    return offered is not None and bool(offered.list_changed)


def _where(server: McpServer) -> str:
    # Without its query, which may hold a key.
    if server.url is not None:
        return urlsplit(server.url)._replace(query="", fragment="").geturl()
    return " ".join(server.command or ())[:200]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
