"""Graphs that ask people in different ways, for the inbox to show."""

from __future__ import annotations

from base64 import b64decode
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, Context, Graph, Interrupt, Quorum, tool


class Matter(BaseModel):
    """What is asked about."""

    prompt: str = "Publish the notes?"
    count: int = 0
    answer: bool | None = None
    report: str | None = None


class Line(BaseModel):
    """A line of an order."""

    article: str
    pieces: int = 1


def gate(name: str, **terms: Any) -> Graph:
    """A graph that asks one yes or no."""
    asking = Graph(name, state=Matter)
    asking.interrupt("decide", prompt="{prompt}", response=bool, answer_to="answer", **terms)
    asking.edge(START, "decide")
    return asking


@tool(approve=True, prompt="**Refund {amount}** to {to}?\n\nThe customer wrote **twice**.")
async def refund(
    amount: float, to: str, lines: list[Line], by: date, way: Literal["bank", "cash"] = "bank"
) -> str:
    """Refund an order."""
    return f"sent {amount:g} to {to} by {by} ({way}, {len(lines)} lines)"


def pay(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for one refund, then say what came of it."""
    del info
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return ModelResponse(parts=[TextPart(str(part.content))])
    arguments = {
        "amount": 5000,
        "to": "Ada",
        "by": "2026-12-24",
        "lines": [{"article": "lamp", "pieces": 2}],
    }
    return ModelResponse(parts=[TextPart("She is right."), ToolCallPart("refund", arguments, "1")])


payments = Graph("payments", state=Matter)
payments.agent("clerk", Agent("clerk", model=pay, tools=[refund]), input="prompt", output="report")
payments.edge(START, "clerk")

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
shown = Graph("shown", state=Matter)


@shown.node
async def show(state: Matter, ctx: Context) -> dict[str, Any]:
    """Ask with a picture, a document, and what only looks like a file."""
    payload = {
        "scan": await ctx.file("scan.png", b64decode(PIXEL)),
        "letter": await ctx.file("letter.html", b"<script>alert(1)</script>"),
        "trap": {"$file": "javascript:alert(1)", "name": "trap"},
    }
    await ctx.interrupt("see", prompt=state.prompt, payload=payload, response=bool)
    return {}


shown.edge(START, "show")

many = Graph("many", state=Matter)


@many.node
async def ask(state: Matter, ctx: Context) -> dict[str, Any]:
    """Ask many questions at once."""
    prompts = {f"q{n}": f"{state.prompt} {n:04}" for n in range(state.count)}
    await ctx.interrupts(
        [Interrupt(name, prompt=prompt, response=bool) for name, prompt in prompts.items()]
    )
    return {}


many.edge(START, "ask")

graph = [
    gate("plain"),
    gate("urgent", priority="high", risk=80, timeout="1h"),
    gate("voted", quorum=Quorum(2), assignees=["group:finance"]),
    gate("held", hold="1h"),
    gate("apart", assignees=["bob"], assignees_only=True),
    payments,
    shown,
    many,
]
