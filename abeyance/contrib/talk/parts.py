"""The parts of a segment, in the order in which a user interface shows them: see `segments`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from abeyance import views
from abeyance.core.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBegan:
    """The code of a node, or a turn of an agent, began."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """The step is over, or waits for an answer."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subagent:
    """An agent that another agent calls as a tool. `id` is its address, `parent` the caller's address if
    the caller is a subagent too, and `call_id` the id of the call.
    """

    id: str
    name: str
    parent: str | None
    call_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentBegan:
    """A subagent works."""

    agent: Subagent


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentEnded:
    """A subagent is done, or the run waits for people. `interrupts` are its own open questions."""

    agent: Subagent
    is_waiting: bool = False
    interrupts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call of a model."""

    id: str
    tool: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TextBegan:
    """A model begins to speak. `id` is the id of the message; `subagent` speaks, unless it is None."""

    id: str
    subagent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The text that the model has added."""

    id: str
    text: str
    subagent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnded:
    """The text is complete, or the turn begins anew, with another message."""

    id: str
    subagent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn is over, after its text. `id` is the id of its message; `subagent` took the turn, if any."""

    id: str
    calls: tuple[Call, ...]
    subagent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A tool call has ended. `status` is `success`, `failed`, `denied` or `interrupted`.

    `call` is None if the transcript cannot be read.
    """

    id: str
    call_id: str
    tool: str
    status: str
    content: Json
    call: Call | None = None
    subagent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Questions have opened while other parts of the run go on."""

    interrupts: tuple[views.InterruptView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Why nothing happens (`paused`, `blocked`, ...), or an event that the code of a node has emitted."""

    name: str
    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one model."""

    model: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The segment is over: the run waits for people."""

    view: views.RunView
    interrupts: tuple[views.InterruptView, ...]
    usage: tuple[Usage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The segment and the run are over."""

    view: views.RunView
    usage: tuple[Usage, ...] = ()


Part: TypeAlias = (
    StepBegan
    | StepEnded
    | SubagentBegan
    | SubagentEnded
    | TextBegan
    | TextDelta
    | TextEnded
    | Turn
    | Result
    | Opened
    | Notice
    | Waiting
    | Ended
)
