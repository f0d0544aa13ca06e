"""What agents said in a run in memory can be read in a test."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, Graph, Refusal
from abeyance.errors import Code
from abeyance.testing import InMemoryRun


def asks_below(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if any(isinstance(each, ModelResponse) for each in messages):
        return ModelResponse(parts=[TextPart("It is so.")])
    return ModelResponse(parts=[ToolCallPart("below", {"task": "Is it so?"}, "c1")])


def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart("Yes.")])


def of_two_agents() -> InMemoryRun:
    below = Agent("below", model=answers).as_tool(description="Knows.")
    graph = Graph("ask")
    graph.agent("work", Agent("above", model=asks_below, tools=[below]), input="question")
    graph.edge(START, "work")
    return InMemoryRun(graph, {"question": "So?"})


async def test_each_agent_has_a_conversation_of_its_own() -> None:
    run = of_two_agents()
    await run.start()
    above = await run.transcript("graph:ask;node:work;agent:above")
    below = await run.transcript("graph:ask;node:work;agent:above;tool:below:c1;agent:below")

    assert [(item.role, item.text or item.result) for item in above] == [
        ("user", "So?"),
        ("assistant", None),
        ("tool", "Yes."),
        ("assistant", "It is so."),
    ]
    assert [(item.role, item.text) for item in below] == [
        ("user", "Is it so?"),
        ("assistant", "Yes."),
    ]


async def test_which_conversation_is_meant_has_to_be_said_where_there_are_several() -> None:
    run = of_two_agents()
    with pytest.raises(Refusal) as nobody:
        await run.transcript()
    await run.start()
    with pytest.raises(Refusal, match="2 transcripts; name one of"):
        await run.transcript()

    assert nobody.value.code == Code.UNKNOWN_NODE
