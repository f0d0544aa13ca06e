"""Feedback loop: an agent writes, a person says what they think of it, until they are content.

    abeyance run feedback_loop --run-id poem --wait
    abeyance respond poem '{"content": false, "feedback": "Shorter, please."}'
    abeyance respond poem '{"content": true}'

The agent is a node of the graph and remembers the conversation from visit to visit (`memory="run"`); the
question is a node too, so the loop is plain edges, and `max_turns` counts each visit by itself.
"""

from __future__ import annotations

from pydantic import BaseModel

from abeyance import END, START, Agent, Graph
from examples.agents.model import Answer, Info, Messages, model, say, told


class Review(BaseModel):
    """What a person thinks of a draft."""

    content: bool
    feedback: str = ""


class Piece(BaseModel):
    """A text in the making."""

    topic: str = "a train that is late"
    draft: str | None = None
    review: Review | None = None


def order(piece: Piece) -> str:
    """What the writer is told: the topic first, then what the person thinks."""
    if piece.review is None:
        return f"Write two lines of verse about {piece.topic}."
    return f"Write it again. {piece.review.feedback}"


def script(messages: Messages, info: Info) -> Answer:
    """What a model would say."""
    _, *wishes = told(messages)
    if not wishes:
        return say("The board says ten, the clock says noon;\nthe train, they say, is coming soon.")
    return say(f"Soon, says the train, at noon.\n(draft {len(wishes) + 1}: {wishes[-1]})")


writer = Agent(
    "writer",
    model=model(script),
    instructions="You write verse. Answer with the verse alone.",
    memory="run",
)

graph = Graph("feedback_loop", state=Piece, description="A text that is written until it pleases.")
graph.agent("write", writer, input=order, output="draft")
graph.interrupt("review", prompt="{draft}", response=Review, answer_to="review")
graph.edge(START, "write")
graph.edge("write", "review")
graph.edge("review", END, when={"review.content": True})
graph.edge("review", "write", when="else")
