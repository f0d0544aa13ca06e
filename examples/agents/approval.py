"""Approval: an agent books tickets, and a person approves each booking before it is made.

abeyance run approval --run-id trip --wait
abeyance respond trip '{"approved": true}'
"""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel

from abeyance import START, Agent, Graph, ToolContext, tool
from examples.agents.model import Answer, Info, Messages, call, model, results, say


class Trip(BaseModel):
    """What is wanted, and what became of it."""

    request: str = "Book a train ticket to Beijing for Martin, for 1 December 2026."
    answer: str | None = None


@tool(approve=True, prompt="Book a ticket to {destination} on {day} for {passenger}?")
async def book_ticket(ctx: ToolContext, destination: str, day: date, passenger: str) -> str:
    """Book a train ticket. It is paid at once."""
    # A real shop takes this key too, and sells one ticket for it, however often it is asked.
    return f"ticket {ctx.idempotency_key[-6:]} to {destination} on {day} for {passenger}"


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say."""
    if not (found := results(messages)):
        return call("book_ticket", destination="Beijing", day="2026-12-01", passenger="Martin")
    if found[-1].went_well:
        return say(f"Done: {found[-1].content}.")
    return say(f"I have booked nothing. {found[-1].content}")


booker = Agent(
    "booker",
    model=model(script),
    instructions="You book train tickets. If a booking is refused, say so, and do not try again.",
    tools=[book_ticket],
)

graph = Graph("approval", state=Trip, description="A booking that a person approves.")
graph.agent("book", booker, input="request", output="answer")
graph.edge(START, "book")
