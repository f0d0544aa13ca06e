"""Agents whose models read from a script, graphs around them, and runs of one agent in memory."""

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
"""What a model says: a text, parts, or the calls of tools with their arguments."""


class Asked(BaseModel):
    question: str = "What is to be done?"
    report: str | None = None


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


class Watching:
    """A hook that notes what became of each call."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    async def after_tool_call(self, event: AfterToolCall) -> None:
        self.seen.append((event.call_id, event.args, event.result, event.error, event.cancelled))
        event.agent_state["seen"] = event.agent_state.get("seen", 0) + 1


class Script:
    """A model that says one thing after another, and the last of them again and again.

    Which turn it is, it reads from the conversation, so a worker that is new goes on where another was.
    The call `n` of turn `t` has the id `t.n`, both counted from 1, unless it says another. `seen` are
    the messages of every request, and `offered` the tools of the latest.
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
        """Outcome and content of each result that a request brought, by the ids of the calls."""
        return {
            part.tool_call_id: (part.outcome, part.content) for part in returned(self.seen[number])
        }

    def heard(self, number: int = -1) -> list[str]:
        """The texts of people in what a request brought."""
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
    """What a model was told last of its calls, as a text: `tool: outcome: content; ...`."""
    return "; ".join(
        f"{part.tool_name}: {part.outcome}: {part.content}" for part in returned(messages)
    )


def answered(messages: Sequence[ModelMessage]) -> str:
    """A turn that says what the result of the only call was."""
    (part,) = returned(messages)
    return str(part.content)


def prompts(messages: Sequence[ModelMessage]) -> list[str]:
    """All that a model was told by people, oldest first."""
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
    """A graph of one node, which is the agent."""
    graph = Graph(name, state=state, **about)
    graph.agent(node, agent, input="question", output="report")
    graph.edge(START, node)
    return graph


def with_agent(agent: Agent, **about: Any) -> Graph:
    """A graph `g` whose only node, `review`, is the agent."""
    return desk(agent, "g", node="review", state=Case, **about)


async def started(agent: Agent, **about: Any) -> InMemoryRun:
    """A run of the agent, as far as it comes by itself."""
    run = InMemoryRun(with_agent(agent), **about)
    await run.start()
    return run


async def places(run: InMemoryRun) -> list[tuple[str, str]]:
    """The last segment of the address of every open question, and its name."""
    return [(each.address.rpartition(";")[2], each.name) for each in await run.interrupts()]


async def call_items(run: InMemoryRun) -> list[TranscriptItem]:
    """The calls in the transcript of the outermost agent."""
    items = await run.transcript(min(run.state.transcripts, key=len))
    return [each for each in items if each.role == "tool"]


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
