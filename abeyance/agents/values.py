"""The values of an agent's graph: small, because they travel with every order to a worker.

The conversation itself is kept outside the history, and only a reference to its end is here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from abeyance.core.events import Message
from abeyance.values.reducers import merge

REMEMBERED = ("transcript", "agent_state")
"""What the next visit of an agent with a memory begins with."""


class AgentValues(BaseModel):
    """`input` is what the visit was entered with, until the first turn has read it.

    `transcript` refers to the conversation so far. `turns` counts the turns of the model, `corrections`
    those in a row that were to mend an output. `usage` is the sum of what the model reported.
    `agent_state` is what hooks and tools remember. `known` are results of the last turn's calls that
    needed nothing to be run, `waiting` the calls that follow one by one, and `heard` messages that came
    while these were made. `output` is the result.
    """

    input: Any = None
    transcript: str | None = None
    turns: int = 0
    corrections: int = 0
    usage: dict[str, int] = Field(default_factory=dict)
    agent_state: Annotated[dict[str, Any], merge] = Field(default_factory=dict)
    known: dict[str, Any] = Field(default_factory=dict)
    waiting: list[Any] = Field(default_factory=list)
    heard: list[Message] = Field(default_factory=list)
    output: Any = None
