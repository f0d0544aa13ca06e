"""A support desk: an agent reads complaints, and a person agrees before money is paid back.

Whoever agrees may have the yes remembered: further refunds for the same reason, each below 100 euros, are
then paid unasked for as long as they chose. Nobody remembers anything for larger ones.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from abeyance import START, Agent, Graph, Remember, tool
from examples.agents.model import Answer, Info, Messages, call, model, results, say, told

Amount = Annotated[int, Field(gt=0, le=500, description="In euros.")]
_ORDER = re.compile(r"(?P<order>[A-Z]-\d+): (?P<amount>\d+) euros, (?P<reason>late|broken)")


class Complaint(BaseModel):
    """What a customer wrote, and what they are answered."""

    letter: str = "A-7: 120 euros, late. A-8: 30 euros, late."
    reply: str | None = None


@tool(
    approve=True,
    prompt="Refund {amount} euros for the order {order}, which came {reason}?",
    requested_capability="refunds:approve",
    remember=Remember(most="7d", where=["run", "graph"], same=["reason"], below={"amount": 100}),
)
async def refund(order: str, amount: Amount, reason: Literal["late", "broken"]) -> str:
    """Pay money back to a customer, which this example only says."""
    return f"{amount} euros for {order}"


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say: one refund for each order of the letter."""
    orders, done = [*_ORDER.finditer(told(messages)[0])], results(messages)
    if len(done) < len(orders):
        order = orders[len(done)]
        return call(
            "refund", order=order["order"], amount=int(order["amount"]), reason=order["reason"]
        )
    paid = [str(each.content) for each in done if str(each.content).startswith(tuple("123456789"))]
    return say(f"We are sorry. We pay back {', '.join(paid) or 'nothing'}.")


clerk = Agent(
    "clerk",
    model=model(script),
    instructions="You answer complaints. Pay back what each order cost, one order in each call, and tell "
    "the customer what was paid.",
    tools=[refund],
)

graph = Graph("support_desk", state=Complaint, description="Refunds that a person agrees to.")
graph.agent("answer", clerk, input="letter", output="reply")
graph.edge(START, "answer")
