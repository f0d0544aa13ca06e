"""What the calls of a turn came to, until the model reads it.

A result is a mapping: `content`, or `error` with what the model is told instead, or `rejected` with a
person's reason. A large one is kept outside the history, and is then only a reference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from abeyance.blobs import Blobs
from abeyance.core.canonical import Json, size

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ToolCallPart

_LARGEST: Final = 2_000
"""In bytes: what is larger travels as a reference."""
_BLOB: Final = "blob"

_INTERRUPTED: Final = (
    "The call was interrupted before it had a result. It may or may not have been done."
)
_SKIPPED: Final = "A person skipped the call, so it was not run."
_TAKEN: Final = "This result was taken."


def content(value: Json) -> dict[str, Json]:
    """The result of a call that went well."""
    return {"content": value}


def error(text: str, *, is_denied: bool = False) -> dict[str, Json]:
    """The result of a call that did not."""
    return {"error": text, **({"denied": True} if is_denied else {})}


async def kept(blobs: Blobs, run_id: str, result: Mapping[str, Json]) -> dict[str, Json]:
    """A result as it travels."""
    if size(result) <= _LARGEST:
        return dict(result)
    return {_BLOB: await blobs.put(run_id, json.dumps(result).encode())}


async def opened(blobs: Blobs, result: Mapping[str, Json]) -> dict[str, Json]:
    """A result that has travelled."""
    if _BLOB not in result:
        return dict(result)
    found: dict[str, Json] = json.loads(await blobs.get(result[_BLOB]))
    return found


def gathered(results: Any) -> dict[str, dict[str, Json]]:
    """What came together behind a fan-out of calls, by their ids."""
    found: dict[str, dict[str, Json]] = {}
    for each in results or ():
        if isinstance(each["item"], Mapping) and "call_id" in each["item"]:
            found[each["item"]["call_id"]] = each.get("result") or error(_SKIPPED)
    return found


async def parts(
    blobs: Blobs, before: Sequence[ModelMessage], known: Mapping[str, Mapping[str, Json]]
) -> list[ModelRequestPart]:
    """What the model reads of its last calls: a result for each of them, in the order of the calls.

    A conversation that was interrupted may have calls without one, which no provider takes.
    """
    from pydantic_ai.messages import ModelResponse

    last = before[-1] if before else None
    if not isinstance(last, ModelResponse):
        return []
    return [
        _part(call, await opened(blobs, known.get(call.tool_call_id, {})))
        for call in last.tool_calls
    ]


def _part(call: ToolCallPart, result: Mapping[str, Json]) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart

    from abeyance.output import FINAL_RESULT

    outcome: Any = "success"
    match result:
        case {"content": value}:
            told = value
        case {"error": str() as text}:
            told, outcome = text, "denied" if result.get("denied") else "failed"
        case {"rejected": reason}:
            why = "" if reason is None else f": {reason}"
            told, outcome = f"The call was rejected by a person, so it was not run{why}", "denied"
        case _ if call.tool_name == FINAL_RESULT:
            told = _TAKEN
        case _:
            told, outcome = _INTERRUPTED, "interrupted"
    return ToolReturnPart(
        tool_name=call.tool_name, tool_call_id=call.tool_call_id, content=told, outcome=outcome
    )
