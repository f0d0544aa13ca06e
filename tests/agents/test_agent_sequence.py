"""Calls that an agent makes one after the other."""

from __future__ import annotations

from collections.abc import Sequence

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

from abeyance import START, Agent, Graph, Principal, ToolContext, testing, tool


def say(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls `note` three times, and then tells what it read since."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if not any(isinstance(part, ToolReturnPart) for part in last.parts):
        calls = [ToolCallPart("note", {"text": text}, text) for text in ("one", "two", "three")]
        return ModelResponse(parts=calls)
    told = [
        str(part.content) if isinstance(part, ToolReturnPart) else part_text(part)
        for part in last.parts
        if isinstance(part, ToolReturnPart | UserPromptPart)
    ]
    return ModelResponse(parts=[TextPart(" / ".join(told))])


def part_text(part: UserPromptPart) -> str:
    content = part.content
    return content if isinstance(content, str) else " ".join(str(each) for each in content)


async def test_a_sequence_stops_at_the_call_that_asks_and_hears_every_message() -> None:
    noted: list[str] = []

    @tool
    async def note(ctx: ToolContext, text: str) -> str:
        if text == "two":
            await ctx.interrupt("sure")
        noted.append(text)
        return f"noted {text}"

    graph = Graph("diary")
    clerk = Agent("clerk", model=say, tools=[note], tool_execution="sequential")
    graph.agent("write", clerk, input="task", output="said")
    graph.edge(START, "write")
    run = testing.InMemoryRun(graph, {"task": "write"})
    await run.start()
    assert noted == ["one"]
    assert [each.address.rpartition(";")[2] for each in await run.interrupts()] == ["tool:note:two"]

    await run.send("and be quick", principal=Principal(subject="ada", capabilities=("*",)))
    await run.respond("sure", True)
    assert noted == ["one", "two", "three"]
    assert run.status == "completed"
    said = run.values["said"]
    assert said.startswith("noted one / noted two / noted three / ")
    assert "and be quick" in said
    assert "ada" in said
