"""A visit: one execution of a node, the state that it is in, and the transitions between states.

Whether a visit may run, runs, or waits is one value, `Visit.state`, and what is only true in one state is
part of that state. `TRANSITIONS` is the one table of what may follow what, and `transition` the one
function that changes the state; it refuses what the table does not have, because that is a fault of this
program. A visit that is over is removed from the run, so the union has no state for it.

To add a state: write its class, name it in `VisitState`, and add its lines to the table. Every place that
has to distinguish states matches on the union, and the type checker names those that lack the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from abeyance.core.address import (
    AddressText,
    ApprovedNode,
    EdgeKey,
    NodeName,
    QuestionKey,
    VisitedNode,
)
from abeyance.core.bounds import Attempts
from abeyance.core.events import Message
from abeyance.core.json import Json
from abeyance.core.outcome import Call, Finished
from abeyance.core.spec import Decision
from abeyance.core.tables import ALL, Index, Table

Stage: TypeAlias = Literal["entered", "before", "body", "error", "after", "rules"]
"""How far a visit has come: the breakpoint before its node, the node itself, the question to an operator
if it failed, the breakpoint after it, and the questions of rules. `entered`: nothing was looked at yet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It starts as soon as the run has a place for it, at `stage`: where that has asked people, they have
    answered. A pause before it lasts until `not_before`, after a failed attempt with its `error`, or for
    a rule that retries. `queued`: it waits for a place alone.
    """

    kind: Literal["ready"] = "ready"
    stage: Stage = "entered"
    not_before: datetime | None = None
    error: str | None = None
    queued: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The code of the visit runs; at the stage `rules`, only its route functions and rules.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unroutable:
    """The code of the visit has ended, and chose a node that the run's graph does not have. The visit
    waits until the run is migrated to a graph with that node.
    """

    kind: Literal["unroutable"] = "unroutable"


VisitState: TypeAlias = Ready | Running | Waiting | Nested | Unroutable

Transition: TypeAlias = Literal[
    "start",
    "proceed",
    "stop",
    "stopped",
    "retry",
    "ask",
    "resume",
    "begin_graph",
    "end_graph",
    "fail",
    "end_call",
    "hold",
    "migrate",
]

TRANSITIONS: Final[Mapping[tuple[type[VisitState], Transition], type[VisitState]]] = (
    MappingProxyType(
        {
            # It starts: its code, its route functions, or a nested graph.
            (Ready, "start"): Running,
            (Ready, "begin_graph"): Nested,
            # It goes to a later stage, and neither code nor a person is needed for that.
            (Ready, "proceed"): Ready,
            (Running, "proceed"): Ready,
            # The run asks the code to stop; the code has stopped and runs again later.
            (Running, "stop"): Running,
            (Running, "stopped"): Ready,
            # Its code has failed, and runs again after a pause.
            (Running, "retry"): Ready,
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
            # It has nowhere to go, until its graph has the node that it chose.
            (Ready, "hold"): Unroutable,
            (Running, "hold"): Unroutable,
            (Unroutable, "migrate"): Ready,
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
    address: AddressText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockage:
    """The reason why the code of a visit cannot run now, and since when.

    `is_unread`: a worker could not read the visit itself, so the run has no journal of it.
    """

    code: str
    message: str
    since: datetime
    is_unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """Next step of a finished visit: the decision of a rule, else what its code chose, else the edges.

    `outcome` is that of its code, without what is merged already. `is_stale`: its route functions have
    not run on the current values, which a person has edited since, or its node has no code.
    """

    outcome: Finished
    decision: Decision | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutBranch:
    """The item of a fan-out that a visit belongs to; `fan` is the address of the sending visit."""

    fan: AddressText
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An answered question, and what its answer led to (`gates`).

    `visit` is the visit that asked: one of `node` in `scope`, within the items of `members`; `key` is the
    key of its question. A question inside a nested graph or an item that is over is asked again together
    with all of it: these are then the visit that the graph was walked for, or that sent the item.

    `shown` are hashes of the values that people saw, by path. `begun` counts the visits whose code has
    begun because of the answer; `has_led`: some has, although the answer is held against the values
    again. `capability` is None if everybody could have answered. `is_restricted`:
    not everybody with the capability could have, or not alone. `answer_to` is the field that holds the
    answer. `before` are the gates that had led to it. `routing` is the routing decision of a visit whose
    rule asked. `taken` are the tokens of other branches that joins have taken together with its own.
    """

    question: str
    visit: AddressText
    scope: AddressText
    node: ApprovedNode
    key: QuestionKey
    capability: str | None
    is_restricted: bool
    members: tuple[FanOutBranch, ...] = ()
    shown: Mapping[str, str] = field(default_factory=dict)
    answer_to: str | None = None
    begun: int = 0
    has_led: bool = False
    before: tuple[str, ...] = ()
    routing: RoutingDecision | None = None
    taken: tuple[TakenToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Arrival of a visit at a join, with the ids of the gates that led to it."""

    visit: AddressText
    gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenToken:
    """A token that a join has taken, with the edge and the source that it came from."""

    edge: EdgeKey
    source: NodeName
    token: Token


NO_MOMENT: Final = -1
"""Comes before every `moment`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """A visit's own questions, by key: how often each was asked, what it showed, and the answers.

    `shown_hashes` are hashes of what the questions showed, and `shown_at` is the `moment` of the
    activation that asked. A moment is a state of the values and messages that the code could read.
    """

    answers: Mapping[QuestionKey, Json] = field(default_factory=dict)
    ask_counts: Mapping[QuestionKey, int] = field(default_factory=dict)
    shown_hashes: Mapping[QuestionKey, str] = field(default_factory=dict)
    shown_at: Mapping[QuestionKey, int] = field(default_factory=dict)
    moment: int = 0

    def asked(self, key: str) -> Questions:
        return replace(self, ask_counts={**self.ask_counts, key: self.ask_counts.get(key, 0) + 1})

    def showing(self, key: str, content: str) -> Questions:
        return replace(
            self,
            shown_hashes={**self.shown_hashes, key: content},
            shown_at={**self.shown_at, key: self.moment},
        )

    def answered(self, key: str, answer: Json) -> Questions:
        return replace(self, answers={**self.answers, key: answer})

    def used_up(self, keys: Collection[str]) -> Questions:
        """Let the answers that code has used count, whatever their questions would show now."""
        left = {key: moment for key, moment in self.shown_at.items() if key not in keys}
        return replace(self, shown_at=left)

    def without(self, keys: Container[str]) -> Questions:
        left = {key: answer for key, answer in self.answers.items() if key not in keys}
        return replace(self, answers=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state that a visit's code left for its next start when it last asked, stopped or failed.

    `journal` are its finished steps, `user_state` is what it stored when it asked, and `interrupted`
    says that it has asked. `patch` is what it had changed: it counts only if the visit ends without
    running its code again. `attempts` are those that failed since the visit began or was answered.
    """

    journal: Json = None
    user_state: Json = None
    interrupted: bool = False
    patch: Mapping[str, Json] = field(default_factory=dict)
    attempts: Attempts = field(default_factory=Attempts)

    def after_failure(self, journal: Json, patch: Mapping[str, Json]) -> Checkpoint:
        """Return the checkpoint of code that failed for good, or whose outcome the run refuses."""
        kept = self.journal if journal is None else journal
        return replace(self, journal=kept, patch=patch or self.patch, attempts=Attempts())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """The messages of a visit: those `delivered` at its start, those `taken` when its code asked for
    them, and how many of the latter the code has received for certain.
    """

    delivered: tuple[Message, ...] = ()
    taken: tuple[Message, ...] = ()
    read_count: int = 0


@dataclass(slots=True, kw_only=True)
class Visit:
    """One execution of a node.

    How it began: `members` are the items of fan-outs that it belongs to, `results` those gathered at the
    join before its node. `call` marks the call of a tool. `is_finally`: its node runs after the run's
    end. `first_address` is what other services know it by, if not its address: where its code first ran,
    if a migration has renamed it since; within a fan-out, a place that does not depend on which item
    came first.

    `activations` counts the starts of its code, after stops and answers too. `gates` are the ids of the
    questions whose answers led to it, the oldest first. `misfits` says, by the key of a question, why the
    answer that was given before cannot be read any more. `repeats` are the keys of questions whose
    earlier answer led to code that has begun, and that will begin again.

    How it ends: `pending` is the outcome that ends it without running its code, until it is merged: the
    changes of its nested graph, the values that a person gave in place of a failed body, or the result of
    a dropped call. `routing` is set once the code has finished. `failure` is what an operator was last
    asked about.
    """

    address: AddressText
    scope: AddressText
    node: VisitedNode
    members: tuple[FanOutBranch, ...] = ()
    results: Json = None
    call: Call | None = None
    is_finally: bool = False
    first_address: str | None = None
    state: VisitState = Ready()
    activations: int = 0
    gates: tuple[str, ...] = ()
    questions: Questions = field(default_factory=Questions)
    misfits: Mapping[QuestionKey, str] = field(default_factory=dict)
    repeats: tuple[QuestionKey, ...] = ()
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    inbox: Inbox = field(default_factory=Inbox)
    pending: Finished | None = None
    routing: RoutingDecision | None = None
    failure: Failure | None = None
    blocked: Blockage | None = None


def _state_groups(visit: Visit) -> tuple[Any, ...]:
    match visit.state:
        case Ready(not_before=datetime()):
            return (Ready, "busy")
        case Ready(queued=queued):
            return (Ready, "queued" if queued else "to start", "busy")
        case Waiting():
            return (Waiting, "asked")
        case Nested():
            return (Nested,)
        case state:
            return (type(state), "busy")


def _branches(visit: Visit) -> tuple[Any, ...]:
    fans = (each.fan for each in visit.members)
    return (*fans, *((each.fan, each.index) for each in visit.members))


BY_STATE: Final = Index[Visit](_state_groups)
"""Visits by their state; ready visits by what they wait for; and by who has to act: the run is `busy`, or
a person is `asked`.
"""
BY_SCOPE: Final = Index[Visit](lambda visit: (visit.scope,))
BY_BRANCH: Final = Index(_branches)
"""Visits by the fan-outs that they are in, and by the items: the fan-out and its index."""
BLOCKED: Final = Index[Visit](lambda visit: (ALL,) if visit.blocked else ())
PAUSED: Final = Index[Visit](
    lambda visit: (ALL,) if isinstance(visit.state, Ready) and visit.state.not_before else (),
    order=lambda visit: visit.state.not_before,  # type: ignore[union-attr]
)
"""Visits in a pause before they start, the first to end first."""


class VisitTable(Table[str, Visit]):
    """The visits of a run by address, the oldest first."""

    ROW = Visit
    INDICES = (BY_STATE, BY_SCOPE, BY_BRANCH, BLOCKED, PAUSED)
    __slots__ = ()


IN_SCOPE: Final = Index[Gate](lambda gate: (gate.scope,))


class GateTable(Table[str, Gate]):
    """The gates of a run by the ids of their questions, in the order of the answers."""

    ROW = Gate
    INDICES = (IN_SCOPE,)
    __slots__ = ()


def transition(visit: Visit, name: Transition, to: VisitState) -> None:
    """Change the state of a visit. Raise IllegalTransitionError if `TRANSITIONS` has no such change."""
    if TRANSITIONS.get((type(visit.state), name)) is not type(to):
        raise IllegalTransitionError(
            f"{visit.address} cannot {name!r} from {type(visit.state).__name__} to "
            f"{type(to).__name__}: add the transition to TRANSITIONS, or do not take it"
        )
    visit.state = to
