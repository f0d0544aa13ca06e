"""The tools of an MCP server as an agent's own: found when the model is asked, and called like any other.

What a server asks a person in the middle of a call is an interrupt of the kind `elicitation`, and waits
for as long as it takes; see `mcp.server` for what that means for the server.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ResultError, ToolDeclarationError, ToolFailed
from abeyance.authoring.interrupts import Suspended, lowered
from abeyance.core.json import Json, canonical
from abeyance.errors import Blocked, FailureCode
from abeyance.mcp.elicitation import Answer, Elicitation, elicitation_question
from abeyance.mcp.errors import McpDown, McpToolError, McpUnusable
from abeyance.mcp.server import McpServer, McpTool
from abeyance.schemas.json_schema import without_lookaround

_logger = logging.getLogger("abeyance.agent")


class McpToolset:
    """What one server offers."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._known: dict[str, Tool | None] = {}

    async def offered(self) -> dict[str, Tool]:
        """The tools by name, as they are now. Raises Blocked while the server is not there.

        One that cannot be offered to a model is left out, with a line in the log.
        """
        try:
            listed = await self.server.list_tools()
        except (McpDown, McpUnusable) as error:
            message = f"the tools of the MCP server {self.server.title!r} cannot be listed: {error}"
            raise Blocked(message, code=FailureCode.TOOLS_UNAVAILABLE) from error
        keys = {canonical([each.name, each.description, each.parameters]): each for each in listed}
        self._known = {
            key: self._known[key] if key in self._known else self._made(each)
            for key, each in keys.items()
        }
        return {each.name: each for each in self._known.values() if each is not None}

    def _made(self, offered: McpTool) -> Tool | None:
        server, name = self.server, offered.name

        async def run(ctx: ToolContext, arguments: Mapping[str, Json]) -> Json:
            return await _called(server, name, arguments, ctx)

        def needs_approval(arguments: Mapping[str, Any]) -> bool:
            return server.needs_approval(name, arguments)

        try:
            return tool(
                name=name,
                description=offered.description,
                schema=without_lookaround(offered.parameters),
                approve=needs_approval if callable(server.approve) else server.approve,
                requested_capability=server.requested_capability if server.approve else None,
                retries=server.retries,
                max_result=server.max_result,
            )(run)
        except (ToolDeclarationError, ValueError) as error:
            _logger.warning("server=%s tool=%s | not offered: %s", server.title, name, error)
            return None


async def _called(
    server: McpServer, name: str, arguments: Mapping[str, Json], ctx: ToolContext
) -> Json:
    async def ask(elicitation: Elicitation) -> Answer:
        question = elicitation_question(
            elicitation, requested_capability=server.requested_capability
        )
        asked = replace(lowered(question), kind="elicitation")
        if asked.key not in ctx.targets:
            raise Suspended([asked], question.state)
        return Answer.of(ctx.targets[asked.key])

    try:
        result = await server.call(name, arguments, ask=ask, saved=ctx.saved_state)
    except McpDown as error:
        if error.sent:
            # Nobody knows what it did, so it is not made again unless somebody wants it.
            message = f"{error}. The call may have been done."
            raise ResultError(message) from error
        raise ToolFailed(f"{error}.") from error
    except (McpToolError, McpUnusable) as error:
        # Another attempt would come to the same.
        raise ResultError(str(error)) from error
    if result.is_error:
        raise ResultError(result.text or "the tool says that it failed, and not why")
    if result.content and all(each["type"] == "text" for each in result.content):
        # Structured results are there as text too, and without the wrapping that plain ones get.
        return result.text
    return result.content if result.structured is None else result.structured
