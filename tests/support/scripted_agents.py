"""Agents whose models read from a script, and graphs around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel
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

from abeyance import START, Agent, Graph

Call: TypeAlias = tuple[str, Mapping[str, Any]]
Turn: TypeAlias = "str | Sequence[Call] | Callable[[list[ModelMessage]], str | Sequence[Call]]"
"""What a model says: a text, or the calls of tools with their arguments."""


class Asked(BaseModel):
    question: str = "What is to be done?"
    report: str | None = None


def scripted(*turns: Turn) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
    """A model that says one thing after another; the last again and again.

    Which turn it is, it reads from the conversation, so a worker that is new goes on where another was.
    The call `n` of turn `t` has the id `t.n`, both counted from 1.
    """

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = 1 + sum(isinstance(message, ModelResponse) for message in messages)
        said = turns[min(number, len(turns)) - 1]
        said = said(messages) if callable(said) else said
        if isinstance(said, str):
            return ModelResponse(parts=[TextPart(said)])
        return ModelResponse(
            parts=[
                ToolCallPart(tool, dict(arguments), f"{number}.{index}")
                for index, (tool, arguments) in enumerate(said, start=1)
            ]
        )

    return model


def told(messages: Sequence[ModelMessage]) -> str:
    """What a model was told last of its calls, as a text: `tool: outcome: content; ...`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    return "; ".join(
        f"{part.tool_name}: {part.outcome}: {part.content}"
        for part in last.parts
        if isinstance(part, ToolReturnPart)
    )


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """All that a model was told by people, oldest first."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def desk(agent: Agent, name: str = "desk") -> Graph:
    """A graph of one node, `clerk`, which is the agent."""
    graph = Graph(name, state=Asked)
    graph.agent("clerk", agent, input="question", output="report")
    graph.edge(START, "clerk")
    return graph
