"""The model of the examples: a real one where a variable names it, else the script beside each agent.

A script is a function in a model's place: it is handed the conversation, and says what a model would say
next. It reads what tools and people answered, so that each example goes the way that the answers lead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from abeyance.agents.output import FINAL_RESULT

VARIABLE: Final = "EXAMPLE_MODEL"

Messages: TypeAlias = list[ModelMessage]
Info: TypeAlias = AgentInfo
Answer: TypeAlias = ModelResponse
Script: TypeAlias = Callable[[Messages, Info], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call came to. `content` is a text that says why, where it was not run or failed."""

    tool: str
    content: Any
    went_well: bool


def model(script: Script) -> str | Script:
    """What the variable names, such as `openai:gpt-5`; where it is not set, the script."""
    return os.environ.get(VARIABLE) or script


def say(text: str) -> Answer:
    """The model ends its turn with a text."""
    return ModelResponse(parts=[TextPart(text)])


def call(tool: str, **arguments: Any) -> Answer:
    """The model calls one tool."""
    return call_all((tool, arguments))


def call_all(*calls: tuple[str, dict[str, Any]]) -> Answer:
    """The model calls several tools in one turn."""
    # Models give ids to their calls; one that was used before in the conversation gets a suffix.
    return ModelResponse(
        parts=[
            ToolCallPart(tool, arguments, f"call_{number}")
            for number, (tool, arguments) in enumerate(calls, start=1)
        ]
    )


def give(**output: Any) -> Answer:
    """The model gives its output, where that is more than a text."""
    return call(FINAL_RESULT, **output)


def results(messages: Sequence[ModelMessage]) -> list[Result]:
    """What the calls of tools came to so far, oldest first."""
    return [
        Result(tool=part.tool_name, content=part.content, went_well=part.outcome == "success")
        for part in _asked(messages)
        if isinstance(part, ToolReturnPart)
    ]


def told(messages: Sequence[ModelMessage]) -> list[str]:
    """What the model was told in the user's voice so far, oldest first."""
    return [
        part.content
        for part in _asked(messages)
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    ]


def _asked(messages: Sequence[ModelMessage]) -> list[Any]:
    return [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
