"""Media that a message names by a url: passed on to a provider that takes urls, never fetched by us.

The model library fetches what a provider does not take by url, and has no switch against it: its
`force_download` False means "where it is needed". What it does have is one place where every download
begins, by asking whether a url asks for local addresses too. `_Never` sits in that field: as a flag it is
false, so that a url is passed on wherever that is possible, and asked that question, it refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from abeyance.agents.modelfailure import ModelRefused

if TYPE_CHECKING:
    from pydantic_ai.messages import FileUrl, ModelMessage, ModelRequestPart

_QUESTION: Final = "allow-local"


class _Never(int):
    """False, and an error where a download begins."""

    refusal: ModelRefused

    def __eq__(self, other: object) -> bool:
        if other == _QUESTION:
            raise self.refusal
        return int(self) == other

    def __hash__(self) -> int:
        return hash(int(self))


def kept_from_downloading(model: str, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, with every url in them such that using it other than by passing it on is refused.

    The given messages stay as they are.

    Args:
        model: The name of the model, for the text of the refusal.
        messages: The conversation.
    """
    from pydantic_ai.messages import ModelRequest

    return [
        replace(message, parts=[_part(model, part) for part in message.parts])
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _part(model: str, part: ModelRequestPart) -> ModelRequestPart:
    from pydantic_ai.messages import ToolReturnPart, UserPromptPart

    if not isinstance(part, UserPromptPart | ToolReturnPart):
        return part
    content = _guarded(model, part.content)
    return part if content is part.content else replace(part, content=content)


def _guarded(model: str, content: Any) -> Any:
    from pydantic_ai.messages import FileUrl

    match content:
        case FileUrl():
            guarded = copy.copy(content)
            never = _Never(0)
            never.refusal = _refusal(model, content)
            guarded.force_download = never  # type: ignore[assignment]
            return guarded
        case list() | tuple():
            return [_guarded(model, item) for item in content]
        case dict():
            return {key: _guarded(model, item) for key, item in content.items()}
        case _:
            return content


def _refusal(model: str, media: FileUrl) -> ModelRefused:
    kind = type(media).__name__.removesuffix("Url").lower()
    where, _, _ = media.url.partition("?")
    return ModelRefused(
        model,
        f"the model {model!r} does not take this {kind} by url, and a url is never fetched on its behalf"
        f" ({where}): send the data itself",
    )
