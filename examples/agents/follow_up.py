"""Follow-up: an agent that does not know enough asks a person, as often as it takes, and goes on.

    abeyance run follow_up --run-id tour --wait
    abeyance respond tour '"the mountains"'
    abeyance respond tour 2

What it asks is a question of a tool's own code: `await ctx.interrupt(...)` returns the answer. Each call
of the tool is a visit of its own, so each question has its own id and address.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from abeyance import START, Agent, Graph, ToolContext, tool
from examples.agents.model import Answer, Info, Messages, call, model, results, say


class Tour(BaseModel):
    """A wish, and the plan that was made of it."""

    request: str = "Plan a trip for me."
    plan: str | None = None


@tool
async def ask_traveller(ctx: ToolContext, question: str, number: bool = False) -> Any:
    """Ask the traveller one thing that you must know. `number`: the answer has to be a whole number."""
    return await ctx.interrupt("answer", prompt=question, response=int if number else str)


@tool
async def find_hotel(place: str, nights: int) -> str:
    """Find a hotel."""
    return f"Hotel Edelweiss, {place}, {nights} nights"


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say."""
    match [part.content for part in results(messages)]:
        case []:
            return call("ask_traveller", question="Where would you like to go?")
        case [_]:
            return call("ask_traveller", question="For how many nights?", number=True)
        case [place, nights]:
            return call("find_hotel", place=place, nights=nights)
        case found:
            return say(f"Your trip: {found[-1]}.")


guide = Agent(
    "guide",
    model=model(script),
    instructions="You plan trips. You must know where to and for how many nights: what you do not know "
    "you ask, one thing at a time. Then find a hotel, and answer with the plan.",
    tools=[ask_traveller, find_hotel],
)

graph = Graph("follow_up", state=Tour, description="An agent that asks for what it must know.")
graph.agent("plan", guide, input="request", output="plan")
graph.edge(START, "plan")
