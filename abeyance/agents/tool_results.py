"""Results of tool calls, from the call to the next model request.

A result is a mapping with one of: `content`; `error`, a text for the model; `rejected`, the approver's
reason; `unanswered`, the name of a question whose deadline passed. `args` are the approved arguments, if
they differ from the model's. `decision` says that a person, `by`, has given the result in place of the
call (`respond`), has reported it after the call's worker was lost (`report`), or has edited its arguments
(`edit`) to those in `edited`. `approval` has the grant under which the call ran unasked. A large result
is stored outside the history and travels as a reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from abeyance.agents.prompts import note_part
from abeyance.agents.tool_errors import CallDenied, CallError
from abeyance.authoring.context import Context
from abeyance.core.approvals import MARKS
from abeyance.core.json import Json, canonical, size
from abeyance.core.outcome import ToolStatus
from abeyance.core.policy import TIMEOUT
from abeyance.core.text import truncate
from abeyance.storage.blobs import Blobs

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ToolCallPart

_MAX_INLINE_BYTES: Final = 2_000
"""A larger result travels as a reference."""
_MAX_NOTE_CHARS: Final = 2_000
_BLOB: Final = "blob"
UNANSWERED: Final = "nobody answered in time"
"""The reason of a rejection by deadline."""

_APPROVAL: Final = "approval"
_INTERRUPTED: Final = (
    "The call was interrupted before it had a result. It may or may not have been done."
)
_ACCEPTED: Final = "This result was taken."


def content(value: Json) -> dict[str, Json]:
    """Return the result of a successful call."""
    return {"content": value}


def error(text: str, *, is_denied: bool = False) -> dict[str, Json]:
    """Return the result of a failed or denied call."""
    return {"error": text, **({"denied": True} if is_denied else {})}


def of_error(why: CallError) -> dict[str, Json]:
    """Return the result of a call that an error ended or prevented."""
    return error(why.text, is_denied=isinstance(why, CallDenied))


def edit(approver: Mapping[str, Json], arguments: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a result about an approver's edit of the arguments."""
    return {"decision": "edit", "edited": dict(arguments), **approver}


def report(operator: Mapping[str, str | None] | None, edit: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a result about the operator who reported it; `edit` are those about its
    arguments.
    """
    by = {name: who for name, who in (operator or {}).items() if who is not None}
    edited = {"edited": edit["edited"]} if edit else {}
    return {"decision": "report", **edited, **by}


def approval(granted: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a result about the grant under which its call ran unasked."""
    return {_APPROVAL: {name: granted[name] for name in ("grant", "by")}}


def marks(result: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a result about a person's decision on the call."""
    marks = MARKS if "decision" in result else ()
    return {name: result[name] for name in (*marks, _APPROVAL) if name in result}


def withheld(tool: str, result: Mapping[str, Json], reason: str) -> dict[str, Json]:
    """Return the error that replaces a result. It says whether the call was made, because a model that
    reads of a denial makes the call again.
    """
    if result.get("decision") == "respond":
        return error(
            f"A person gave the result of {tool!r} in place of the call, but it is withheld: {reason}"
        )
    match to_model_text(result)[0]:
        case "success":
            return error(f"{tool!r} has run, but its result is withheld: {reason}")
        case "denied":
            return error(reason, is_denied=True)
        case _:
            return error(
                f"{tool!r} failed and may have been done, but its error is withheld: {reason}"
            )


def blobs_of(ctx: Context) -> Blobs:
    """Return the blob store of a visit."""
    assert ctx.runtime.blobs is not None  # noqa: S101 every visit of an agent has them
    return ctx.runtime.blobs


async def store(ctx: Context, result: Mapping[str, Json]) -> dict[str, Json]:
    """Store a large result, and return a reference to it; return a small one as it is."""
    if size(result) <= _MAX_INLINE_BYTES:
        return dict(result)
    return {_BLOB: await blobs_of(ctx).put(ctx.run_id, json.dumps(result).encode())}


async def load(blobs: Blobs, result: Mapping[str, Json]) -> dict[str, Json]:
    """Load a stored result from its reference; return any other result as it is."""
    if _BLOB not in result:
        return dict(result)
    stored: dict[str, Json] = json.loads(await blobs.get(result[_BLOB]))
    return stored | {key: value for key, value in result.items() if key != _BLOB}


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """A call of a fan-out, with its result. `is_seen` says whether the visit of the call has run the
    after-hooks; it has not if the run itself ended the call.
    """

    id: str
    tool: str
    arguments: dict[str, Json]
    result: dict[str, Json]
    is_seen: bool


def made(results: Any) -> Iterator[MadeCall]:
    """Yield the calls of a fan-out."""
    for entry in results or ():
        item = entry["item"]
        if not isinstance(item, Mapping) or "call_id" not in item:
            continue
        result = dict(entry["result"])
        arguments = result.pop("args", item.get("args", {}))
        is_ended = "code" in result or bool({"rejected", "unanswered"} & result.keys())
        yield MadeCall(
            id=item["call_id"],
            tool=item["tool"],
            arguments=arguments,
            result=result,
            is_seen=not is_ended and result.get("decision") != "respond",
        )


async def result_parts(
    blobs: Blobs, before: Sequence[ModelMessage], known: Mapping[str, Mapping[str, Json]]
) -> list[ModelRequestPart]:
    """Return a part for each call of the last response, in order.

    A call without a result gets one too: providers reject a conversation with an unanswered call.
    """
    from pydantic_ai.messages import ModelResponse

    last = before[-1] if before else None
    if not isinstance(last, ModelResponse):
        return []
    loaded = [
        (call, await load(blobs, known.get(call.tool_call_id, {}))) for call in last.tool_calls
    ]
    notes = [_edit_note(call, result) for call, result in loaded if "edited" in marks(result)]
    return [*(_part(call, result) for call, result in loaded), *notes]


def to_model_text(result: Mapping[str, Json]) -> tuple[ToolStatus, Json]:
    """Return the status of a call, and its result for the model."""
    match result:
        case {"content": value}:
            return "success", value
        case {"error": str() as text}:
            return ("denied" if result.get("denied") else "failed"), text
        case {"rejected": reason}:
            is_timeout = result.get("by") == TIMEOUT
            cause = "Nobody answered in time" if is_timeout else "The call was rejected by a person"
            detail = (
                "" if reason is None or (is_timeout and reason == UNANSWERED) else f": {reason}"
            )
            return "denied", f"{cause}, so {'the call' if is_timeout else 'it'} was not run{detail}"
        case {"unanswered": name}:
            text = f"Nobody answered {name!r} in time, so the call was given up before it had a result."
            return "interrupted", text
        case _:
            return "interrupted", _INTERRUPTED


def _edit_note(call: ToolCallPart, result: Mapping[str, Json]) -> ModelRequestPart:
    arguments = truncate(canonical(result["edited"]), _MAX_NOTE_CHARS)
    editor = result.get("by") if result["decision"] == "edit" else None
    return note_part(
        f"{editor or 'A person'} changed the arguments of your call {call.tool_call_id!r} of "
        f"{call.tool_name!r} before it was run, to {arguments}"
    )


def _part(call: ToolCallPart, result: Mapping[str, Json]) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart

    from abeyance.agents.output import FINAL_RESULT

    outcome, text = to_model_text(result)
    if not result and call.tool_name == FINAL_RESULT:
        outcome, text = "success", _ACCEPTED
    return ToolReturnPart(
        tool_name=call.tool_name,
        tool_call_id=call.tool_call_id,
        content=text,
        outcome=outcome,
        metadata=marks(result) or None,
    )
