"""The versions of one application: each list of graphs is what one deploy serves.

Payments are booked in a file, with one line for each call: idempotency key, run, item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel

from abeyance import START, Agent, Context, Graph, ToolContext, append, tool
from abeyance.agents.tool import Tool

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo


class Claim(BaseModel):
    ledger: str
    approved: bool | None = None
    log: Annotated[list[str], append] = []


class ClaimWithIban(Claim):
    iban: str


class ClaimWithDefault(Claim):
    iban: str = "not known"


class Task(BaseModel):
    task: str
    report: str | None = None


async def _book(ledger: str, key: str, run_id: str, item: str) -> None:
    # One write in append mode: lines of several processes do not mix.
    with Path(ledger).open("a", encoding="utf-8", buffering=1) as file:
        file.write(f"{key} {run_id} {item}\n")
    # A worker that is killed here has paid, but has not reported it.
    await asyncio.sleep(0.2)


async def prepare(state: Claim) -> dict[str, Any]:
    return {"log": ["prepared"]}


async def pay(state: Claim, ctx: Context) -> dict[str, Any]:
    await _book(state.ledger, ctx.idempotency_key, ctx.run_id, "paid")
    return {"log": ["paid"]}


async def settle(state: Claim) -> dict[str, Any]:
    return {"log": ["settled"]}


def claims(state: type[Claim] = Claim) -> Graph:
    """Return a graph that asks, pays and settles."""
    return _claims(state, "pay")


def claims_renamed(state: type[Claim] = Claim) -> Graph:
    """Return `claims` with a new name for the paying node, and an edge from it to a new node."""
    graph = _claims(state, "payout")
    graph.retired("pay")(pay)

    @graph.node
    async def inform(state: Claim) -> dict[str, Any]:
        return {"log": ["informed"]}

    graph.edge("payout", "inform")
    return graph


def _claims(state: type[Claim], paying: str) -> Graph:
    graph = Graph("claims", state=state)
    graph.node(prepare)
    graph.interrupt("review", prompt="Pay?", response=bool, answer_to="approved")
    graph.node(name=paying, retries=20, heartbeat="2s")(pay)
    graph.node(settle)
    graph.edge(START, "prepare")
    graph.edge("prepare", "review")
    graph.edge("review", paying, when={"approved": True})
    graph.edge("review", "settle", when="else")
    graph.edge(paying, "settle")
    return graph


def walks() -> Graph:
    """Return a graph whose node takes seconds, with a step for each payment; workers die meanwhile."""
    graph = Graph("walks", state=Claim)

    @graph.node(retries=20, heartbeat="2s")
    async def walk(state: Claim, ctx: Context) -> dict[str, Any]:
        for step in "abcdefgh":
            await ctx.step(
                step, _book, state.ledger, f"{ctx.idempotency_key}-{step}", ctx.run_id, step
            )
        return {"log": ["walked"]}

    graph.edge(START, "walk")
    return graph


async def charge(ctx: ToolContext, ledger: str) -> str:
    """Charge the customer."""
    await _book(ledger, ctx.idempotency_key, ctx.run_id, "charged")
    return "charged"


async def charge_in_a_currency(ctx: ToolContext, ledger: str, currency: str = "EUR") -> str:
    """Charge the customer in a currency."""
    await _book(ledger, ctx.idempotency_key, ctx.run_id, "charged")
    return f"charged in {currency}"


def _model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the first tool with the ledger from the prompt, and report the outcome."""
    from pydantic_ai.messages import (
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"{last.outcome}: {last.content}")])
    assert isinstance(last, UserPromptPart)
    name = info.function_tools[0].name
    return ModelResponse(parts=[ToolCallPart(name, {"ledger": last.content}, "call-1")])


def clerks(*tools: Tool) -> Graph:
    """Return the graph of an agent that charges after a person's approval."""
    graph = Graph("clerks", state=Task)
    clerk = Agent("clerk", model=_model, tools=tools)
    graph.agent("clerk", clerk, input="task", output="report")
    graph.edge(START, "clerk")
    return graph


def _gated(name: str, function: Any) -> Tool:
    return tool(name=name, approve=True, heartbeat="2s")(function)


def _deploy(graph: Graph, *tools: Tool) -> Sequence[Graph]:
    return [graph, walks(), clerks(*tools)]


CHARGE = _gated("charge", charge)
CHARGE_CHANGED = _gated("charge", charge_in_a_currency)
BILL = _gated("bill", charge_in_a_currency)

first = _deploy(claims(), CHARGE)
renamed = _deploy(claims_renamed(), CHARGE)
field_required = _deploy(claims_renamed(ClaimWithIban), CHARGE)
field_defaulted = _deploy(claims_renamed(ClaimWithDefault), CHARGE)
tool_renamed = _deploy(claims_renamed(ClaimWithDefault), BILL)
tool_kept = _deploy(claims_renamed(ClaimWithDefault), BILL, CHARGE_CHANGED)
