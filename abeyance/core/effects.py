"""What a run wants done: a closed union of imperatives, carried out by whoever drives the core.

An effect is complete: it carries what its execution needs as it was when the effect was decided,
because the run may have moved on by the time that somebody gets to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from abeyance.core.canonical import Json
from abeyance.core.events import Call, Message
from abeyance.core.model import FunctionNode, GraphSpec, Node

StopReason: TypeAlias = Literal["pause", "rotation", "ending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNode:
    """Run a visit's code; how it ended is NodeFinished, NodeInterrupted, NodeStopped or NodeFailed.

    `graph` is the one that the node is of, and `path` the nodes through which nested graphs lead to
    it. `start` counts the times that this visit was started. `answers` are those of the scope, `own`
    those to the visit's own questions by their keys, and `bound` the hashes of what was shown with those
    that count only if it is the same; `interrupted`: it has asked before, and kept
    `saved`. `item` is that of a fan-out, `results` what came together at the join before the node.
    `inbox` are the messages that the visit has taken, `guidance` what somebody said who had it run again.
    `outcome` is the run's, for a finally node. `call` says of which tool call it is.
    """

    visit: str
    graph: GraphSpec
    path: tuple[str, ...]
    node: FunctionNode
    start: int
    values: Mapping[str, Json]
    answers: Mapping[str, Json]
    own: Mapping[str, Json]
    bound: Mapping[str, str]
    journal: Json
    saved: Json
    interrupted: bool
    item: Json
    results: Json
    inbox: tuple[Message, ...]
    guidance: str | None
    outcome: str | None
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideRoutes:
    """Ask the route functions and rules of a node that ran no code; tell it by NodeFinished with
    `routed` and `fired`.
    """

    visit: str
    graph: GraphSpec
    path: tuple[str, ...]
    node: Node
    values: Mapping[str, Json]
    answers: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopNode:
    """Stop a visit's code. `abandon`: nobody waits for what becomes of it."""

    visit: str
    reason: StopReason
    abandon: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """Tell the world a fact: what happened, never what was answered. `number` counts a run's facts."""

    number: int
    time: datetime
    type: str
    address: str | None
    actor: str | None
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """More is ready than one workflow task may send: begin another soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """All is done. Close the run, unless something that came with it says otherwise."""


Effect: TypeAlias = RunNode | DecideRoutes | StopNode | Publish | Yield | Finish
