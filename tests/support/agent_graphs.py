"""Agents whose models are played: one that pays, two in a row, one that calls another, one that loops."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Script, told

from abeyance import END, START, Agent, Budget, Graph, tool


class Task(BaseModel):
    task: str = "pay ada"
    report: str | None = None
    review: str | None = None


@tool(approve=lambda args: args["amount"] > 1000)
async def transfer(amount: float, to: str) -> str:
    """Send money to somebody."""
    return f"sent {amount:g} to {to}"


@tool
async def balance(of: str) -> dict[str, Any]:
    """How much money somebody has."""
    return {"of": of, "euros": 70}


def _last(messages: list[ModelMessage]) -> list[Any]:
    return list(messages[-1].parts)


def _task(messages: list[ModelMessage]) -> str:
    (part,) = messages[0].parts
    assert isinstance(part, UserPromptPart)
    return str(part.content)


def _pay(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    asked = [part for part in _last(messages) if isinstance(part, UserPromptPart)]
    if any("much" in str(part.content) for part in asked):
        calls = [
            ToolCallPart("balance", {"of": "ada"}, "call_1"),
            ToolCallPart("transfer", {"amount": 5000, "to": "ada"}, "call_2"),
        ]
        return ModelResponse(parts=[TextPart("Let me see what she has."), *calls])
    found = [part for part in _last(messages) if isinstance(part, ToolReturnPart)]
    told = ", ".join(str(part.content) for part in found) or "nothing was to be done"
    return ModelResponse(parts=[TextPart(f"Done: {told}")])


def payments(name: str = "payments") -> Graph:
    """An agent that has to ask before it pays much."""
    graph = Graph(name, state=Task)
    clerk = Agent("clerk", model=_pay, instructions="Pay.", tools=[transfer, balance])
    graph.agent("pay", clerk, input="task", output="report")
    graph.edge(START, "pay")
    graph.edge("pay", END)
    return graph


def metered(name: str = "metered") -> Graph:
    """An agent that has used its budget after one turn, with a call."""
    graph = Graph(name, state=Task)
    model = Script([("balance", {"of": "ada"})], told)
    clerk = Agent("clerk", model=model, tools=[balance], budget=Budget(turns=1))
    graph.agent("pay", clerk, input="task", output="report")
    graph.edge(START, "pay")
    return graph


def _write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    return ModelResponse(parts=[TextPart(f"a text about {_last(messages)[0].content}")])


def writers() -> Graph:
    """One agent writes, another one reviews it; then a person is asked."""
    graph = Graph("writers", state=Task)
    graph.agent("write", Agent("writer", model=_write), input="task", output="report")
    graph.agent("check", Agent("critic", model=_write), input="report", output="review")
    graph.interrupt("print", prompt="Print {report}?")
    graph.edge(START, "write")
    graph.edge("write", "check")
    graph.edge("check", "print")
    return graph


def thinkers(asked: list[str]) -> Graph:
    """An agent whose model never answers; what it is asked stands in `asked` from then on."""

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        del info
        asked.append(_task(messages))
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    graph = Graph("thinkers", state=Task)
    graph.agent("think", Agent("thinker", model=think), input="task", output="report")
    graph.edge(START, "think")
    return graph


def _count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    turns = sum(isinstance(message, ModelResponse) for message in messages)
    wanted = int(_task(messages))
    if turns >= wanted:
        return ModelResponse(parts=[TextPart("counted")])
    return ModelResponse(parts=[ToolCallPart("balance", {"of": f"{turns}"}, f"call_{turns}")])


def counters() -> Graph:
    """An agent that calls a tool as many times as its task says; then a person is asked."""
    graph = Graph("counters", state=Task)
    counter = Agent("counter", model=_count, tools=[balance], max_turns=20)
    graph.agent("count", counter, input="task", output="report")
    graph.interrupt("done", prompt="Enough?", response=bool)
    graph.edge(START, "count")
    graph.edge("count", "done")
    return graph


def _lead(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    if any(isinstance(part, ToolReturnPart) for part in _last(messages)):
        return ModelResponse(parts=[TextPart("all is done")])
    return ModelResponse(parts=[ToolCallPart("clerk", {"task": "pay much"}, "call_9")])


def teams() -> Graph:
    """An agent that has another one pay."""
    graph = Graph("teams", state=Task)
    clerk = Agent("clerk", model=_pay, tools=[transfer, balance])
    lead = Agent("lead", model=_lead, tools=[clerk.as_tool(description="Pays.")])
    graph.agent("work", lead, input="task", output="report")
    graph.edge(START, "work")
    return graph
