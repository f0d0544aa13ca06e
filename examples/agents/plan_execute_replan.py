"""Plan, execute, replan: one agent plans, one does a step at a time, one looks at what came of it.

    abeyance run plan_execute_replan --run-id journey --wait
    abeyance respond journey '{"approved": false, "reason": "no early trains"}'

Each agent is a node of the graph, and the loop is an edge back. The planners give typed outputs; one that
does not fit is corrected by the model. A booking has to be approved, and a rejection changes the plan.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, model_validator

from abeyance import END, START, Agent, Graph, append, tool
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
    """A goal, the plan as it is now, and what was done."""

    goal: str = "Get me to Lyon on 1 December."
    plan: Plan | None = None
    report: str | None = None
    done: Annotated[list[str], append] = []

    @property
    def left(self) -> list[str]:
        """What is still to be done."""
        return self.plan.steps if self.plan else []


@tool(approve=True, prompt="Book the {time} train to {destination}?")
async def book_train(destination: str, time: str) -> str:
    """Book a train."""
    return f"booked: the {time} train to {destination}"


def next_step(state: Journey) -> str:
    """What the executor is told."""
    return state.left[0]


def what_next(state: Journey) -> str:
    """Do the next step, if there is one."""
    return "execute" if state.left else END


def so_far(state: Journey) -> str:
    """What the replanner is told."""
    return f"Goal: {state.goal}\nPlan: {state.left}\nDone so far: {state.done}"


def planner_script(messages: Messages, info: Info) -> Answer:
    """What the planner's model would say."""
    return give(steps=["Book the 06:10 train to Lyon.", "Tell the traveller."])


def executor_script(messages: Messages, info: Info) -> Answer:
    """What the executor's model would say."""
    step = told(messages)[0]
    if results(messages):
        return say(str(results(messages)[-1].content))
    if step.startswith("Book the "):
        return call("book_train", destination="Lyon", time=step.split()[2])
    return say("told the traveller")


def replanner_script(messages: Messages, info: Info) -> Answer:
    """What the replanner's model would say."""
    said = told(messages)[0].partition("Done so far: ")[2]
    if said.count("rejected") > 1:
        return give(answer="There is no train that you want.")
    if "booked" in said:
        return give(answer="Your train to Lyon is booked.")
    return give(steps=["Book the 10:10 train to Lyon.", "Tell the traveller."])


planner = Agent(
    "planner",
    model=model(planner_script),
    instructions="Make a plan of few steps, each of which can be done by itself. You cannot do them.",
    output=Plan,
)
executor = Agent(
    "executor",
    model=model(executor_script),
    instructions="Do this one step. Answer with what came of it. If a booking is rejected, say why.",
    tools=[book_train],
)
replanner = Agent(
    "replanner",
    model=model(replanner_script),
    instructions="You get a goal, a plan, and what was done. Give the steps that are still to be done, "
    "others than before where something was rejected; or the answer, when nothing is left to do.",
    output=Plan,
)

graph = Graph("plan_execute_replan", state=Journey, description="A plan that changes on the way.")
graph.agent("plan", planner, input="goal", output="plan")
graph.agent("execute", executor, input=next_step, output="report")
graph.agent("replan", replanner, input=so_far, output="plan")


@graph.node
def note(state: Journey) -> dict[str, Any]:
    """Add what was reported to what was done."""
    return {"done": [f"{state.left[0]} -> {state.report}"]}


graph.edge(START, "plan")
graph.route("plan", what_next, to=["execute", END])
graph.edge("execute", "note")
graph.edge("note", "replan")
graph.route("replan", what_next, to=["execute", END])
