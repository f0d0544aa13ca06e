"""What is true of a run: one frozen value, and questions about it that change nothing.

`RunState` is all that there is. It is frozen: an `advance` changes a copy of its own (`draft`). Written
down as JSON and read again it is equal, and goes on as if it had never stopped: that is what
continue-as-new, tests in memory and, one day, a fork rest on. Everything in it is bounded by `Limits`.
Addresses are held as text, which is also how they key the maps: `scopes` by the address of the graph,
`visits` by their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from abeyance.core.copying import changeable
from abeyance.core.events import CancelMode, Message, PauseMode
from abeyance.core.json import Json
from abeyance.core.ledger import Interrupt, Ledger
from abeyance.core.mailbox import Mailbox
from abeyance.core.outcome import Call, Finished
from abeyance.core.spec import Decision, GraphSpec, Node, OnPauseTimeout, SubgraphNode

FORMAT = 1
"""The version of a snapshot's form. A change that old code could not read raises it."""


class Status(StrEnum):
    """What a run is shown as."""

    RUNNING = "running"
    AWAITING_INPUT = "awaiting-input"
    PAUSED = "paused"
    ENDING = "ending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HALTED = "halted"


Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "halted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that came under a key: the hash of all that it says and of who says it, and its receipt."""

    digest: str
    receipt: Json = None


class Phase(StrEnum):
    """Where a visit is: about to start, running code, waiting for people, or walking a nested graph,
    whose own visits say what it does.
    """

    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    NESTED = "nested"


Stage: TypeAlias = Literal["entered", "before", "body", "error", "after", "rules"]
"""How far a visit has come: the question before its node, the node itself, the question to an
operator when it failed, the question after it, and those of the rules.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one run. Times are in seconds, sizes in bytes, the length of messages in characters.
    `allowed_actions` of messages: none means all; `allowed_media_hosts`, from which their media may be
    loaded: none means none.

    `task_bytes` bounds what one workflow task sends, `visit_bytes` what one visit is given, for which
    Temporal has a bound of 2 MB where there is no storage; `settled_kept` how many settled interrupts
    are remembered, so that a repeated answer gets its first receipt.
    """

    max_queue_size: int = 100
    max_message_length: int = 10_000
    max_metadata_size: int = 100_000
    allowed_actions: tuple[str, ...] = ()
    allowed_media_hosts: tuple[str, ...] = ()
    max_visits: int = 1000
    max_guard_turns: int = 10
    max_parallel_visits: int = 50
    pause_timeout: float | None = None
    grace: float = 30.0
    finally_timeout: float = 60.0
    settled_kept: int = 1000
    task_bytes: int = 1_000_000
    visit_bytes: int = 1_900_000
    continue_as_new_after: int = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What failed, and where."""

    code: str
    message: str
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingDecision:
    """Where a finished visit leads: what a rule decided, else what its code chose, else the edges.

    `outcome` is that of its code, without what has been merged. `is_stale`: a person has edited the
    values since its route functions chose, so they are asked again.
    """

    outcome: Finished
    decision: Decision | None = None
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutBranch:
    """Of which item of which fan-out a visit is a part; `fan` is the address of the visit that sent."""

    fan: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A question with a capability that was answered, and that covers what the answer led to.

    `gate` is the address of the visit that asked, which was of `node` in `scope`, within the items of
    `members`; `key` is that of its question. `shown` are hashes of what people saw of the values, by
    path. `begun`: what the answer allowed has begun; until then nothing that was shown may change
    unseen. `broken`: a person has changed values since, so the question is asked again. `way` is where
    the visit led whose rule asked. `met` are the tokens of others that were taken since at joins.

    What was asked in a nested graph or an item of a fan-out that is over is asked again with all of it:
    `gate` is then the visit that the graph was walked for, or that sent the item.
    """

    gate: str
    scope: str
    node: str
    capability: str
    key: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    members: tuple[FanOutBranch, ...] = ()
    begun: bool = False
    broken: bool = False
    way: RoutingDecision | None = None
    met: tuple[Met, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """That a visit has come to a join, and the approvals that cover it."""

    visit: str
    approvals: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A token that was taken at a join, and from which of its sources it had come."""

    edge: str
    source: str
    token: Token


@changeable(slots=True, kw_only=True)
class Item:
    """One item of a fan-out: what its visits changed, said and reached so far.

    `reached` are the joins that it came to; `left`: a goto led out of the fan-out; `skipped`: a person
    skipped a visit that had failed. `changes` counts how often its values were changed. `result` is that
    of a tool call. `heard` is as that of its visits. `approvals` are those that were given in it.
    """

    item: Json
    reached: tuple[str, ...] = ()
    left: bool = False
    skipped: bool = False
    patch: Mapping[str, Json] = field(default_factory=dict)
    changes: int = 0
    answers: Mapping[str, Json] = field(default_factory=dict)
    visit_counts: Mapping[str, int] = field(default_factory=dict)
    result: Json = None
    heard: tuple[str | None, ...] = ()
    approvals: tuple[Approval, ...] = ()


@changeable(slots=True, kw_only=True)
class FanOut:
    """A fan-out that is under way. `joins` are where the graph gathers it, by the keys of the edges;
    `outer` is the membership of the visit that sent it, and `approvals` are what covered that.
    """

    outer: tuple[FanOutBranch, ...]
    joins: tuple[str, ...]
    items: list[Item]
    approvals: tuple[Approval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What takes the patches of a visit back: fields as they were, and those that were not there."""

    fields: Mapping[str, Json] = field(default_factory=dict)
    absent: tuple[str, ...] = ()


@changeable(slots=True, kw_only=True)
class Visit:
    """One execution of a node. `starts` counts how often its code was started (stops, re-entries).

    `answers` are those to its own questions, by their keys, and `given` the keys of those that its code
    was last started with. `asked` counts by key how often it asked. `saved` is what it kept when it
    asked. `composite`: each answer re-enters it. `returned` is what its nested graph changed, once that
    is over, or what a person put in place of what it failed to do; nothing is left of it once that is
    merged. `failure` is what an operator is asked about. A visit that has finished has in `way` where
    it leads. `inbox` are the messages that it was handed at its start, `taken` those that it asked for
    since; `guidance` is what a person said who had it run again, and `undo` takes back what it has
    changed so far. `call` says that it is the call of a tool, and `result` is what that has come to.
    `patch` is what its code had done when it last asked or failed, and counts if the visit ends so.

    `approvals` cover it, the oldest first. `heard` are the capabilities under which people have told it
    something, None for what anybody may say. `bound` are hashes of what its own questions showed, by
    their keys, and `bound_at` says at which `moment` the code was started that showed it: moments are
    told apart by the values and the messages that it could read.
    """

    address: str
    scope: str
    node: str
    phase: Phase = Phase.READY
    is_finally: bool = False
    created_at: datetime
    started_at: datetime | None = None
    starts: int = 0
    journal: Json = None
    answers: Mapping[str, Json] = field(default_factory=dict)
    stopping: bool = False
    way: RoutingDecision | None = None
    stage: Stage = "entered"
    members: tuple[FanOutBranch, ...] = ()
    results: Json = None
    interrupted: bool = False
    composite: bool = False
    given: tuple[str, ...] = ()
    saved: Json = None
    returned: Mapping[str, Json] | None = None
    asked: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    inbox: tuple[Message, ...] = ()
    taken: tuple[Message, ...] = ()
    read: int = 0
    guidance: str | None = None
    undo: Undo | None = None
    call: Call | None = None
    result: Json = None
    patch: Mapping[str, Json] = field(default_factory=dict)
    approvals: tuple[Approval, ...] = ()
    heard: tuple[str | None, ...] = ()
    bound: Mapping[str, str] = field(default_factory=dict)
    bound_at: Mapping[str, int] = field(default_factory=dict)
    moment: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """A message that was put off."""

    message_id: str
    text: str
    metadata: Mapping[str, Json]
    sender: str
    deferred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A visit of the trail of a scope: one that is over, how to take back what it changed, and the
    approvals that covered it.
    """

    node: str
    address: str
    undo: Undo
    size: int = 0
    approvals: tuple[Approval, ...] = ()


@changeable(slots=True, kw_only=True)
class Scope:
    """A graph that is being walked. `tokens` are, by join and source, the visits that have come.

    `ordinals` count a node's visits for its addresses; `visit_counts` for the bound on loops, and
    start anew when a person answers; `uncounted` are, by node, the visits in a row that were no round of
    a loop. `size` is that of the values, in bytes. A nested graph's scope has the `visit` that it is
    walked for, the `path` of nodes that leads to it from the root, and the values that it was `given`.
    `is_agent`: it is the graph of an agent. `fans` are the fan-outs under way, by the address of who
    sent them. `trail` are its last visits, oldest first, for as long as it has had one branch. `guards`
    counts the visits that were made because messages were unread. `approvals` are those that were given
    in it; `heard` are, by the fields of the values around it, the capabilities under which people have
    had them changed since it began.
    """

    address: str
    values: Mapping[str, Json]
    version: int = 1
    size: int = 0
    tokens: Mapping[str, Mapping[str, tuple[Token, ...]]] = field(default_factory=dict)
    ordinals: Mapping[str, int] = field(default_factory=dict)
    visit_counts: Mapping[str, int] = field(default_factory=dict)
    uncounted: Mapping[str, int] = field(default_factory=dict)
    answers: Mapping[str, Json] = field(default_factory=dict)
    visit: str | None = None
    is_agent: bool = False
    path: tuple[str, ...] = ()
    given: Mapping[str, Json] = field(default_factory=dict)
    fans: Mapping[str, FanOut] = field(default_factory=dict)
    trail: tuple[Step, ...] = ()
    guards: int = 0
    approvals: tuple[Approval, ...] = ()
    heard: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Since when, by whom and for how long a run is paused."""

    since: datetime
    actor: str
    reason: str | None
    mode: PauseMode
    deadline: datetime | None
    on_timeout: OnPauseTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run ends. `beside` are later reasons to end, which decide nothing but hide nothing."""

    outcome: Outcome
    reason: str | None
    since: datetime
    actor: str | None = None
    error: Failure | None = None
    mode: CancelMode = "graceful"
    grace_until: datetime | None = None
    native: bool = False
    finally_left: tuple[str, ...] = ()
    beside: tuple[Failure, ...] = ()

    @property
    def deadline(self) -> datetime | None:
        """Until when what still runs is waited for."""
        return self.grace_until


@changeable(slots=True, kw_only=True)
class Counters:
    """What is counted over a run's life."""

    messages_queued: int = 0
    messages_delivered: int = 0
    pause_count: int = 0
    resume_count: int = 0
    cancel_count: int = 0
    max_queue_depth: int = 0
    visits: int = 0


Rotation: TypeAlias = Literal["soft", "hard"]


@changeable(slots=True, kw_only=True)
class RunState:
    """A run. `facts` counts what was published; `task_bytes` what this workflow task has sent.

    `transcripts` are the conversations of agents that are over, by their addresses; `remembered` is what
    the next visit of an agent's node begins with. `keys` maps hashes of the last keys to the calls that
    came under them. `salt` tells what it asks from what an earlier run of its id
    has asked.
    """

    format: int = FORMAT
    run_id: str
    spec: GraphSpec
    limits: Limits
    created_at: datetime
    updated_at: datetime
    last_activity_at: datetime
    scopes: Mapping[str, Scope]
    visits: Mapping[str, Visit] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    mailbox: Mailbox = field(default_factory=Mailbox)
    todos: tuple[Todo, ...] = ()
    pause: Pause | None = None
    ending: Ending | None = None
    finished: bool = False
    rotation: Rotation | None = None
    counters: Counters = field(default_factory=Counters)
    transcripts: Mapping[str, str] = field(default_factory=dict)
    remembered: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    keys: Mapping[str, Called] = field(default_factory=dict)
    facts: int = 0
    task_bytes: int = 0
    yielding: bool = False
    salt: str = ""

    @property
    def root(self) -> Scope:
        """The scope of the run's own graph."""
        return self.scopes[f"graph:{self.spec.name}"]

    @property
    def status(self) -> Status:
        """What the run is shown as: ending before paused before awaiting-input before running."""
        if self.ending is not None:
            return Status(self.ending.outcome) if self.finished else Status.ENDING
        if self.pause is not None:
            return Status.PAUSED
        phases = {visit.phase for visit in self.visits.values()} - {Phase.NESTED}
        return Status.AWAITING_INPUT if phases == {Phase.WAITING} else Status.RUNNING

    def graph_of(self, scope: str) -> GraphSpec:
        """The graph that is walked in a scope."""
        graph = self.spec
        for node in self.scopes[scope].path:
            inner = graph.nodes[node]
            assert isinstance(inner, SubgraphNode)  # noqa: S101 a path leads through nothing else
            graph = inner.graph
        return graph

    def node_of(self, visit: Visit) -> Node:
        """The node that a visit is of."""
        return self.graph_of(visit.scope).nodes[visit.node]

    def in_phase(self, phase: Phase) -> Iterator[Visit]:
        """The visits in one phase, oldest first."""
        return (visit for visit in self.visits.values() if visit.phase is phase)

    def first_deadline(self) -> tuple[datetime, Interrupt | Pause | Ending] | None:
        """The first moment that the run waits for, and what will be due then; of equals the older."""
        first: tuple[datetime, Interrupt | Pause | Ending] | None = None
        for each in (*self.ledger.open.values(), self.pause, self.ending):
            deadline = None if each is None else each.deadline
            if each is not None and deadline is not None and (not first or deadline < first[0]):
                first = deadline, each
        return first

    def next_deadline(self) -> datetime | None:
        """When the run has to be ticked, if nothing else happens before."""
        first = self.first_deadline()
        moments = [] if first is None else [first[0]]
        if (expiry := self.mailbox.next_expiry()) is not None:
            moments.append(expiry)
        return min(moments, default=None)
