"""What the calls of a turn came to, until the model reads it.

A result is a mapping: `content`, or `error` with what the model is told instead, or `rejected` with a
person's reason, or `unanswered` with what nobody answered in time. `args` beside it are the arguments
that were let through, where they are others than the model's. A large one is kept outside the history,
and is then only a reference.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from abeyance.agents.approvals import UNANSWERED
from abeyance.agents.hooks import AfterToolCall
from abeyance.core.json import Json, size
from abeyance.core.outcome import ToolStatus
from abeyance.core.policy import TIMEOUT
from abeyance.storage.blobs import Blobs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ToolCallPart

_LARGEST: Final = 2_000
"""In bytes: what is larger travels as a reference."""
_BLOB: Final = "blob"
UNSEEN: Final = "unseen"
"""What a result has on it while no after-hook has seen it: the tool that was called, and with what."""

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


def after(event: AfterToolCall) -> dict[str, Json]:
    """The result that hooks have left of a call."""
    if event.error:
        return error(str(event.result), is_denied=event.cancelled)
    return content(event.result)


async def kept(blobs: Blobs, run_id: str, result: Mapping[str, Json]) -> dict[str, Json]:
    """A result as it travels."""
    if size(result) <= _LARGEST:
        return dict(result)
    reference = {_BLOB: await blobs.put(run_id, json.dumps(result).encode())}
    return {**reference, **({UNSEEN: None} if UNSEEN in result else {})}


async def opened(blobs: Blobs, result: Mapping[str, Json]) -> dict[str, Json]:
    """A result that has travelled."""
    if _BLOB not in result:
        return dict(result)
    found: dict[str, Json] = json.loads(await blobs.get(result[_BLOB]))
    return {
        **found,
        **{key: value for key, value in result.items() if key != _BLOB and value is not None},
    }


def gathered(results: Any, agents: Container[str]) -> dict[str, dict[str, Json]]:
    """What came together behind a fan-out of calls, by their ids. Those without code of their own that
    ran to its end are `UNSEEN`: calls of `agents`, and what the run itself has ended.
    """
    found: dict[str, dict[str, Json]] = {}
    for each in results or ():
        item = each["item"]
        if not isinstance(item, Mapping) or "call_id" not in item:
            continue
        result = dict(each.get("result") or {})
        arguments = result.pop("args", item.get("args", {}))
        if not result:
            result = error(_SKIPPED, is_denied=True)
            is_seen = False
        else:
            is_seen = "code" not in result and not {"rejected", "unanswered"} & result.keys()
        if not is_seen or item["tool"] in agents:
            result[UNSEEN] = {"tool": item["tool"], "args": arguments}
        found[item["call_id"]] = result
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


def to_model_text(result: Mapping[str, Json]) -> tuple[ToolStatus, Json]:
    """How a call ended, and what the model is told of it."""
    match result:
        case {"content": value}:
            return "success", value
        case {"error": str() as text}:
            return ("denied" if result.get("denied") else "failed"), text
        case {"rejected": reason}:
            is_late = result.get("by") == TIMEOUT
            who = "Nobody answered in time" if is_late else "The call was rejected by a person"
            why = "" if reason is None or (is_late and reason == UNANSWERED) else f": {reason}"
            return "denied", f"{who}, so {'the call' if is_late else 'it'} was not run{why}"
        case {"unanswered": name}:
            text = f"Nobody answered {name!r} in time, so the call was given up before it had a result."
            return "interrupted", text
        case _:
            return "interrupted", _INTERRUPTED


def _part(call: ToolCallPart, result: Mapping[str, Json]) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart

    from abeyance.agents.output import FINAL_RESULT

    outcome, text = to_model_text(result)
    if not result and call.tool_name == FINAL_RESULT:
        outcome, text = "success", _TAKEN
    return ToolReturnPart(
        tool_name=call.tool_name, tool_call_id=call.tool_call_id, content=text, outcome=outcome
    )
