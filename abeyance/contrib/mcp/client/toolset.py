"""The tools of an MCP server as tools of an agent, listed before each model request.

An elicitation of the server opens an interrupt of the kind `elicitation`, and may wait without a limit;
see `server` for the consequences for the server.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from abeyance.agents.tool import Tool, ToolContext
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ResultError, ToolDeclarationError, ToolFailed
from abeyance.agents.tool_schema import SchemaArguments, judged_when_called
from abeyance.authoring.interrupts import Suspended, lowered
from abeyance.contrib.mcp.client.elicitation import Answer, Elicitation, elicitation_question
from abeyance.contrib.mcp.client.errors import McpDown, McpToolError, McpUnusable
from abeyance.contrib.mcp.client.server import McpServer, McpTool
from abeyance.core.json import Json, canonical
from abeyance.errors import Blocked, BlockedCode
from abeyance.schemas.json_schema import without_lookaround

_logger = logging.getLogger("abeyance.agent")


async def tools_of(server: McpServer, known: dict[str, Tool | None]) -> dict[str, Tool]:
    """Return the current tools of a server by name. `known` are the tools made before; it is updated.

    A tool that cannot be offered to a model is left out and logged. Raises Blocked if the server is
    unavailable.
    """
    try:
        mcp_tools = await server.list_tools()
    except (McpDown, McpUnusable) as error:
        message = f"the tools of the MCP server {server.title!r} cannot be listed: {error}"
        raise Blocked(message, code=BlockedCode.TOOLS_UNAVAILABLE) from error
    keys = {
        canonical([entry.name, entry.description, entry.parameters]): entry for entry in mcp_tools
    }
    made = {
        key: known[key] if key in known else tool_of(server, entry) for key, entry in keys.items()
    }
    known.clear()
    known.update(made)
    return {entry.name: entry for entry in made.values() if entry is not None}


def tool_of(server: McpServer, mcp_tool: McpTool) -> Tool | None:
    """Return a tool of a server as a tool of an agent, None if it cannot be offered to a model."""
    name = mcp_tool.name

    async def run(ctx: ToolContext, arguments: Mapping[str, Json]) -> Json:
        return await _call(server, name, arguments, ctx)

    def needs_approval(arguments: Mapping[str, Any]) -> bool:
        return server.needs_approval(name, arguments)

    try:
        return tool(
            name=name,
            description=mcp_tool.description,
            schema=SchemaArguments(
                schema=without_lookaround(mcp_tool.parameters), judge=judged_when_called
            ),
            approve=needs_approval if callable(server.approve) else server.approve,
            requested_capability=server.requested_capability if server.approve else None,
            decisions=server.decisions if server.approve else None,
            retries=server.retry.retries,
            backoff=server.backoff,
            retry_for=server.retry_for,
            max_result=server.max_result,
        )(run)
    except (ToolDeclarationError, ValueError) as error:
        _logger.warning("server=%s tool=%s | not offered: %s", server.title, name, error)
        return None


async def _call(
    server: McpServer, name: str, arguments: Mapping[str, Json], ctx: ToolContext
) -> Json:
    async def ask(elicitation: Elicitation) -> Answer:
        question = elicitation_question(
            elicitation, requested_capability=server.requested_capability
        )
        lowered_question = replace(lowered(question), kind="elicitation")
        if lowered_question.key not in ctx.targets:
            raise Suspended([lowered_question], question.state)
        return Answer.of(ctx.targets[lowered_question.key])

    try:
        result = await server.call(name, arguments, ask=ask, saved=ctx.saved_state)
    except McpDown as error:
        if error.sent:
            # Its effect is unknown, so it is not retried.
            raise ResultError(f"{error}. The call may have been done.") from error
        raise ToolFailed(f"{error}.") from error
    except (McpToolError, McpUnusable) as error:
        # A retry would fail in the same way.
        raise ResultError(str(error)) from error
    if result.is_error:
        raise ResultError(result.text or "the tool failed without a reason")
    if result.content and all(each["type"] == "text" for each in result.content):
        # A structured result has a text form too, without the wrapping of plain values.
        return result.text
    return result.content if result.structured is None else result.structured
