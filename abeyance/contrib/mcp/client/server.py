"""`McpServer`: a server of the Model Context Protocol as a source of tools.

The protocol library is imported when a server is first used, so declaring servers is cheap. All code of a
process that names the same server shares its connections.

A tool may ask a person (an elicitation) during a call. The call is then abandoned, and repeated when the
answer arrives. A server of the protocol of 2026 or later that answers `input_required` continues where it
stopped, if it accepts the state that it returned; any other server runs the tool **again from its
beginning**. So a tool that elicits should do so before it acts, or be idempotent for equal arguments.

Client and server speak the newest protocol that both support. A tool written for a protocol of 2025
cannot elicit in a newer one: its first attempt fails, and is repeated over a connection of the protocol
of 2025, as are all later calls of this tool.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from abeyance.agents.tool import Tool
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.authoring.retries import DEFAULT_BACKOFF, Backoff, retry_policy
from abeyance.authoring.terms import decisions_of
from abeyance.contrib.mcp.client.elicitation import Ask, Record
from abeyance.contrib.mcp.client.errors import McpDown, McpError, McpToolError, McpUnusable
from abeyance.core.bounds import RetryPolicy
from abeyance.core.json import Json, canonical
from abeyance.core.terms import Decision
from abeyance.duration import Duration, seconds

__all__ = [
    "McpDown",
    "McpError",
    "McpResult",
    "McpServer",
    "McpTool",
    "McpToolError",
    "McpUnusable",
]

Approve: TypeAlias = bool | Callable[[str, Mapping[str, Any]], bool]

_RETRIES: Final = 3
"""The retries of a server that declares neither `retries` nor `retry_for`."""
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTool:
    """A tool of a server. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class McpResult:
    """The result of a tool call.

    `content` is a list of items of the protocol, each a mapping with a `type` (`text`, `image`, `audio`,
    `resource_link`, `resource`). `structured` is the result as one JSON value, if the tool returns one
    that is not too large. If `is_error`, the tool failed, and `content` is the reason.
    """

    content: Json
    structured: Json = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text items, joined by line breaks."""
        return "\n".join(each["text"] for each in self.content if each["type"] == "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A server of tools: a `command` to start, or the `url` of a running server.

    `name` is shown to people and models; it defaults to the command or the host.

    `env` are environment variables of a started server beside `PATH`, `HOME` and the like, `env_from` the
    names of variables that it inherits from the worker; `cwd` is its working directory. `headers` are
    sent with every request to a `url`; `headers_from` maps a header to the worker's environment variable
    with its value, and `token_from` names the variable with a bearer token. A graph holds no secret.

    `tools` selects the tools to offer, by the server's names, and `exclude` removes some; `prefix` is put
    before each name. `approve` is True if every call needs an approval, or a predicate of the tool's name
    (as the model sees it) and its arguments. Approvers, and people who answer the server's elicitations,
    need `requested_capability`; `decisions` lists what an approval allows, as in `@tool`.

    `timeout` bounds the work of a call, without the time that a person takes to answer.
    `connect_timeout` bounds connecting. `retries` counts the attempts after the first (3, or with
    `retry_for` without a bound), for calls that did not reach the server; a call that may have been made
    is not retried. `backoff` and `retry_for` are as for a node. `max_result` is in bytes.
    `connections` bounds the concurrent calls of one process (each connection to a `command` is a process
    of its own); an unused connection is closed after `idle`.

    Raises ValueError for an invalid declaration.
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
    decisions: Sequence[Decision] | None = None
    timeout: Duration = 60.0
    connect_timeout: Duration = 30.0
    idle: Duration = 300.0
    retries: int | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    retry_for: Duration | None = None
    max_result: int = 100_000
    connections: int = 4
    _made: dict[str, Tool | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The agent's tools by the server's entries, None for a tool that cannot be offered."""

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            message = "an McpServer needs exactly one of command=[...] and url='https://...'"
            raise ValueError(message)
        if self.url is None:
            self._check_command()
        else:
            self._check_url(self.url)
        for option in ("timeout", "connect_timeout", "idle"):
            if not seconds(getattr(self, option)) > 0:
                message = f"{option}={getattr(self, option)!r} of {self.title} must be above zero"
                raise ValueError(message)
        for option, minimum in (("max_result", 1), ("connections", 1)):
            if getattr(self, option) < minimum:
                raise ValueError(
                    f"{option}={getattr(self, option)!r} of {self.title} must be at least {minimum}"
                )
        errors = DeclarationErrors()
        errors.plain_capability(self.requested_capability, self.title)
        self._retry(errors.note)
        if self.decisions is not None:
            decisions_of(self.decisions, self.title, errors)
        if errors.faults:
            raise ValueError(errors.faults[0])
        if isinstance(self.tools, str) or isinstance(self.exclude, str):
            message = f"tools= or exclude= of {self.title} is a text: pass a list of names"
            raise ValueError(message)  # noqa: TRY004 - as every error of a declaration

    @property
    def retry(self) -> RetryPolicy:
        """The retry policy of calls that did not reach the server."""
        return self._retry(lambda _: None)

    def _retry(self, note: Callable[[str], None]) -> RetryPolicy:
        return retry_policy(
            note,
            self.title,
            retries=self.retries,
            backoff=self.backoff,
            retry_for=self.retry_for,
            default=_RETRIES,
        )

    @property
    def title(self) -> str:
        """The name, or else the host or the command."""
        if self.name is not None:
            return self.name
        if self.url is not None:
            return urlsplit(self.url).netloc
        return Path(self.command[0]).name if self.command else "mcp"

    @property
    def description(self) -> str:
        """The description of the node that calls its tools."""
        return "Tools of an MCP server."

    @property
    def library(self) -> str:
        """The module of the protocol library, which comes with an extra."""
        return "mcp"

    @property
    def key(self) -> str:
        """Equal for servers that share connections. Holds variable names, but no secrets."""
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
        """Return True if the call needs an approval. `tool` is a name as in `list_tools`."""
        return self.approve(tool, arguments) if callable(self.approve) else self.approve

    async def available_tools(self) -> dict[str, Tool]:
        """Return the tools as tools of an agent, by name. Raises Blocked if the server is unavailable."""
        from abeyance.contrib.mcp.client.toolset import tools_of

        return await tools_of(self, self._made)

    async def list_tools(self) -> list[McpTool]:
        """Return the tools in the server's order. Raises McpDown, McpUnusable.

        The list is read anew by each new connection, and after a minute once a connection is idle.
        """
        from abeyance.contrib.mcp.client.connection import pool_of

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
        """Call a tool by its name in `list_tools`.

        `ask` is awaited, in the caller's task, for each elicitation of the server. If it raises, the call
        is cancelled on the server, and the exception propagates. If the server asks several questions at
        once, and `ask` raises Suspended for more than one, a single Suspended holds all of them.

        `saved` is from the elicitation for which the call was abandoned. With it, and an `ask` that
        returns the answers by name, the call continues where it stopped if the server supports that, and
        else starts from its beginning.

        Raises McpDown, McpUnusable, McpToolError.
        """
        from abeyance.contrib.mcp.client.connection import pool_of
        from abeyance.contrib.mcp.client.tool_call import call_tool

        name = tool.removeprefix(self.prefix)
        pool = pool_of(self)
        if not tool.startswith(self.prefix) or not self._offers(name):
            raise self._unknown(tool)
        if all(each.name != name for each in await pool.tools(seconds(self.timeout))):
            raise self._unknown(tool)
        record = Record(self.title, name, saved)
        return await call_tool(self, pool, name, arguments, record=record, ask=ask)

    def _offers(self, name: str) -> bool:
        return name not in self.exclude and (self.tools is None or name in self.tools)

    def _unknown(self, tool: str) -> McpToolError:
        return McpToolError("unknown_tool", f"{self.title} has no tool {tool!r}")

    def _check_command(self) -> None:
        command = self.command
        if isinstance(command, str) or not command or not all(isinstance(x, str) for x in command):
            message = f"command={command!r} is invalid: use a list such as ['python', 'server.py']"
            raise ValueError(message)
        if self.headers or self.headers_from or self.token_from:
            raise ValueError(
                f"{self.title} is started by a command and takes no headers: use env= or env_from="
            )

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"url={url!r} is invalid: use https:// or http:// and a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                f"the url of the server at {parts.hostname} holds a password: name an environment "
                "variable instead, by token_from= or headers_from="
            )
        if self.env or self.env_from or self.cwd is not None:
            message = f"{self.title} has a url: use env=, env_from= and cwd= only with a command"
            raise ValueError(message)
        for header in self.headers:
            if header.lower() in _SECRET_HEADERS:
                raise ValueError(
                    f"headers= of {self.title} holds the credential {header!r}: name an environment "
                    "variable instead, by token_from= or headers_from="
                )
