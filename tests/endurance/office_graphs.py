"""The graph of the long tests: steps, questions side by side, a fan-out, messages, an agent, MCP.

The code books each side effect in a file that outlives every killed process: one line for each call,
with the idempotency key, the run and the item.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel

from abeyance import START, Agent, Context, Graph, McpServer, Send, ToolContext, append, tool
from abeyance.core.events import Message

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo

LEDGER: Final = "OFFICE_LEDGER"
"""The environment variable with the path of the bookings file."""
TOOLS_URL: Final = "OFFICE_TOOLS_URL"
STEPS: Final = ("weigh", "pack", "label")
ITEMS: Final = 5
# Longer than a payload may be, so that the storage is needed.
_BULK: Final = 20_000


class Parcel(BaseModel):
    legal: bool | None = None
    finance: str | None = None
    bulk: str = ""
    heard: Annotated[list[str], append] = []
    sent: int = 0
    task: str = "charge"
    report: str | None = None


def book(key: str, run_id: str, item: str) -> None:
    """Book a side effect with one write in append mode, so that lines of several processes do not mix."""
    with Path(os.environ[LEDGER]).open("a", encoding="utf-8", buffering=1) as file:
        file.write(f"{key} {run_id} {item}\n")


async def _slowly(key: str, run_id: str, item: str) -> None:
    book(key, run_id, item)
    # A worker that is killed here has done the work, but has not reported it.
    await asyncio.sleep(0.05)


async def prepare(state: Parcel, ctx: Context) -> dict[str, Any]:
    for step in STEPS:
        await ctx.step(step, _slowly, f"{ctx.idempotency_key}:{step}", ctx.run_id, step)
    return {"bulk": ctx.run_id.ljust(_BULK, ".")}


async def split(state: Parcel) -> list[Send]:
    return [Send("send", number) for number in range(ITEMS)]


async def send(state: Parcel, ctx: Context) -> None:
    await _slowly(ctx.idempotency_key, ctx.run_id, f"item-{ctx.item}")


async def collect(state: Parcel, ctx: Context) -> dict[str, Any]:
    return {"sent": len(ctx.results)}


async def read(state: Parcel, inbox: Sequence[Message]) -> dict[str, Any]:
    return {"heard": [message.text for message in inbox]}


@tool(approve=True, heartbeat="2s")
async def charge(ctx: ToolContext) -> str:
    """Charge the customer."""
    await _slowly(ctx.idempotency_key, ctx.run_id, "charge")
    return "charged"


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call `add` and `charge`, and then report the outcome of each call."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )

    if any(isinstance(message, ModelResponse) for message in messages):
        results = [
            f"{part.tool_name} {part.outcome}"
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return ModelResponse(parts=[TextPart(", ".join(sorted(results)))])
    return ModelResponse(
        parts=[
            ToolCallPart("add", {"a": 1, "b": 2}, "call-1"),
            ToolCallPart("charge", {}, "call-2"),
        ]
    )


def office() -> Graph:
    """Return a graph: prepare while two people decide, send items, let an agent charge, read messages."""
    server = McpServer(
        name="counter",
        url=os.environ.get(TOOLS_URL, "http://127.0.0.1:1/mcp"),
        tools=["add"],
        retries=50,
    )
    graph = Graph("office", state=Parcel)
    graph.node(retries=50, heartbeat="2s")(prepare)
    graph.interrupt("legal", prompt="May it be sent?", response=bool, answer_to="legal")
    graph.interrupt("finance", prompt="Who pays?", response=str, answer_to="finance")
    graph.node(to=["send"], retries=50)(split)
    graph.node(retries=50, heartbeat="2s")(send)
    graph.node(retries=50)(collect)
    clerk = Agent("clerk", model=_model, tools=[charge, server], model_retries=50)
    graph.agent("clerk", clerk, input="task", output="report")
    graph.node(retries=50)(read)
    for name in ("prepare", "legal", "finance"):
        graph.edge(START, name)
    graph.edge(["prepare", "legal", "finance"], "split")
    graph.edge(["send"], "collect")
    graph.edge("collect", "clerk")
    graph.edge("clerk", "read")
    return graph


graphs = [office()]
