"""Supervisor of plan-execute: one of those whom a supervisor hands tasks to is a whole graph of agents.

    abeyance run supervised_planning --run-id weekend --wait
    abeyance respond weekend '{"approved": true}'

The graph of `plan_execute_replan` is a node here, as it is. The supervisor decides who is next, by a
typed output that the edges read, and remembers what it has decided before; what is asked three levels
below it stands in the same inbox.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from abeyance import END, START, Agent, Graph
from examples.agents import plan_execute_replan
from examples.agents.model import Answer, Info, Messages, give, model, say, told
from examples.agents.plan_execute_replan import Plan


class Decision(BaseModel):
    """Who is next, and what they are told. What the customer is told is the end."""

    to: Literal["journeys", "lodgings", "customer"]
    text: str


class Weekend(BaseModel):
    """A wish, and where it stands."""

    request: str = "A weekend in Lyon from 1 December: the train, and a bed."
    decision: Decision | None = None
    goal: str = ""
    plan: Plan | None = None
    lodging: str | None = None


def news(state: Weekend) -> str:
    """What the supervisor is told: the wish first, then what came of its last decision."""
    match state.decision:
        case None:
            return state.request
        case Decision(to="journeys"):
            return f"journeys says: {state.plan.answer if state.plan else 'nothing'}"
        case _:
            return f"lodgings says: {state.lodging}"


def supervisor_script(messages: Messages, info: Info) -> Answer:
    """What the supervisor's model would say."""
    match told(messages):
        case [_]:
            return give(to="journeys", text="Get the customer to Lyon on 1 December.")
        case [_, journey] if "booked" in journey:
            return give(to="lodgings", text="Find a bed in Lyon.")
        case [_, *answers]:
            return give(to="customer", text="; ".join(answers))
        case _:
            return give(to="customer", text="What can I do for you?")


def lodgings_script(messages: Messages, info: Info) -> Answer:
    """What the model of lodgings would say."""
    return say("a room at the Auberge du Lac")


supervisor = Agent(
    "supervisor",
    model=model(supervisor_script),
    instructions="You get a customer what they want. Decide who is next: `journeys` books trains, "
    "`lodgings` finds a bed, and when all is done or cannot be done, tell the `customer`.",
    output=Decision,
    memory="run",
)
lodgings = Agent(
    "lodgings", model=model(lodgings_script), instructions="You name a place to sleep."
)

graph = Graph("supervised_planning", state=Weekend, description="A graph of agents as one of many.")
graph.agent("decide", supervisor, input=news, output="decision")
graph.node(name="brief")(lambda state: {"goal": state.decision.text})
graph.subgraph(
    "journeys", plan_execute_replan.graph, input={"goal": "goal"}, output={"plan": "plan"}
)
graph.agent("lodgings", lodgings, input=lambda state: state.decision.text, output="lodging")
graph.edge(START, "decide")
graph.edge("decide", "brief", when={"decision.to": "journeys"})
graph.edge("decide", "lodgings", when={"decision.to": "lodgings"})
graph.edge("decide", END, when="else")
graph.edge("brief", "journeys")
graph.edge("journeys", "decide")
graph.edge("lodgings", "decide")
