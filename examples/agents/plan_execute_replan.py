"""Plan, execute, replan: one agent plans, another does one step, the first looks at what came of it.

    abeyance run plan_execute_replan --run-id journey --wait
    abeyance respond journey '{"approved": false, "reason": "no early trains"}'

Each agent is a node of the graph, and the loop is an edge back. The planner remembers (`memory="run"`),
and gives a typed output; one that does not fit it corrects. A booking has to be approved, and a rejection
changes the plan.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, model_validator

from abeyance import END, START, Agent, Graph, tool
from examples.agents.model import Answer, Info, Messages, call, give, model, results, say, told


class Plan(BaseModel):
    """The steps that are left, in order; or the answer, when none is left."""

    steps: list[str] = []
    answer: str = ""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if bool(self.steps) == bool(self.answer):
            raise ValueError("give the steps that are left, or the answer when none is left")
        return self


class Journey(BaseModel):
    """A goal, the plan as it is now, and what came of the last step."""

    goal: str = "Get me to Lyon on 1 December."
    plan: Plan | None = None
    report: str | None = None

    @property
    def left(self) -> list[str]:
        """What is still to be done."""
        return self.plan.steps if self.plan else []


@tool(approve=True, prompt="Book the {time} train to {destination}?")
async def book_train(destination: str, time: str) -> str:
    """Book a train."""
    return f"booked: the {time} train to {destination}"


def news(state: Journey) -> str:
    """What the planner is told: the goal first, then what came of each step."""
    return f"{state.left[0]} {state.report}" if state.left else state.goal


def planner_script(messages: Messages, info: Info) -> Answer:
    """What the planner's model would say."""
    _, *reports = told(messages)
    if reports and "booked" in reports[-1]:
        return give(answer="Your train to Lyon is booked.")
    if len(reports) > 1:
        return give(answer="There is no train that you want.")
    time = "10:10" if reports else "06:10"
    return give(steps=[f"Book the {time} train to Lyon.", "Tell the traveller."])


def executor_script(messages: Messages, info: Info) -> Answer:
    """What the executor's model would say."""
    if found := results(messages):
        return say(str(found[-1].content))
    return call("book_train", destination="Lyon", time=told(messages)[0].split()[2])


planner = Agent(
    "planner",
    model=model(planner_script),
    instructions="Plan how to reach a goal, in few steps that others do one by one. You hear what came "
    "of each: give the steps that are left, other ones where something was rejected, or the answer.",
    output=Plan,
    memory="run",
)
executor = Agent(
    "executor",
    model=model(executor_script),
    instructions="Do this one step. Answer with what came of it; if a booking is rejected, with why.",
    tools=[book_train],
)

graph = Graph("plan_execute_replan", state=Journey, description="A plan that changes on the way.")
graph.agent("plan", planner, input=news, output="plan")
graph.agent("execute", executor, input=lambda state: state.left[0], output="report")
graph.edge(START, "plan")
graph.route("plan", lambda state: "execute" if state.left else END, to=["execute", END])
graph.edge("execute", "plan")
