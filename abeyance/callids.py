"""The ids of calls: each is the name of a visit, so no two of one conversation may be the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

_LONGEST: Final = 64


def distinct(response: ModelResponse, before: Sequence[ModelMessage], turn: int) -> ModelResponse:
    """A response whose calls have ids that no call before has had; `turn` is its number."""
    from pydantic_ai.messages import ModelResponse, ToolCallPart

    taken = {
        call.tool_call_id
        for message in before
        if isinstance(message, ModelResponse)
        for call in message.tool_calls
    }
    parts = [
        replace(part, tool_call_id=_id(part.tool_call_id, taken, turn))
        if isinstance(part, ToolCallPart)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def _id(given: str, taken: set[str], turn: int) -> str:
    if len(given) > _LONGEST:
        given = hashlib.sha256(given.encode()).hexdigest()[:32]
    found = given if given not in taken else f"{given}.{turn}"
    taken.add(found)
    return found
