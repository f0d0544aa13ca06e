"""What a tool gave, as JSON that is small enough to be kept in a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from abeyance.core.canonical import Json, size
from abeyance.mcp.faults import McpToolError
from abeyance.mcp.server import McpResult, McpServer

if TYPE_CHECKING:
    import mcp_types as types

_UNSHOWN: Final = ("_meta", "annotations")


def result_of(result: types.CallToolResult, server: McpServer, tool: str) -> McpResult:
    """The result as JSON. Binary data is left out, with a note in its place, where the result would be
    too large with it. Raises McpToolError if it is too large without.
    """
    items = [_plain(each) for each in result.content]
    structured = result.structured_content
    if not items and structured is not None:
        items = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    if size(items) > server.max_result:
        items = [_without_data(each) for each in items]
    if structured is not None and size(structured) > server.max_result:
        structured = None
    bytes_ = size(items)
    if bytes_ > server.max_result:
        message = (
            f"the tool {tool!r} of {server.title} gave {bytes_} bytes, and may give "
            f"{server.max_result}: ask it for less"
        )
        raise McpToolError("result_too_large", message)
    return McpResult(content=items, structured=structured, is_error=result.is_error)


def _plain(block: types.ContentBlock) -> dict[str, Json]:
    item = block.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {key: value for key, value in item.items() if key not in _UNSHOWN}


def _without_data(item: dict[str, Json]) -> dict[str, Json]:
    for holder, key in ((item, "data"), (item.get("resource"), "blob")):
        if isinstance(holder, dict) and key in holder:
            left = {name: value for name, value in holder.items() if name != key}
            left["left_out"] = f"{len(holder[key])} characters of base64: too large for a result"
            return left if holder is item else {**item, "resource": left}
    return item
