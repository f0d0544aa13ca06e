"""A server of the Model Context Protocol as a source of tools.

Nothing here is imported from the protocol's library before a server is used: a graph that names servers
stays light. Connections are shared by everything in one process that names the same server.

A tool may ask a person (an elicitation) before it is done. The call is then given up, and made again
when there is an answer. A server of the protocol of 2026 or later that answers `input_required` goes on
from where it stood, as long as it takes back the state that it gave us; every other server runs the tool
**again from its beginning**. So a tool that asks should ask before it acts, or act only once for one set
of arguments.

The newest protocol is spoken that both sides know. A tool written for a protocol of 2025 cannot ask in a
newer one: the first time it tries, its call fails, and is made again over a connection that speaks the
protocol of 2025, as are all later calls of this tool.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from abeyance.authoring.declarations import DeclarationErrors
from abeyance.core.json import Json, canonical
from abeyance.duration import Duration, seconds
from abeyance.mcp.elicitation import Ask, Record
from abeyance.mcp.errors import McpDown, McpError, McpToolError, McpUnusable
from abeyance.schemas.state_model import StateModel

__all__ = [
    "McpDown",
    "McpError",
    "McpResult",
    "McpServer",
    "McpTool",
    "McpToolError",
    "McpUnusable",
    "close_servers",
]

Approve: TypeAlias = bool | Callable[[str, Mapping[str, Any]], bool]

_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool that a server offers. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResult:
    """What a tool gave.

    `content` is a list of items, each a mapping with a `type` (`text`, `image`, `audio`, `resource_link`,
    `resource`) as the protocol writes them. `structured` is the same as one JSON value, where the tool
    gives one that is not too large. `is_error`: the tool says that it failed, and `content` says why.
    """

    content: Json
    structured: Json = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The items that are text, each on lines of its own."""
        return "\n".join(each["text"] for each in self.content if each["type"] == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools: a `command` that is started, or the `url` of one that runs.

    `name` is what people and models are told; without it, it is made of the command or the host.

    `env` are variables that a started server gets beside `PATH`, `HOME` and the like, `env_from` the
    names of those that it gets from the worker's own environment; `cwd` is where it runs. `headers` go
    with every request to a `url`; `headers_from` names, for a header, the environment variable of the
    worker that holds its value, and `token_from` the one that holds a bearer token. A graph holds no
    secret.

    `tools` are the only tools that are offered, by the server's names, and `exclude` those that are not;
    `prefix` is put before each name. `approve` is True if a person has to approve every call, or a
    predicate on the tool's name (as the model knows it) and its arguments. Who approves needs
    `requested_capability`, and so does who answers what the server asks in the middle of a call.

    `timeout` bounds the work of a call; the time in which a person is asked does not count.
    `connect_timeout` bounds finding the server. `retries` counts the attempts after the first at a call
    that has not reached the server; one that may have been done is not made again. `max_result` is in
    bytes. `connections` bounds how many calls one process makes at once (a started server is one process
    for each); one that nobody has used for `idle` is closed.

    Raises ValueError for what cannot be meant.
    """

    name: str | None = None
    command: Sequence[str] | None = None
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Sequence[str] = ()
    cwd: str | os.PathLike[str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_from: Mapping[str, str] = field(default_factory=dict)
    token_from: str | None = None
    tools: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    prefix: str = ""
    approve: Approve = False
    requested_capability: str | None = None
    timeout: Duration = 60.0
    connect_timeout: Duration = 30.0
    idle: Duration = 300.0
    retries: int = 3
    max_result: int = 100_000
    connections: int = 4

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            message = "an McpServer is given either by command=[...] or by url='https://...'"
            raise ValueError(message)
        if self.url is None:
            self._check_command()
        else:
            self._check_url(self.url)
        for what in ("timeout", "connect_timeout", "idle"):
            if not seconds(getattr(self, what)) > 0:
                message = f"{what}={getattr(self, what)!r} of {self.title} has to be above zero"
                raise ValueError(message)
        for what, least in (("retries", 0), ("max_result", 1), ("connections", 1)):
            if getattr(self, what) < least:
                message = (
                    f"{what}={getattr(self, what)!r} of {self.title} has to be at least {least}"
                )
                raise ValueError(message)
        intake = DeclarationErrors(StateModel(None))
        intake.capability(self.requested_capability, self.title)
        if intake.faults:
            raise ValueError(intake.faults[0])
        if isinstance(self.tools, str) or isinstance(self.exclude, str):
            message = f"tools= and exclude= of {self.title} are lists of names"
            raise ValueError(message)  # noqa: TRY004 - as all that is wrong with a declaration

    @property
    def title(self) -> str:
        """What people are told: its name, or what it is made of."""
        if self.name is not None:
            return self.name
        if self.url is not None:
            return urlsplit(self.url).netloc
        return Path(self.command[0]).name if self.command else "mcp"

    @property
    def key(self) -> str:
        """Equal for servers that may share connections. It holds no secret, only names of variables."""
        return canonical(
            [
                self.title,
                None if self.command is None else list(self.command),
                self.url,
                dict(self.env),
                sorted(self.env_from),
                None if self.cwd is None else os.fspath(self.cwd),
                dict(self.headers),
                dict(self.headers_from),
                self.token_from,
                seconds(self.connect_timeout),
                seconds(self.idle),
                self.connections,
            ]
        )

    def needs_approval(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a person has to approve this call of a tool, named as `list_tools` names it."""
        return self.approve(tool, arguments) if callable(self.approve) else self.approve

    async def list_tools(self) -> list[McpTool]:
        """The tools that it offers, in the server's order. They are asked for anew when the server says
        that they changed, or is connected anew.

        Raises McpDown, McpUnusable.
        """
        from abeyance.mcp.pool import pool_of

        return [
            McpTool(
                name=f"{self.prefix}{each.name}",
                description=each.description or each.title or "",
                parameters=each.input_schema,
            )
            for each in await pool_of(self).tools(seconds(self.timeout))
            if self._offers(each.name)
        ]

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, ask: Ask, saved: Json = None
    ) -> McpResult:
        """Call a tool, named as `list_tools` names it.

        `ask` is awaited, in the task of the caller, for each elicitation of the server. What it raises
        gives the call up (the server is told) and comes out of here as it is. If the server asks several
        things at once, and `ask` raises Suspended for more than one, one Suspended has all of them.

        `saved` is that of an elicitation for which the call was given up before. With it, and an `ask`
        that knows the answers by name, the call goes on where it stood if the server can do that, and
        is made again from its beginning if it cannot.

        Raises McpDown, McpUnusable, McpToolError.
        """
        from abeyance.mcp.pool import pool_of
        from abeyance.mcp.tool_call import called

        name = tool.removeprefix(self.prefix)
        pool = pool_of(self)
        if not tool.startswith(self.prefix) or not self._offers(name):
            raise self._unknown(tool)
        if all(each.name != name for each in await pool.tools(seconds(self.timeout))):
            raise self._unknown(tool)
        record = Record(self.title, name, saved)
        return await called(self, pool, name, arguments, record=record, ask=ask)

    def _offers(self, name: str) -> bool:
        return name not in self.exclude and (self.tools is None or name in self.tools)

    def _unknown(self, tool: str) -> McpToolError:
        return McpToolError("unknown_tool", f"{self.title} has no tool {tool!r}")

    def _check_command(self) -> None:
        command = self.command
        if isinstance(command, str) or not command or not all(isinstance(x, str) for x in command):
            message = f"command={command!r} is no list of texts, such as ['python', 'server.py']"
            raise ValueError(message)
        if self.headers or self.headers_from or self.token_from:
            message = (
                f"{self.title} is started by a command, and has no headers: use env= or env_from="
            )
            raise ValueError(message)

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            message = f"url={url!r} does not begin with https:// or http:// and a host"
            raise ValueError(message)
        if parts.username is not None or parts.password is not None:
            message = (
                f"the url of the server at {parts.hostname} holds a password: give the name of an "
                "environment variable, by token_from= or headers_from="
            )
            raise ValueError(message)
        if self.env or self.env_from or self.cwd is not None:
            message = f"{self.title} runs elsewhere: env=, env_from= and cwd= are for a command"
            raise ValueError(message)
        for header in self.headers:
            if header.lower() in _SECRET_HEADERS:
                message = (
                    f"headers= of {self.title} holds {header!r}, which is a secret: give the name of an "
                    "environment variable, by token_from= or headers_from="
                )
                raise ValueError(message)


async def close_servers() -> None:
    """Close every connection of this event loop, as a worker does when it ends."""
    from abeyance.mcp.pool import close_pools

    await close_pools()
