"""What a run wants done: a closed union of imperatives, carried out by whoever drives the core.

An effect is complete: it carries what its execution needs as it was when the effect was decided,
because the run may have moved on by the time that somebody gets to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.outcome import Call
from abeyance.core.spec import Rule

StopReason: TypeAlias = Literal["pause", "rotation", "ending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitInput:
    """What the code of a visit is given, wherever it runs.

    `kind`: run the visit's code, or only ask the route functions and rules of a node that ran none.
    `execution` tells this run from an earlier one that had the same id; whoever carries the run out fills
    it in. `graph` names the graph that the node is of; `root` the run's own, from which the nodes of
    `path` lead to it. `routes` names the route functions that the run's own graph has for the node;
    `rules` are those to be looked at after the visit, if any has CLIPS text. `asks` are the capabilities
    that the node may ask for.

    `start` counts the times that this visit was started. `answers` are those of the scope, `own`
    those to the visit's own questions by their keys, and `bound` the hashes of what was shown with those
    that count only if it is the same; `interrupted`: it has asked before, and kept
    `saved`. `item` is that of a fan-out, `results` what came together at the join before the node.
    `inbox` are the messages that the visit has taken, `guidance` what somebody said who had it run again.
    `outcome` is the run's, for a finally node. `call` says of which tool call it is.
    """

    kind: Literal["visit", "routes"] = "visit"
    run_id: str
    execution: str = ""
    root: str
    path: tuple[str, ...] = ()
    graph: str
    node: str
    address: str
    values: Mapping[str, Json]
    answers: Mapping[str, Json] = field(default_factory=dict)
    own: Mapping[str, Json] = field(default_factory=dict)
    bound: Mapping[str, str] = field(default_factory=dict)
    asks: tuple[str, ...] = ()
    start: int = 1
    retries: int = 0
    timeout: float | None = None
    local: bool = False
    journal: Json = None
    saved: Json = None
    interrupted: bool = False
    item: Json = None
    results: Json = None
    inbox: tuple[Message, ...] = ()
    guidance: str | None = None
    outcome: str | None = None
    call: Call | None = None
    routes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNode:
    """Run a visit's code, or ask for its routes; how that ended is `VisitEnded`.

    `heartbeat` is how many seconds the code may be silent.
    """

    input: VisitInput
    heartbeat: float = 5.0


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


Effect: TypeAlias = RunNode | StopNode | Publish | Yield | Finish
