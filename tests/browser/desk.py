"""Graphs for the tests of the inbox, which ask people in different ways."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo

from abeyance import START, Agent, Budget, Context, Graph, Interrupt, Quorum, Remember, tool
from abeyance.contrib.mcp.client.elicitation import Elicitation, elicitation_question


class Matter(BaseModel):
    """The subject of a question."""

    prompt: str = "Publish the notes?"
    count: int = 0
    answer: bool | None = None
    report: str | None = None


class Line(BaseModel):
    """A line of an order."""

    article: str
    pieces: int = Field(default=1, le=9)


class Place(BaseModel):
    """The address of a person."""

    street: str | None = None


def gate(name: str, **terms: Any) -> Graph:
    """Return a graph that asks one question of yes or no."""
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


def calls(name: str, /, *said: str, **arguments: Any) -> Callable[..., ModelResponse]:
    """Return a model that calls a tool, and then says its result."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        for part in messages[-1].parts:
            if isinstance(part, ToolReturnPart):
                return ModelResponse(parts=[TextPart(str(part.content))])
        return ModelResponse(parts=[*map(TextPart, said), ToolCallPart(name, arguments, name)])

    return answer


pay = calls(
    "refund",
    "She is right.",
    amount=5000,
    to="Ada",
    by="2026-12-24",
    lines=[{"article": "lamp", "pieces": 2}],
)


def desk(name: str, **options: Any) -> Graph:
    """Return a graph of one agent."""
    working = Graph(name, state=Matter)
    working.agent("clerk", Agent("clerk", **options), input="prompt", output="report")
    working.edge(START, "clerk")
    return working


@tool(approve=True, prompt="Ship?")
async def ship(
    *,
    at: datetime,
    gate: time,
    lines: list[Line],
    weight: float,
    note: str = "",
    tags: list[str] | None = None,
    home: Place | None = None,
    depot: Place | None = None,
) -> str:
    """Ship an order."""
    pieces = [f"{line.pieces} {line.article}" for line in lines]
    return f"{at.isoformat()} {gate.isoformat()} {pieces} {weight} {note!r} {tags} {home} {depot}"


# No field of a form shows these values exactly.
send = calls(
    "ship",
    at="2026-12-24T10:00:00.250+01:00",
    gate="09:30:00+01:00",
    lines=[{"article": "lamp"}, {"article": "rope"}],
    weight=3.141592653589793,
    note="",
    tags=[],
)


@tool
async def look() -> str:
    """Look at an order."""
    return "all is well"


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
shown = Graph("shown", state=Matter)


@shown.node
async def show(state: Matter, ctx: Context) -> dict[str, Any]:
    """Ask with a picture, a document, and a value that only looks like a file."""
    payload = {
        "scan": await ctx.file("scan.png", b64decode(PIXEL)),
        "letter": await ctx.file("letter.html", b"<script>alert(1)</script>"),
        "trap": {"$file": "javascript:alert(1)", "name": "trap"},
    }
    await ctx.interrupt("see", prompt=state.prompt, payload=payload, response=bool)
    return {}


shown.edge(START, "show")

offered = Graph("offered", state=Matter)


@offered.node
async def offer(state: Matter, ctx: Context) -> dict[str, Any]:
    """Ask a question of a tool's server, in a form that is never empty."""
    form = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "class": {"type": "string", "default": "second"},
        },
        "required": ["city", "class"],
    }
    asked = Elicitation(
        name="trip", server="travel", tool="book", message=state.prompt, requested_schema=form
    )
    answers = await ctx.interrupts([elicitation_question(asked)])
    return {"report": str(answers["trip"])}


offered.edge(START, "offer")

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

RECORD = 1161888007138312193  # It has more than the 53 bits of a number in JavaScript.


class Account(BaseModel):
    """The values of a run about an account."""

    prompt: str = ""
    number: int = RECORD
    balance: Decimal = Decimal("12.50")
    owners: list[dict[str, int]] = [{"id": RECORD}]
    opens: time | None = None
    at: datetime | None = None
    note: str = ""
    tries: int = 7


@tool(approve=True, prompt="Delete {name}?", decisions=["approve", "reject"])
async def delete(record_id: int, name: str) -> str:
    """Delete a record."""
    return f"deleted {record_id}"


@tool(approve=True, prompt="Move {balance}?")
async def move(
    record_id: int, balance: Decimal, note: str, parts: list[dict[str, int]], times: int = 3
) -> str:
    """Move a record."""
    return f"moved {record_id} {balance} {parts} {times} {note}"


SMALL = Remember(most="7d", where=["run", "graph"], same=["account"], below={"amount": 200})


@tool(
    approve=True, prompt="Top up {account}?", requested_capability="topup:approve", remember=SMALL
)
async def top_up(account: str, amount: int) -> str:
    """Top up an account."""
    return f"topped up {account} by {amount}"


async def would_give(amount: int) -> dict[str, Any]:
    """Return a preview of a call of `give`."""
    return {"summary": f"{500 - amount} EUR are left"}


@tool(approve=True, prompt="Give {amount} EUR?", preview=would_give)
async def give(amount: int) -> str:
    """Give somebody money."""
    return f"gave {amount}"


stopping = Graph("stopping", state=Account, interrupt_before=["close"])


@stopping.node
async def close(state: Account) -> dict[str, Any]:
    """Close an account."""
    return {}


stopping.edge(START, "close")

failing = Graph("failing", state=Account)


@failing.node(on_error="interrupt", retries=0)
async def transfer(state: Account) -> dict[str, Any]:
    """Fail until the account is known."""
    raise RuntimeError(f"the account {state.number} is closed")


failing.edge(START, "transfer")

opening = Graph("opening", state=Account)
opening.interrupt(
    "when",
    prompt="Account {number}?",
    reason={"account": "{number}"},
    payload={},
    answer_to="opens",
)
opening.interrupt("how", prompt="How much?", answer_to="balance")
opening.edge(START, "when")
opening.edge("when", "how")


class Payment(BaseModel):
    """A payment that a stranger asks for."""

    payee: str = ""
    amount: int = 0
    ref: str = ""


paying = Graph("paying", state=Payment)
paying.interrupt("pay", prompt="Pay {payee} the amount of {amount} EUR. Reference: {ref}")
paying.edge(START, "pay")


class Allowance(BaseModel):
    """An answer in which approvers agree on an amount."""

    approved: bool
    amount: int = 90


granting = Graph("granting", state=Matter)
granting.interrupt(
    "decide", prompt="{prompt}", response=Allowance, quorum=Quorum(2, of=["ada", "bob"])
)
granting.edge(START, "decide")


class Count(BaseModel):
    """How many of several were approved."""

    approved: int


counting = Graph("counting", state=Matter)
counting.interrupt("decide", prompt="{prompt}", response=Count)
counting.edge(START, "decide")


class Opinion(BaseModel):
    """A decision, and what speaks for it."""

    approved: bool
    arguments: str = ""


arguing = Graph("arguing", state=Matter)
arguing.interrupt("decide", prompt="{prompt}", response=Opinion)
arguing.edge(START, "decide")


class Sender(BaseModel):
    """The sender of a parcel."""

    name: str
    country: str = "DE"


class Parcel(BaseModel):
    """A parcel."""

    article: str
    sender: Sender | None = None


posting = Graph("posting", state=Matter)
posting.interrupt("decide", prompt="{prompt}", response=Parcel)
posting.edge(START, "decide")

breaking = Graph("breaking", state=Matter)


@breaking.node(retries=0)
async def pay_out(state: Matter) -> dict[str, Any]:
    """Fail."""
    raise LookupError("the bank does not know the account")


breaking.edge(START, "pay_out")

linked = Graph("linked", state=Matter)
linked.interrupt(
    "decide",
    prompt="**Publish** [the notes of {prompt}](https://example.com/{prompt})?",
    response=bool,
    answer_to="answer",
)
linked.edge(START, "decide")

graph = [
    paying,
    granting,
    counting,
    arguing,
    breaking,
    posting,
    linked,
    gate("plain"),
    gate("urgent", priority="high", risk=80, timeout="1h"),
    gate("voted", quorum=Quorum(2), assignees=["group:finance"]),
    gate("counted", quorum=Quorum(2, of=["ada", "bob", "local"]), not_by=["@starter"]),
    gate("held", hold="1h"),
    gate("apart", assignees=["bob"], assignees_only=True, not_by=["@starter"]),
    desk("payments", model=pay, tools=[refund]),
    desk("shipping", model=send, tools=[ship]),
    desk("budgeted", model=calls("look"), tools=[look], budget=Budget(turns=1, usd=2)),
    shown,
    offered,
    many,
    desk("deleting", model=calls("delete", record_id=RECORD, name="x"), tools=[delete]),
    desk(
        "moving",
        model=calls(
            "move", record_id=RECORD, balance="12.50", note="a", parts=[{"id": RECORD, "of": 1}]
        ),
        tools=[move],
    ),
    desk("topping", model=calls("top_up", account="c-17", amount=50), tools=[top_up]),
    desk("giving", model=calls("give", amount=480), tools=[give]),
    stopping,
    failing,
    opening,
]
