"""Models that say what is written down for them, and runs of one agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from abeyance import START, Agent, Graph, tool
from abeyance.testing import InMemoryRun

Said: TypeAlias = "str | ToolCallPart | Sequence[ModelResponsePart] | ModelResponse"
Turn: TypeAlias = "Said | Callable[[Sequence[ModelMessage]], Said]"


class Case(BaseModel):
    question: str = "What is to be done?"
    report: Any = None
    rounds: int = 0


class Folder:
    """The tool `delete`, and what it has deleted."""

    def __init__(self, **about: Any) -> None:
        self.gone: list[str] = []
        folder = self

        @tool(**about)
        async def delete(path: str) -> str:
            """Delete a file."""
            folder.gone.append(path)
            return f"deleted {path}"

        self.tool = delete


class Script:
    """A model that takes one turn after another, and the last of them again and again.

    `seen` are the messages of every request to it. Which turn it is, it tells from the conversation.
    """

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self.seen: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        self.seen.append(list(messages))
        number = sum(isinstance(each, ModelResponse) for each in messages)
        said = self._turns[min(number, len(self._turns) - 1)]
        return response(said(messages) if callable(said) else said)

    def told(self, number: int = -1) -> dict[str, tuple[str, Any]]:
        """Outcome and content of each result that a request brought, by the ids of the calls."""
        return told(self.seen[number])

    def heard(self, number: int = -1) -> list[str]:
        """The texts of people in what a request brought."""
        return heard(self.seen[number][-1:])


def response(said: Said) -> ModelResponse:
    match said:
        case ModelResponse():
            return said
        case str():
            return ModelResponse(parts=[TextPart(said)])
        case ToolCallPart():
            return ModelResponse(parts=[said])
        case _:
            return ModelResponse(parts=list(said))


def call(tool: str, call_id: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, call_id)


def told(messages: Sequence[ModelMessage]) -> dict[str, tuple[str, Any]]:
    return {
        part.tool_call_id: (part.outcome, part.content)
        for part in messages[-1].parts
        if isinstance(part, ToolReturnPart)
    }


def heard(messages: Sequence[ModelMessage]) -> list[str]:
    found = []
    for message in messages:
        if isinstance(message, ModelRequest):
            found += [part_text(each) for each in message.parts if isinstance(each, UserPromptPart)]
    return found


def part_text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "".join(str(getattr(each, "content", each)) for each in part.content)


def answered(call_id: str) -> Callable[[Sequence[ModelMessage]], str]:
    """A turn that says what the result of a call was."""

    def turn(messages: Sequence[ModelMessage]) -> str:
        return str(told(messages)[call_id][1])

    return turn


def with_agent(agent: Agent, **about: Any) -> Graph:
    """A graph whose only node, `review`, is the agent."""
    graph = Graph("g", state=Case, **about)
    graph.agent("review", agent, input="question", output="report")
    graph.edge(START, "review")
    return graph


async def started(agent: Agent, **about: Any) -> InMemoryRun:
    """A run of the agent, as far as it comes by itself."""
    run = InMemoryRun(with_agent(agent), **about)
    await run.start()
    return run


async def places(run: InMemoryRun) -> list[tuple[str, str]]:
    """The last segment of the address of every open question, and its name."""
    return [(each.address.rpartition(";")[2], each.name) for each in await run.interrupts()]


async def respond(run: InMemoryRun, call_id: str, answer: Any) -> None:
    """Answer what is asked about one call."""
    opened = run.state.ledger.open.values()
    (entry,) = [each for each in opened if f":{call_id}" in each.visit]
    await run.respond(entry.id, answer)


async def ran(run: InMemoryRun) -> list[str]:
    """The last segments of the addresses of all tools that were started, in order."""
    return [
        str(each.address).rpartition(";")[2]
        async for each in run.events(follow=False)
        if each.type == "tool.started"
    ]


def failure(run: InMemoryRun) -> tuple[str, str]:
    """Code and message of what made the run fail."""
    assert run.status == "failed"
    assert run.state.ending is not None
    error = run.state.ending.error
    assert error is not None
    return error.code, error.message
