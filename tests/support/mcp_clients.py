"""Clients of the MCP server with the official library: with tasks, with rounds, or as in 2025."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeAlias, cast

import httpx2
import mcp_types as protocol
from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from pydantic import ConfigDict, TypeAdapter
from stack import Api

_ANYTHING: Final = TypeAdapter(dict[str, Any])
TASKS: Final = "io.modelcontextprotocol/tasks"

Show: TypeAlias = Callable[[protocol.ElicitRequestParams], protocol.ElicitResult]
"""The user's reaction to a question that the client shows."""


class Task(protocol.Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TaskRequest(protocol.Request[dict[str, Any], str]):
    """A request about a task, with the task's id in a header too."""

    name_param = "taskId"


async def _no_answer(task: Task, _context: ClaimContext) -> protocol.CallToolResult:
    raise AssertionError(f"the task {task.task_id} is followed by the test")


class News(protocol.NotificationParams):
    """The params of a notification about a task."""

    model_config = ConfigDict(extra="allow")


class TasksExtension(ClientExtension):
    identifier = TASKS

    def __init__(self, told: list[dict[str, Any]]) -> None:
        self._told = told

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=_no_answer)]

    def notifications(self) -> list[NotificationBinding[Any]]:
        return [
            NotificationBinding(method="notifications/tasks", params_type=News, handler=self._tell)
        ]

    async def _tell(self, news: News) -> None:
        self._told.append(dict(news.model_extra or {}))


class ListenRequest(protocol.Request[dict[str, Any], str]):
    """A request for notifications about tasks."""


class Caller:
    """A connected client. `told` has the notifications about its tasks, and `acknowledged` the tasks to
    which the server has subscribed the client.
    """

    def __init__(
        self, client: Client, told: list[dict[str, Any]], acknowledged: list[list[str]]
    ) -> None:
        self.client = client
        self.told = told
        self.acknowledged = acknowledged

    async def listen(self, *task_ids: str) -> None:
        """Listen to notifications about tasks until the server ends the subscription."""
        params = {"notifications": {"taskIds": [*task_ids]}}
        request = ListenRequest(method="subscriptions/listen", params=params)
        await self.client.session.send_request(request, cast("Any", _ANYTHING))

    async def told_of(self, count: int) -> None:
        """Wait until `count` notifications have come."""
        async with asyncio.timeout(30):
            while len(self.told) < count:
                await asyncio.sleep(0.02)

    async def call(self, name: str, /, **arguments: Any) -> protocol.CallToolResult:
        """Call a tool, and show its questions to the user."""
        return await self.client.call_tool(name, arguments)

    async def once(self, name: str, /, meta: Any = None, **arguments: Any) -> Any:
        """Call a tool once, and return its first result, even a question or a task."""
        return await self.client.session.call_tool(
            name, arguments, meta=meta, allow_input_required=True, allow_claimed=True
        )

    async def again(
        self,
        first: protocol.InputRequiredResult,
        name: str,
        answers: Mapping[str, Any],
        **arguments: Any,
    ) -> Any:
        """Repeat a call with answers by their keys."""
        return await self.client.session.call_tool(
            name,
            arguments,
            input_responses={**answers},
            request_state=first.request_state,
            allow_input_required=True,
        )

    async def asked(self, name: str, /, **arguments: Any) -> protocol.InputRequiredResult:
        """Call a tool, repeat the call until there is a question for the user, and return it."""
        result = await self.once(name, **arguments)
        while result.input_requests is None:
            result = await self.again(result, name, {}, **arguments)
        return cast("protocol.InputRequiredResult", result)

    async def tasks(self, method: str, task_id: str, **params: Any) -> dict[str, Any]:
        """Send a request about a task."""
        request = TaskRequest(method=method, params={"taskId": task_id, **params})
        # `send_request` works with any adapter, but its type only allows adapters of models.
        found: Any = await self.client.session.send_request(request, cast("Any", _ANYTHING))
        return dict(found)

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Wait until the task has one of these statuses, and return it."""
        async with asyncio.timeout(60):
            while (task := await self.tasks("tasks/get", task_id))["status"] not in statuses:
                await asyncio.sleep(0.05)
        return task


@asynccontextmanager
async def connected(
    api: Api,
    how: Literal["tasks", "rounds", "2025"],
    show: Show | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Caller]:
    """Connect a client to an API. Without `show` the client cannot ask its user."""

    async def elicit(context: Any, params: protocol.ElicitRequestParams) -> protocol.ElicitResult:
        assert show is not None
        return show(params)

    told: list[dict[str, Any]] = []
    acknowledged: list[list[str]] = []

    async def take(message: Any) -> None:
        if isinstance(message, protocol.SubscriptionsAcknowledgedNotification):
            acknowledged.append((message.params.notifications.model_extra or {})["taskIds"])

    http = httpx2.AsyncClient(headers=dict(headers or {}), timeout=60)
    async with (
        http,
        Client(
            streamable_http_client(f"{api.url}/mcp", http_client=http),
            mode="legacy" if how == "2025" else "auto",
            elicitation_callback=None if show is None else elicit,
            message_handler=take,
            extensions=[TasksExtension(told)] if how == "tasks" else None,
        ) as client,
    ):
        yield Caller(client, told, acknowledged)


def yes(**content: Any) -> protocol.ElicitResult:
    """Return the result of a form that the user has filled in."""
    return protocol.ElicitResult(action="accept", content=content or None)


def text_of(result: protocol.CallToolResult) -> str:
    """Return the text of a result, as a model reads it."""
    return "\n".join(each.text for each in result.content if isinstance(each, protocol.TextContent))
