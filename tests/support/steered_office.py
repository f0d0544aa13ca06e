"""Two agents side by side: one has to ask before it pays, the other only talks. Both may be steered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, Final

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo
from scripted_agents import prompts
from witness import Witness

from abeyance import START, Agent, Context, Graph, ToolContext, append, tool

NAMED: Final = re.compile(r"#(\w+)#")
"""How a message of a program names itself in its text, so that a model can tell which it was told."""


class Office(BaseModel):
    count: int = 0
    log: Annotated[list[str], append] = []
    task: str = "pay ada"
    report: str | None = None


def office(random: Random, witness: Witness) -> Graph:
    """An agent that has to ask before it pays, beside one that only talks and is steered."""

    @tool(approve=lambda args: args["amount"] > 10)
    async def transfer(ctx: ToolContext, amount: float, to: str) -> str:
        """Send money."""
        witness.paid[ctx.idempotency_key] += 1
        return f"sent {amount:g} to {to}"

    @tool
    async def balance(of: str) -> str:
        """How much money somebody has."""
        await asyncio.sleep(0.02)
        return f"{of} has 70"

    turns = random.randint(2, 4)

    def hears(name: str, messages: Sequence[ModelMessage]) -> int:
        found = [mid for text in prompts(messages) for mid in NAMED.findall(text)]
        for mid in found:
            witness.heard[mid].add(name)
        witness.repeated += [mid for mid in found if found.count(mid) > 1]
        return sum(isinstance(each, ModelResponse) for each in messages)

    def pays(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = hears("clerk", messages)
        if number >= 2:
            return ModelResponse(parts=[TextPart("paid")])
        calls = [
            ToolCallPart("transfer", {"amount": 100, "to": f"ada{number}"}, f"p{number}"),
            ToolCallPart("balance", {"of": "ada"}, f"b{number}"),
        ]
        return ModelResponse(parts=calls)

    async def talks(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = hears("writer", messages)
        await asyncio.sleep(0.02)
        if number >= turns:
            return ModelResponse(parts=[TextPart("written")])
        return ModelResponse(parts=[ToolCallPart("balance", {"of": "bob"}, f"t{number}")])

    graph = Graph("office", state=Office)
    graph.agent(
        "pay", Agent("clerk", model=pays, tools=[transfer, balance]), input="task", output="report"
    )
    graph.agent("write", Agent("writer", model=talks, tools=[balance]), input="task")

    @graph.node
    async def tidy(state: Office, ctx: Context) -> dict[str, Any]:
        return {"log": [f"tidy {ctx.outcome}"]}

    graph.edge(START, "pay")
    graph.edge(START, "write")
    graph.finally_("tidy")
    return graph
