"""Deep agent: it keeps a list of what is to do, asks several things at once, and has agents for the rest.

    abeyance run deep_agent --run-id brief --wait
    abeyance respond brief '{"period": "last winter", "reader": "the board"}'

The questions are the model's own, so the form of the answer is made of them: one interrupt, a field for
each question, none of which may be left out. The list of what is to do is in the agent's state, which is
small and kept from turn to turn.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from abeyance import START, Agent, Graph, ToolContext, tool
from examples.agents.model import Answer, Info, Messages, call, call_all, model, results, say, told


class Brief(BaseModel):
    """What is to be written, and the text."""

    request: str = "Write me a brief about our electricity."
    text: str | None = None


class Question(BaseModel):
    """Something that only a person knows; `key` names the answer."""

    key: str
    question: str


@tool
async def ask(ctx: ToolContext, questions: list[Question]) -> dict[str, str]:
    """Ask the person all that you must know, at once. The answers come back under their keys."""
    properties = {q.key: {"type": "string", "description": q.question} for q in questions}
    answers: dict[str, str] = await ctx.interrupt(
        "questions",
        prompt="\n".join(f"{q.key}: {q.question}" for q in questions),
        response={
            "type": "object",
            "properties": properties,
            "required": [*properties],
            "additionalProperties": False,
        },
    )
    return answers


@tool
async def write_todos(ctx: ToolContext, todos: list[str]) -> str:
    """Write down what is to be done, in place of what was written down before."""
    ctx.agent_state["todos"] = todos
    return f"{len(todos)} things are to be done"


@tool
async def meter_readings(period: str) -> list[int]:
    """The electricity used in a period, in kWh for each month."""
    return [412, 455, 431] if "winter" in period else [208, 190, 215]


def researcher_script(messages: Messages, info: Info) -> Answer:
    """What the researcher's model would say."""
    if not (found := results(messages)):
        return call("meter_readings", period=told(messages)[0])
    return say(f"{sum(found[-1].content)} kWh in three months")


def writer_script(messages: Messages, info: Info) -> Answer:
    """What the writer's model would say."""
    return say(f"A brief. {told(messages)[0]}")


def script(messages: Messages, info: Info) -> Answer:
    """What the deep agent's model would say."""
    known: dict[str, Any] = {part.tool: part.content for part in results(messages)}
    match known:
        case {"writer": text}:
            return say(text)
        case {"researcher": facts, "ask": {"reader": reader}}:
            return call("writer", task=f"For {reader}: {facts}.")
        case {"ask": {"period": period}}:
            return call("researcher", task=f"How much electricity was used {period}?")
        case _:
            questions = [
                {"key": "period", "question": "Which months is it about?"},
                {"key": "reader", "question": "Who is going to read it?"},
            ]
            todos = ["ask", "find the numbers", "write"]
            return call_all(("write_todos", {"todos": todos}), ("ask", {"questions": questions}))


researcher = Agent("researcher", model=model(researcher_script), tools=[meter_readings])
writer = Agent("writer", model=model(writer_script), instructions="You write briefs, of few words.")
deep = Agent(
    "deep",
    model=model(script),
    instructions="Write down what is to do, and ask once for all that you must know: the period (key "
    "`period`) and the reader (key `reader`). Then have the numbers found and the text written.",
    tools=[
        write_todos,
        ask,
        researcher.as_tool(description="Finds numbers, for a period that you name."),
        writer.as_tool(description="Writes the text, of facts and for a reader that you name."),
    ],
)

graph = Graph("deep_agent", state=Brief, description="Several questions at once, and agents below.")
graph.agent("work", deep, input="request", output="text")
graph.edge(START, "work")
