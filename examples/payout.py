"""A payout that two managers agree to, neither of whom submitted it.

    abeyance dev examples.payout:graph
    abeyance run payout --input '{"payee": "the printer", "amount": 900}' --run-id printer --wait

The managers are reminded after a business day, and a director may vote too after the second. Who has
approved can think again: nothing is paid before the yes has been held.
"""

from __future__ import annotations

from pydantic import BaseModel

from abeyance import END, START, Calendar, Escalation, Graph, Quorum


class Payout(BaseModel):
    """What is to be paid, what was decided, and the receipt if it was paid."""

    payee: str
    amount: int
    approved: bool | None = None
    receipt: str | None = None


graph = Graph("payout", state=Payout, description="Two managers agree before money is paid.")
graph.interrupt(
    "approve",
    prompt="Pay {amount} to {payee}?",
    answer_to="approved",
    assignees=["group:managers"],
    quorum=Quorum(2, of=["group:managers"]),
    not_by=["@starter"],
    remind="1bd",
    escalate=Escalation(after="2bd", to=["group:directors"]),
    calendar=Calendar(timezone="Europe/Berlin"),
    # So short for the demo alone: people need minutes to think again.
    hold="5s",
)


@graph.node
async def pay(state: Payout) -> dict[str, str]:
    """Pay, which this example only says."""
    return {"receipt": f"paid {state.amount} to {state.payee}"}


graph.edge(START, "approve")
graph.edge("approve", "pay", when={"approved": True})
graph.edge("approve", END, when="else")
