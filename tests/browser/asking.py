"""A graph for the tests of the inbox, which asks for every kind of field in one answer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from abeyance import END, START, Graph

HOSTILE = "<img src=x onerror=\"document.title='broken into'\"> & <b>bold</b>"


class Decision(BaseModel):
    """The answer of a person."""

    approved: bool
    how: Literal["by bank", "in cash"]
    amount: float = Field(ge=0, le=500)
    note: str | None = None
    details: dict[str, Any] = {}


class Asked(BaseModel):
    """The prompt of the question, and its answer."""

    prompt: str = "Pay?"
    decision: Decision | None = None


graph = Graph("asking", state=Asked)
graph.interrupt(
    "decide",
    prompt="{prompt}",
    payload={"details": {"iban": "DE02"}, "told": HOSTILE},
    response=Decision,
    answer_to="decision",
    requested_capability="refunds:approve",
    timeout="P2D",
)
graph.edge(START, "decide")
graph.edge("decide", END)
