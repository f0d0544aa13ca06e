"""Previews of tool calls: what a call would do, shown to who approves it.

The preview that was shown is compared with one made right before the call. If both differ, or that one
fails, what was approved is not what would happen, and the approver is asked anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from abeyance.agents.tool_errors import CallError, described
from abeyance.agents.tool_schema import Arguments
from abeyance.authoring.callables import call
from abeyance.authoring.interrupts import suspended_by
from abeyance.core.json import Json, canonical, size
from abeyance.core.text import truncate
from abeyance.schemas.json_types import to_json
from abeyance.wire import refuse_too_deep

if TYPE_CHECKING:
    from abeyance.agents.tool import Tool, ToolContext

_MAX_BYTES: Final = 64_000
_MAX_ERROR_CHARS: Final = 1_000
_SECONDS: Final = 60.0
"""The time of a preview whose tool has no timeout."""
_KEYS: Final = ("summary", "diff", "table", "cost")
_PASSED_ON: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The function that makes the previews of a tool, and its arguments: some or all of the tool's."""

    function: Callable[..., Any]
    arguments: Arguments


async def preview_of(tool: Tool, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
    """Return the preview of a call, or `{error}` if there is none: it raised, took too long, or returned
    something else.
    """
    try:
        async with asyncio.timeout(tool.timeout or _SECONDS):
            return await _made(tool, context, arguments)
    except _PASSED_ON:
        raise
    except TimeoutError:
        return {"error": f"the preview took longer than {tool.timeout or _SECONDS:g} s"}
    except CallError as error:
        return {"error": truncate(error.text, _MAX_ERROR_CHARS)}
    except BaseException as error:  # noqa: BLE001 anything that the author's code may raise
        why = "it asks, which a preview cannot" if suspended_by(error) else described(error)
        return {"error": truncate(f"the preview failed: {why}", _MAX_ERROR_CHARS)}


def differs(shown: Json, now: Json) -> bool:
    """Return whether a preview voids the approval of the one that was shown. One that failed does."""
    return "error" in now or canonical(shown) != canonical(now)


async def _made(tool: Tool, context: ToolContext, arguments: Mapping[str, Json]) -> Json:
    preview = tool.preview
    assert preview is not None  # noqa: S101 only such a tool has previews
    known = preview.arguments.schema.get("properties")
    own = arguments if known is None else {k: v for k, v in arguments.items() if k in known}
    bound = preview.arguments.bound(preview.function, tool.name, own, context)
    made = refuse_too_deep(to_json(await call(preview.function, *bound.args, **bound.keywords)))
    if (fault := _fault(made)) is not None:
        return {"error": f"the preview {fault}"}
    return made


def _fault(made: Json) -> str | None:
    if not isinstance(made, Mapping) or not isinstance(made.get("summary"), str):
        return "is no mapping with a text under 'summary'"
    if unknown := sorted(made.keys() - {*_KEYS}):
        return f"has {', '.join(map(repr, unknown))}: it may have {', '.join(_KEYS)}"
    if not isinstance(made.get("diff"), str | None):
        return "has a diff that is no text"
    if not isinstance(made.get("table"), list | None):
        return "has a table that is no list of rows"
    if (bytes_ := size(made)) > _MAX_BYTES:
        return f"takes {bytes_} bytes, and may take {_MAX_BYTES}: show a part of it"
    return None
