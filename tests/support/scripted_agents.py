"""Agents with scripted models, graphs around them, and runs of one agent in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from pydantic_ai.models.function import AgentInfo

from abeyance import START, AfterToolCall, Agent, Graph, tool
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.testing import InMemoryRun

Call: TypeAlias = tuple[str, Mapping[str, Any]]
Said: TypeAlias = (
    "str | ToolCallPart | Sequence[Call] | Sequence[ModelResponsePart] | ModelResponse"
)
Turn: TypeAlias = "Said | Callable[[list[ModelMessage]], Said]"
"""A model's turn: a text, parts, or tool calls with their arguments."""


class Asked(BaseModel):
    question: str = "What is to be done?"
    report: str | None = None


class Case(BaseModel):
    question: str = "What is to be done?"
    report: Any = None
    rounds: int = 0


class Folder:
    """The tool `delete`, and the paths that it has deleted."""

    def __init__(self, **about: Any) -> None:
        self.gone: list[str] = []
        folder = self

        @tool(**about)
        async def delete(path: str) -> str:
            """Delete a file."""
            folder.gone.append(path)
            return f"deleted {path}"

        self.tool = delete


class Watching:
    """A hook that notes the outcome of each call."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    async def after_tool_call(self, event: AfterToolCall) -> None:
        self.seen.append((event.call_id, event.args, event.result, event.error, event.cancelled))
        event.agent_state["seen"] = event.agent_state.get("seen", 0) + 1


class Script:
    """A model that takes one turn after another, and repeats the last turn forever.

    It counts the turns in the conversation, so a new worker continues where another one stopped. Call `n`
    of turn `t` has the id `t.n`, both counted from 1, unless the script gives another id. `seen` has the
    messages of every request, and `offered` the tools of the latest.
    """

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self.seen: list[list[ModelMessage]] = []
        self.offered: list[str] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(list(messages))
        self.offered = [each.name for each in info.function_tools]
        number = 1 + sum(isinstance(each, ModelResponse) for each in messages)
        said = self._turns[min(number, len(self._turns)) - 1]
        return response(said(messages) if callable(said) else said, number)

    def told(self, number: int = -1) -> dict[str, tuple[str, Any]]:
        """Return outcome and content of each result in a request, by the ids of the calls."""
        return {
            part.tool_call_id: (part.outcome, part.content) for part in returned(self.seen[number])
        }

    def heard(self, number: int = -1) -> list[str]:
        """Return the texts of people in the newest message of a request."""
        return prompts(self.seen[number][-1:])


def response(said: Said, number: int = 1) -> ModelResponse:
    match said:
        case ModelResponse():
            return said
        case str():
            return ModelResponse(parts=[TextPart(said)])
        case ToolCallPart():
            return ModelResponse(parts=[said])
        case _:
            return ModelResponse(
                parts=[
                    ToolCallPart(each[0], dict(each[1]), f"{number}.{index}")
                    if isinstance(each, tuple)
                    else each
                    for index, each in enumerate(said, start=1)
                ]
            )


def call(tool: str, call_id: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(tool, arguments, call_id)


def returned(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]


def told(messages: Sequence[ModelMessage]) -> str:
    """Return the latest results of a model's calls as a text: `tool: outcome: content; ...`."""
    return "; ".join(
        f"{part.tool_name}: {part.outcome}: {part.content}" for part in returned(messages)
    )


def answered(messages: Sequence[ModelMessage]) -> str:
    """Return the content of the only result, as a turn."""
    (part,) = returned(messages)
    return str(part.content)


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return all texts of people in a conversation, oldest first."""
    return [
        part.content
        if isinstance(part.content, str)
        else "".join(str(getattr(each, "content", each)) for each in part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def desk(
    agent: Agent,
    name: str = "desk",
    *,
    node: str = "clerk",
    state: type[BaseModel] = Asked,
    **about: Any,
) -> Graph:
    """Return a graph whose only node is the agent."""
    graph = Graph(name, state=state, **about)
    graph.agent(node, agent, input="question", output="report")
    graph.edge(START, node)
    return graph


def with_agent(agent: Agent, **about: Any) -> Graph:
    """Return a graph `g` whose only node, `review`, is the agent."""
    return desk(agent, "g", node="review", state=Case, **about)


async def started(agent: Agent, **about: Any) -> InMemoryRun:
    """Start a run of the agent, and let it run until it waits or ends."""
    run = InMemoryRun(with_agent(agent), **about)
    await run.start()
    return run


async def places(run: InMemoryRun) -> list[tuple[str, str]]:
    """Return the last address segment and the name of every open question."""
    return [(each.address.rpartition(";")[2], each.name) for each in await run.interrupts()]


async def call_items(run: InMemoryRun) -> list[TranscriptItem]:
    """Return the calls in the transcript of the outermost agent."""
    items = await run.transcript(min(run.state.transcripts, key=len))
    return [each for each in items if each.role == "tool"]


async def respond(run: InMemoryRun, call_id: str, answer: Any) -> None:
    """Answer the question about one call."""
    opened = run.state.ledger.open.values()
    (entry,) = [each for each in opened if f":{call_id}" in each.visit]
    await run.respond(entry.id, answer)


async def ran(run: InMemoryRun) -> list[str]:
    """Return the last address segments of all started tools, in order."""
    return [
        str(each.address).rpartition(";")[2]
        async for each in run.events(follow=False)
        if each.type == "tool.started"
    ]


def failure(run: InMemoryRun) -> tuple[str, str]:
    """Return code and message of the error that made the run fail."""
    assert run.status == "failed"
    assert run.state.ending is not None
    error = run.state.ending.error
    assert error is not None
    return error.code, error.message
