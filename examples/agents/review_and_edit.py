"""Review and edit: a person looks at what a tool is to be called with, and may put other arguments in.

    abeyance run review_and_edit --run-id refund --wait
    abeyance respond refund '{"approved": true, "arguments": {"order": "A-7", "amount": 90}}'

Edited arguments are held against the types of the tool before the answer is accepted. Small amounts go
through unasked: `approve=` may be a function of the arguments.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from abeyance import START, Agent, Graph, tool
from examples.agents.model import Answer, Info, Messages, call, model, results, say, told

Amount = Annotated[float, Field(gt=0, le=500, description="In euros.")]


class Complaint(BaseModel):
    """What a customer wrote, and what they are answered."""

    letter: str = (
        "My order A-7 came a week late and the lamp is scratched. I want my 120 euros back!"
    )
    reply: str | None = None


def is_large(arguments: dict[str, Any]) -> bool:
    """Whether a person has to look at it."""
    return bool(arguments["amount"] > 50)


@tool(
    approve=is_large, prompt="Refund {amount} euros for the order {order}?", approval_timeout="2d"
)
async def refund(order: str, amount: Amount) -> dict[str, Any]:
    """Pay money back to a customer."""
    return {"order": order, "refunded": amount}


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say."""
    if not (found := results(messages)):
        return call("refund", order="A-7", amount=120 if "120" in told(messages)[0] else 20)
    match found[-1].content:
        case {"refunded": paid}:
            return say(f"We are sorry. {paid:g} euros are on their way to you.")
        case _:
            return say("We are sorry. A colleague will write to you about your money.")


clerk = Agent(
    "clerk",
    model=model(script),
    instructions="You answer complaints, and pay money back where that is right. Tell the customer the "
    "amount that was paid, which may be another than you asked for.",
    tools=[refund],
)

graph = Graph("review_and_edit", state=Complaint, description="Arguments that a person may edit.")
graph.agent("answer", clerk, input="letter", output="reply")
graph.edge(START, "answer")
