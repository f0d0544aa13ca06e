"""Agents with scripted models: one that pays, two in a row, one that calls another, one that loops."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Said, Script, call, prompts, returned, told

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


def _graph(name: str, node: str, agent: Agent) -> Graph:
    """Return a graph that begins with the agent."""
    graph = Graph(name, state=Task)
    graph.agent(node, agent, input="task", output="report")
    graph.edge(START, node)
    return graph


def _pay(messages: list[ModelMessage]) -> Said:
    if any("much" in each for each in prompts(messages[-1:])):
        calls = [
            call("balance", "call_1", of="ada"),
            call("transfer", "call_2", amount=5000, to="ada"),
        ]
        return ModelResponse(parts=[TextPart("Let me see what she has."), *calls])
    found = ", ".join(str(part.content) for part in returned(messages))
    return f"Done: {found or 'nothing was to be done'}"


def payments(name: str = "payments") -> Graph:
    """Return the graph of an agent that must ask before it pays more than 1000."""
    tools = [transfer, balance]
    clerk = Agent("clerk", model=Script(_pay), instructions="Pay.", tools=tools)
    graph = _graph(name, "pay", clerk)
    graph.edge("pay", END)
    return graph


def metered(name: str = "metered") -> Graph:
    """Return the graph of an agent whose first turn, with a call, uses up its budget."""
    model = Script([("balance", {"of": "ada"})], told)
    clerk = Agent("clerk", model=model, tools=[balance], budget=Budget(turns=1))
    return _graph(name, "pay", clerk)


def _write(messages: list[ModelMessage]) -> str:
    return f"a text about {prompts(messages[-1:])[0]}"


def writers() -> Graph:
    """Return a graph in which one agent writes, another reviews the text, and then a person is asked."""
    graph = _graph("writers", "write", Agent("writer", model=Script(_write)))
    critic = Agent("critic", model=Script(_write))
    graph.agent("check", critic, input="report", output="review")
    graph.interrupt("print", prompt="Print {report}?")
    graph.edge("write", "check")
    graph.edge("check", "print")
    return graph


def thinkers(asked: list[str]) -> Graph:
    """Return the graph of an agent whose model never answers, but adds its prompt to `asked`."""

    async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(prompts(messages)[0])
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    return _graph("thinkers", "think", Agent("thinker", model=think))


def _count(messages: list[ModelMessage]) -> Said:
    turns = sum(isinstance(message, ModelResponse) for message in messages)
    if turns >= int(prompts(messages)[0]):
        return "counted"
    return call("balance", f"call_{turns}", of=f"{turns}")


def counters() -> Graph:
    """Return a graph: an agent calls a tool as often as its task says, and then a person is asked."""
    counter = Agent("counter", model=Script(_count), tools=[balance], max_turns=20)
    graph = _graph("counters", "count", counter)
    graph.interrupt("done", prompt="Enough?", response=bool)
    graph.edge("count", "done")
    return graph


def _lead(messages: list[ModelMessage]) -> Said:
    return "all is done" if returned(messages) else call("clerk", "call_9", task="pay much")


def teams() -> Graph:
    """Return the graph of an agent that lets another agent pay."""
    clerk = Agent("clerk", model=Script(_pay), tools=[transfer, balance])
    lead = Agent("lead", model=Script(_lead), tools=[clerk.as_tool(description="Pays.")])
    return _graph("teams", "work", lead)
