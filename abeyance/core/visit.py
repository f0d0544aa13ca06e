"""A visit: one execution of a node, the state that it is in, and the transitions between states.

Whether a visit may run, runs, or waits is one value, `Visit.state`, and what is only true in one state is
part of that state. `TRANSITIONS` is the one table of what may follow what, and `transition` the one
function that changes the state; it refuses what the table does not have, because that is a fault of this
program. A visit that is over is removed from the run, so the union has no state for it.

To add a state: write its class, name it in `VisitState`, and add its lines to the table. Every place that
has to distinguish states matches on the union, and the type checker names those that lack the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from abeyance.core.copying import changeable
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.outcome import Call, Finished
from abeyance.core.spec import Decision

Stage: TypeAlias = Literal["entered", "before", "body", "error", "after", "rules"]
"""How far a visit has come: the breakpoint before its node, the node itself, the question to an operator
if it failed, the breakpoint after it, and the questions of rules. `entered`: nothing was looked at yet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It starts as soon as the run has a place for it, at `stage`: where that has asked people, they
    have answered.
    """

    kind: Literal["ready"] = "ready"
    stage: Stage = "entered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Its code runs; at the stage `rules`, only its route functions and rules.

    `answered_keys` are the keys of the answers that the code was started with. `stopping`: it was told to
    stop, and has not ended yet.
    """

    kind: Literal["running"] = "running"
    stage: Literal["body", "rules"] = "body"
    answered_keys: tuple[str, ...] = ()
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """It waits for people to answer what was asked at `stage`. `composite`: every answer starts it again,
    not only the last.
    """

    kind: Literal["waiting"] = "waiting"
    stage: Literal["before", "body", "error", "after", "rules"]
    composite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """A nested graph is walked for it, whose own visits have states of their own."""

    kind: Literal["nested"] = "nested"


VisitState: TypeAlias = Ready | Running | Waiting | Nested

Transition: TypeAlias = Literal[
    "start",
    "proceed",
    "stop",
    "stopped",
    "ask",
    "resume",
    "begin_graph",
    "end_graph",
    "fail",
    "end_call",
]

TRANSITIONS: Final[Mapping[tuple[type[VisitState], Transition], type[VisitState]]] = (
    MappingProxyType(
        {
            # It starts: its code, its route functions, or a nested graph.
            (Ready, "start"): Running,
            (Ready, "begin_graph"): Nested,
            # It goes to a later stage, and neither code nor a person is needed for that.
            (Ready, "proceed"): Ready,
            # Its code is told to stop, and has stopped: it runs again later.
            (Running, "stop"): Running,
            (Running, "stopped"): Ready,
            # People are asked: by the graph, by its code, by one rule after another.
            (Ready, "ask"): Waiting,
            (Running, "ask"): Waiting,
            (Waiting, "ask"): Waiting,
            # They have answered, or its code has to ask again because values have changed.
            (Waiting, "resume"): Ready,
            # Nothing is left in its nested graph.
            (Nested, "end_graph"): Ready,
            # It failed, and an operator is asked what to do.
            (Ready, "fail"): Waiting,
            (Running, "fail"): Waiting,
            (Nested, "fail"): Waiting,
            # A tool call has a result without its code: of a failure, or of a deadline.
            (Ready, "end_call"): Ready,
            (Running, "end_call"): Ready,
            (Waiting, "end_call"): Ready,
            (Nested, "end_call"): Ready,
        }
    )
)
"""Which transition leads from which state to which."""


class IllegalTransitionError(Exception):
    """A rule of the core has taken a transition that the table does not have: a fault of the core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error, and the address where it happened."""

    code: str
    message: str
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """Next step of a finished visit: the decision of a rule, else what its code chose, else the edges.

    `outcome` is that of its code, without what is merged already. `is_stale`: a person has edited the
    values since its route functions chose, so they run again.
    """

    outcome: Finished
    decision: Decision | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutBranch:
    """The item of a fan-out that a visit belongs to; `fan` is the address of the sending visit."""

    fan: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An answered question with a capability, and what it covers.

    `gate` is the address of the visit that asked: a visit of `node` in `scope`, within the items of
    `members`; `key` is the key of its question. `shown_hashes` are hashes of the values that people
    saw, by path. `begun`: what the answer allowed has begun; before that, nothing that was shown may
    change. `broken`: a person has changed values since, so the question is asked again. `routing` is
    the routing decision of a visit whose rule asked. `taken_tokens` are the tokens of other branches
    that joins have taken since.

    A question inside a nested graph or an item that is over is asked again together with all of it:
    `gate` is then the visit that the graph was walked for, or that sent the item.
    """

    gate: str
    scope: str
    node: str
    capability: str
    key: str = ""
    shown_hashes: Mapping[str, str] = field(default_factory=dict)
    members: tuple[FanOutBranch, ...] = ()
    begun: bool = False
    broken: bool = False
    routing: RoutingDecision | None = None
    taken_tokens: tuple[TakenToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Arrival of a visit at a join, with the approvals that cover it."""

    visit: str
    approvals: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenToken:
    """A token that a join has taken, with the edge and the source that it came from."""

    edge: str
    source: str
    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """Reverts the patches of a visit: the former values of fields, and the fields that did not exist."""

    fields: Mapping[str, Json] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


@changeable(slots=True, kw_only=True)
class Visit:
    """One execution of a node. `activations` counts the starts of its code (after stops and answers
    too).

    `answers` are the answers to its own questions, by key; `ask_counts` counts by key how often it
    asked. `user_state` is what its code stored when it asked. `pending_patch` is what its nested graph
    changed, or what a person put in place of a failed body; it is empty once merged. `failure` is
    what an operator is asked about. `routing` is set once the code has finished. `inbox` are the
    messages delivered at its start, `messages_taken` those that it asked for later. `guidance` is the
    text of a person who had it run again, and `undo` reverts its changes so far. `call` marks the call
    of a tool, and `result` is its result. `patch` is what its code had changed when it last asked or
    failed; it counts if the visit ends so.

    `approvals` cover it, the oldest first. `heard_from` are the capabilities of the people whose words
    it has read, None for people without any. `shown_hashes` are hashes of what its own questions
    showed, by key, and `shown_at` is the `moment` of the activation that asked. A moment is a state of
    the values and messages that the code could read.
    """

    address: str
    scope: str
    node: str
    state: VisitState = Ready()
    is_finally: bool = False
    activations: int = 0
    journal: Json = None
    answers: Mapping[str, Json] = field(default_factory=dict)
    routing: RoutingDecision | None = None
    members: tuple[FanOutBranch, ...] = ()
    results: Json = None
    interrupted: bool = False
    user_state: Json = None
    pending_patch: Mapping[str, Json] | None = None
    ask_counts: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    inbox: tuple[Message, ...] = ()
    messages_taken: tuple[Message, ...] = ()
    messages_read: int = 0
    guidance: str | None = None
    undo: Undo | None = None
    call: Call | None = None
    result: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()
    heard_from: tuple[str | None, ...] = ()
    shown_hashes: Mapping[str, str] = field(default_factory=dict)
    shown_at: Mapping[str, int] = field(default_factory=dict)
    moment: int = 0


def transition(visit: Visit, name: Transition, to: VisitState) -> None:
    """Change the state of a visit. Raise IllegalTransitionError if `TRANSITIONS` has no such change."""
    if TRANSITIONS.get((type(visit.state), name)) is not type(to):
        message = (
            f"{visit.address} cannot {name!r} from {type(visit.state).__name__} to "
            f"{type(to).__name__}: add the transition to TRANSITIONS, or do not take it"
        )
        raise IllegalTransitionError(message)
    visit.state = to
