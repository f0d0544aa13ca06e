"""A hostile MCP server on standard input and output, whose schemas take endless work to check.

    python hostile_mcp.py [--older]

The tool `ask` returns the answer to its question. With `--older`, it asks as in the protocol of 2025,
whatever the client's version.
"""

from __future__ import annotations

import sys

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from schema_shapes import doubling

FORM = {"type": "object", "properties": {"name": {"$ref": "#/$defs/a0"}}, **doubling(34)}
EMAIL = {"type": "string", "pattern": r"^(?!\.)(?!.*\.\.)[a-z.]+@example\.com$"}
TOOLS = {
    "honest": {"type": "object", "properties": {"to": {"type": "string"}}},
    "email": {"type": "object", "properties": {"to": EMAIL}, "required": ["to"]},
    "endless": {"type": "object", "properties": {"to": {"$ref": "#/$defs/a0"}}, **doubling(34)},
    "ask": {"type": "object"},
}


async def listed(
    _ctx: ServerRequestContext, _params: PaginatedRequestParams | None
) -> ListToolsResult:
    return ListToolsResult(
        tools=[Tool(name=name, input_schema=schema) for name, schema in TOOLS.items()]
    )


async def called(
    ctx: ServerRequestContext, params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    if params.name != "ask":
        return _said(f"{params.name} was called")
    if "--older" in sys.argv:
        answer = await ctx.session.elicit_form("Your name?", FORM, ctx.request_id)
    elif params.input_responses is None:
        form = ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"name": ElicitRequest(params=form)})
    else:
        given = params.input_responses["name"]
        assert isinstance(given, ElicitResult)
        answer = given
    return _said(f"{answer.action}: {(answer.meta or {}).get('abeyance/reason')}")


def _said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])


async def main() -> None:
    server = Server("hostile", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
