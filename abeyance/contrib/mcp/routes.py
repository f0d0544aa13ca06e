"""MCP at `/mcp`: programs and chat clients call graphs as tools. Needs the extra `mcp`.

Each request is complete, so any process may serve it: a client of 2026 sends its abilities with each of
them, and a client of 2025 gets no session. The state that a client keeps of a call is sealed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import mcp_types as protocol
from fastapi import APIRouter, FastAPI, Request, Response
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import (
    InvalidRequestState,
    RequestStateBoundary,
    RequestStateSecurity,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.types import Receive, Scope, Send

import abeyance
from abeyance.api.auth import READ, Credentials
from abeyance.api.dependencies import CONNECTED, KNOWN_PARAMETERS, Backend
from abeyance.api.problems import code_of
from abeyance.api.protocols import Serving
from abeyance.api.sessions import Sessions
from abeyance.authoring.graph import Graph
from abeyance.contrib.mcp import forms
from abeyance.contrib.mcp.calls import Caller, Outcome
from abeyance.contrib.mcp.tools import ANSWER, OWN, PENDING, tools_of
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal, SettingsError, Unavailable
from abeyance.metrics import Operation

T = TypeVar("T")

PATH: Final = "/mcp"

_NAME: Final = "abeyance"
_PURPOSE: Final = "mcp/request-state"
STATE_SECONDS: Final = 30 * 86_400.0
"""How long a client may take to repeat a call with answers. Its rights are then checked anew."""
_SHOWN_CHARS: Final = 100
_MAX_FOLLOWED: Final = 50
_CHECK_SECONDS: Final = 15.0
"""How soon a stream ends after its token was revoked."""
_INSTRUCTIONS: Final = (
    "Each tool starts a durable run, which may ask people before it goes on. If a call says that its run "
    "waits for people, tell your user what is asked and where to answer it, and call `pending` with the "
    "run_id later. Call `answer` only with what a person has told you."
)

_logger = logging.getLogger("abeyance.api")

Context: TypeAlias = ServerRequestContext[Any, Request]

router = APIRouter(tags=["user interfaces"], dependencies=[READ, KNOWN_PARAMETERS, CONNECTED])


class TaskParams(protocol.RequestParams):
    """The parameters of a request about a task."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers to questions of a task, by the keys of its `inputRequests`."""

    input_responses: dict[str, Any]


class TaskNotification(protocol.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """A task has changed."""

    method: Literal["notifications/tasks"] = "notifications/tasks"


class Endpoint:
    """The MCP server of one application."""

    def __init__(self, backend: Backend, graphs: Mapping[str, Graph]) -> None:
        self._backend = backend
        self._graphs = graphs
        self._tools = tools_of(graphs)
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve requests while the context is open."""
        manager = StreamableHTTPSessionManager(
            self._server(),
            stateless=True,
            # The guard has limited the body, and checked host and origin.
            max_request_body_size=self._backend.settings.max_body_size,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    @property
    def manager(self) -> StreamableHTTPSessionManager:
        """The manager that serves requests. Raises Unavailable before the start and after the stop."""
        if self._manager is None:
            raise Unavailable("the MCP server of this process does not run: retry in a moment")
        return self._manager

    def _server(self) -> Server[Any]:
        server: Server[Any] = Server(
            _NAME,
            version=abeyance.__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
        )
        server.add_request_handler(
            "subscriptions/listen", protocol.SubscriptionsListenRequestParams, self._listen
        )
        server.extensions[forms.TASKS] = {}
        server.add_request_handler("tools/call", protocol.CallToolRequestParams, self._call_tool)
        server.add_request_handler("tasks/get", TaskParams, self._get_task)
        server.add_request_handler("tasks/update", UpdateParams, self._update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel_task)
        security = RequestStateSecurity(
            codec=_Codec(self._backend.sessions),
            ttl=STATE_SECONDS,
            bind_principal=lambda ctx: _credentials(ctx).principal.subject,
        )
        # The spans of the library are left out, because they have the texts of errors.
        server.middleware[:] = [
            without_details,
            RequestStateBoundary(security, default_audience=_NAME),
        ]
        return server

    async def _list_tools(
        self, _ctx: Context, _params: protocol.PaginatedRequestParams | None
    ) -> protocol.ListToolsResult:
        return protocol.ListToolsResult(tools=self._tools)

    async def _call_tool(self, ctx: Context, params: protocol.CallToolRequestParams) -> Outcome:
        if params.name not in self._graphs and params.name not in OWN:
            raise MCPError(
                protocol.INVALID_PARAMS, f"Unknown tool: {truncate(params.name, _SHOWN_CHARS)!r}"
            )
        is_answer = params.name == ANSWER or params.request_state is not None
        if params.name != PENDING:
            _count(ctx, "respond" if is_answer else "start")
        try:
            return await self._caller(ctx).call(self._graphs, params)
        except Refusal as refusal:
            return forms.failed(_coded(ctx, refusal.code), refusal.message, **refusal.details)
        except (Unavailable, SettingsError) as error:
            return forms.failed(_coded(ctx, code_of(error)), str(error))

    async def _get_task(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        return await _as_protocol_errors(ctx, self._task_caller(ctx).task(params.task_id))

    async def _update_task(self, ctx: Context, params: UpdateParams) -> None:
        _count(ctx, "respond")
        await _as_protocol_errors(
            ctx, self._task_caller(ctx).update(params.task_id, params.input_responses)
        )

    async def _cancel_task(self, ctx: Context, params: TaskParams) -> None:
        _count(ctx, "cancel")
        await _as_protocol_errors(ctx, self._task_caller(ctx).cancel(params.task_id))

    async def _listen(
        self, ctx: Context, params: protocol.SubscriptionsListenRequestParams
    ) -> protocol.SubscriptionsListenResult:
        """Tell the client of its tasks whenever they change, until all have ended."""
        with ExitStack() as place:
            await _as_protocol_errors(ctx, self._hold(place, ctx))
            return await self._tell_of_tasks(ctx, params)

    async def _hold(self, place: ExitStack, ctx: Context) -> None:
        place.enter_context(self._backend.streams.one_of(_credentials(ctx).principal.subject))

    async def _tell_of_tasks(
        self, ctx: Context, params: protocol.SubscriptionsListenRequestParams
    ) -> protocol.SubscriptionsListenResult:
        asked = (params.notifications.model_extra or {}).get("taskIds")
        meta = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
        followed: dict[str, AsyncGenerator[dict[str, Any], None]] = {}
        for task_id in asked[:_MAX_FOLLOWED] if isinstance(asked, list) else ():
            caller = self._task_caller(ctx)
            if isinstance(task_id, str) and await _as_protocol_errors(ctx, caller.owns(task_id)):
                followed[task_id] = caller.follow(task_id)
        filter_ = protocol.SubscriptionFilter.model_validate({"taskIds": [*followed]})
        await ctx.session.send_notification(
            protocol.SubscriptionsAcknowledgedNotification(
                params=protocol.SubscriptionsAcknowledgedNotificationParams(
                    notifications=filter_, _meta=meta
                )
            ),
            related_request_id=ctx.request_id,
        )
        telling = asyncio.create_task(_tell_all(ctx, followed.values(), meta))
        stop = asyncio.create_task(self._backend.stopping.wait())
        try:
            while not (telling.done() or stop.done() or self._is_over(_credentials(ctx))):
                await asyncio.wait(
                    {telling, stop},
                    timeout=_CHECK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if telling.done():
                telling.result()
        finally:
            telling.cancel()
            stop.cancel()
        return protocol.SubscriptionsListenResult(_meta=meta)

    def _is_over(self, credentials: Credentials) -> bool:
        """Return whether the caller's token has expired, or was revoked."""
        until = credentials.expires_at
        return (until is not None and time.time() >= until) or self._backend.tokens.is_revoked(
            credentials
        )

    def _task_caller(self, ctx: Context) -> Caller:
        """Return the caller of a request about tasks. Raises MCPError for a client without tasks."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(protocol.METHOD_NOT_FOUND, "Method not found", ctx.method)
        if not _abilities(ctx).tasks:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"The client did not declare the extension {forms.TASKS}.",
                {"requiredCapabilities": {"extensions": {forms.TASKS: {}}}},
            )
        return self._caller(ctx)

    def _caller(self, ctx: Context) -> Caller:
        base = self._backend.settings.public_url or str(_request(ctx).base_url)
        return Caller(self._backend, _credentials(ctx), _abilities(ctx), base)


class _Codec:
    """Seals with the keys that all processes share."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def seal(self, payload: bytes) -> str:
        return self._sessions.seal(_PURPOSE, payload)

    def unseal(self, token: str) -> bytes:
        payload = self._sessions.open(_PURPOSE, token)
        if payload is None:
            raise InvalidRequestState("not sealed by this service")
        return payload


def _request(ctx: Context) -> Request:
    if ctx.request is None:
        raise TypeError("a request of MCP without a request of HTTP")
    return ctx.request


def _credentials(ctx: Context) -> Credentials:
    credentials: Credentials = _request(ctx).state.credentials
    return credentials


def _abilities(ctx: Context) -> forms.Abilities:
    return forms.Abilities.of(ctx.protocol_version, ctx.session.client_capabilities)


async def without_details(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Hide the text of an unexpected error: the library would send it to a client of 2025."""
    try:
        return await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception:
        _logger.exception("code=internal_error | %s by MCP", ctx.method)
        raise MCPError(protocol.INTERNAL_ERROR, "An unexpected error occurred.") from None


def _count(ctx: Context, operation: Operation) -> None:
    """Have the metrics count a request as an operation."""
    _request(ctx).state.operation = operation


def _coded(ctx: Context, code: Code) -> Code:
    """Have the metrics count a request as one that was refused, and return the code."""
    _request(ctx).state.code = code
    return code


async def _as_protocol_errors(ctx: Context, work: Awaitable[T]) -> T:
    """Await an operation on a task, and raise its refusals as errors of the protocol."""
    try:
        return await work
    except Refusal as refusal:
        data = {**refusal.details, "code": _coded(ctx, refusal.code)}
        raise MCPError(protocol.INVALID_PARAMS, refusal.message, data) from refusal
    except (Unavailable, SettingsError) as error:
        data = {"code": _coded(ctx, code_of(error))}
        raise MCPError(protocol.INTERNAL_ERROR, str(error), data) from error


async def _tell_all(
    ctx: Context, followed: Iterable[AsyncGenerator[dict[str, Any], None]], meta: dict[str, Any]
) -> None:
    async with asyncio.TaskGroup() as group:
        for tasks in followed:
            group.create_task(_tell(ctx, tasks, meta))


async def _tell(
    ctx: Context, tasks: AsyncGenerator[dict[str, Any], None], meta: dict[str, Any]
) -> None:
    """Tell a client of one task, until it has ended or cannot be followed any more."""
    async with aclosing(tasks):
        with suppress(Refusal, Unavailable, SettingsError):
            async for task in tasks:
                await ctx.session.send_notification(
                    # The library does not know notifications of extensions, and only serializes them.
                    cast("Any", TaskNotification(params={**task, "_meta": meta})),
                    related_request_id=ctx.request_id,
                )


class _Exchange(Response):
    """The response that the protocol's library writes."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        super().__init__()
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


# The protocol has its own description, `tools/list`.
@router.post(PATH, include_in_schema=False)
async def call_mcp(request: Request) -> Response:
    """Serve one request of MCP."""
    endpoint: Endpoint = request.app.state.mcp
    return _Exchange(endpoint.manager)


def install(app: FastAPI, graphs: Mapping[str, Graph]) -> Serving:
    """Serve these graphs as tools, from `app.state.mcp`, while the returned context is open.

    Raises SettingsError for a graph with the name of a tool of our own.
    """
    if taken := sorted(graphs.keys() & OWN.keys()):
        raise SettingsError(
            f"the graph {taken[0]!r} cannot be a tool at {PATH}, which has one of this name: rename the "
            "graph, or do not publish it"
        )
    endpoint = app.state.mcp = Endpoint(app.state.backend, graphs)
    app.include_router(router)
    return endpoint.serving
