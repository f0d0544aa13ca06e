"""The state of a run, with read-only queries on it.

`RunState` holds everything, and only an `advance` in progress changes it (`step`). Written as JSON and
read back it is equal, which is what continue-as-new and the tests in memory rely on. `Limits` bounds
everything in it. Addresses are stored as text, and key the tables: `scopes` by the address of the graph,
`visits` by their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from abeyance.core.address import AddressText, AnswerName, EdgeKey, NodeName
from abeyance.core.bounds import Account
from abeyance.core.effects import Publish
from abeyance.core.events import CancelMode, PauseMode
from abeyance.core.json import Json
from abeyance.core.ledger import DUE, Answerer, Interrupt, InterruptTable, Ledger
from abeyance.core.mailbox import Mailbox
from abeyance.core.outcome import VisitOutcome
from abeyance.core.spec import GraphSpec, Node, OnPauseTimeout, SubgraphNode
from abeyance.core.tables import ALL, Index, Table
from abeyance.core.visit import (
    BY_STATE,
    PAUSED,
    Failure,
    FanOutBranch,
    GateTable,
    Ready,
    Running,
    Token,
    Visit,
    VisitTable,
)

FORMAT = 1
"""Version of the snapshot's format. Raise it for a change that older code cannot read."""


class Status(StrEnum):
    """Status of a run, as callers see it."""

    RUNNING = "running"
    AWAITING_INPUT = "awaiting-input"
    PAUSED = "paused"
    ENDING = "ending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HALTED = "halted"
    # Temporal ends a run with this status, and the run does not notice.
    TERMINATED = "terminated"
    TIMED_OUT = "timed-out"


Outcome: TypeAlias = Literal["completed", "failed", "cancelled", "halted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call made with an idempotency key: the hash of its content and its caller, and its receipt."""

    digest: str
    receipt: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one run. Times are in seconds, sizes in bytes, message lengths in characters. Empty
    `allowed_actions` allow every action of a message; empty `allowed_media_hosts` allow no host to load
    media from.

    `task_bytes` bounds what one workflow task sends. `visit_bytes` bounds the input of one visit:
    without external storage Temporal allows 2 MB. `settled_kept` bounds the settled interrupts that are
    kept, so that a repeated answer gets its first receipt.
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


@dataclass(slots=True, kw_only=True)
class Item:
    """One item of a fan-out: the changes of its visits, their answers, and the joins that they reached.

    `left_fan_out`: a goto led out of the fan-out. `skipped`: a person skipped a failed visit of it.
    `changes` counts the changes of its values. `result` is the result of a tool call. `answerers` are
    those who answered a question last, by its name. `ordinals` count the visits of a node in it.
    """

    item: Json
    joins_reached: tuple[EdgeKey, ...] = ()
    left_fan_out: bool = False
    skipped: bool = False
    patch: Mapping[str, Json] = field(default_factory=dict)
    changes: int = 0
    answers: Mapping[AnswerName, Json] = field(default_factory=dict)
    answerers: Mapping[AnswerName, Answerer] = field(default_factory=dict)
    visit_counts: Mapping[NodeName, int] = field(default_factory=dict)
    ordinals: Mapping[NodeName, int] = field(default_factory=dict)
    result: Json = None


@dataclass(slots=True, kw_only=True)
class FanOut:
    """A fan-out under way. `joins` are the keys of the edges that gather it; `outer` is the membership
    of the sending visit, `first_address` is its, and `gates` are those that led to it.
    """

    outer: tuple[FanOutBranch, ...]
    joins: tuple[EdgeKey, ...]
    items: list[Item]
    gates: tuple[str, ...] = ()
    first_address: str | None = None


@dataclass(slots=True, kw_only=True)
class Scope:
    """A graph that is being walked. `tokens` are the visits waiting at joins, by join and source.

    `ordinals` count the visits of a node for their addresses. `visit_counts` enforce `max_visits`, and
    are reset by a person's answer. `size` is the size of the values in bytes. The scope of a nested graph
    has the `visit` that it is walked for, the `path` of nodes from the root, and its `input` values.
    `is_agent`: it is the graph of an agent. `fans` are the fan-outs under way, by the address of the
    sending visit.
    `guard_turns` counts the visits that were made because messages were unread. `handed` maps its fields
    to the outer ones whose values it began with. `answerers` are those who answered a question last, by
    its name. `account` is what was used of the graph's budget, None if it has none.
    """

    address: AddressText
    values: Mapping[str, Json]
    version: int = 1
    size: int = 0
    tokens: Mapping[EdgeKey, Mapping[NodeName, tuple[Token, ...]]] = field(default_factory=dict)
    ordinals: Mapping[NodeName, int] = field(default_factory=dict)
    visit_counts: Mapping[NodeName, int] = field(default_factory=dict)
    answers: Mapping[AnswerName, Json] = field(default_factory=dict)
    answerers: Mapping[AnswerName, Answerer] = field(default_factory=dict)
    visit: AddressText | None = None
    is_agent: bool = False
    path: tuple[str, ...] = ()
    input: Mapping[str, Json] = field(default_factory=dict)
    fans: Mapping[AddressText, FanOut] = field(default_factory=dict)
    guard_turns: int = 0
    handed: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None


BY_VISIT: Final = Index[Scope](lambda scope: (scope.visit,))
WITH_FANS: Final = Index[Scope](lambda scope: (ALL,) if scope.fans else ())


class ScopeTable(Table[str, Scope]):
    """The scopes of a run by address, the outer ones before those inside."""

    ROW = Scope
    INDICES = (BY_VISIT, WITH_FANS)
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause: since when, by whom and until when."""

    since: datetime
    actor: str
    reason: str | None
    mode: PauseMode
    deadline: datetime | None
    on_timeout: OnPauseTimeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The ending of a run. `secondary_errors` are later reasons to end: recorded, but without effect on
    the outcome.

    `before` is the run as it was when it came to its end, from which it can be retried, and `outcomes`
    are those of visits that still ran then, by address.
    """

    outcome: Outcome
    reason: str | None
    since: datetime
    actor: str | None = None
    error: Failure | None = None
    mode: CancelMode = "graceful"
    grace_until: datetime | None = None
    native: bool = False
    finally_pending: tuple[str, ...] = ()
    secondary_errors: tuple[Failure, ...] = ()
    before: RunState | None = None
    outcomes: Mapping[str, VisitOutcome] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Counters:
    """Totals over the life of a run."""

    messages_queued: int = 0
    messages_delivered: int = 0
    pause_count: int = 0
    resume_count: int = 0
    cancel_count: int = 0
    max_queue_depth: int = 0
    visits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """The work that the first event of a retried run completes: `facts` to publish, and the `outcomes` of
    visits that still ran when the run ended, by address.
    """

    facts: tuple[Publish, ...] = ()
    outcomes: Mapping[str, VisitOutcome] = field(default_factory=dict)


Rotation: TypeAlias = Literal["soft", "hard"]


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run. `events_published` numbers its events; `task_bytes` is what this workflow task has sent.

    `transcripts` are the references to finished conversations of agents, by address; `agent_memory` is
    what the next visit of an agent's node starts with. `keys` maps hashes of the latest idempotency
    keys to their calls. `salt` keeps its interrupt ids distinct from those of an earlier run with the
    same id. `era` tells what people are shown from what they were shown before the run was rewound.
    `earlier_guards` are capabilities that only graphs from which it was migrated can ask for.
    `resumption` is set until the first event after a retry. `starters` is who started the run.
    """

    format: int = FORMAT
    run_id: str
    spec: GraphSpec
    limits: Limits
    created_at: datetime
    updated_at: datetime
    last_activity_at: datetime
    scopes: ScopeTable
    visits: VisitTable = field(default_factory=VisitTable)
    ledger: Ledger = field(default_factory=Ledger)
    gates: GateTable = field(default_factory=GateTable)
    mailbox: Mailbox = field(default_factory=Mailbox)
    pause: Pause | None = None
    ending: Ending | None = None
    finished: bool = False
    rotation: Rotation | None = None
    counters: Counters = field(default_factory=Counters)
    transcripts: Mapping[AddressText, str] = field(default_factory=dict)
    agent_memory: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    keys: Mapping[str, Called] = field(default_factory=dict)
    events_published: int = 0
    task_bytes: int = 0
    yielding: bool = False
    salt: str = ""
    era: str = ""
    starters: tuple[str, ...] = ()
    earlier_guards: tuple[str, ...] = ()
    resumption: Resumption | None = None

    def __post_init__(self) -> None:
        # A run that was read has plain dictionaries.
        for name, table in (("scopes", ScopeTable), ("visits", VisitTable), ("gates", GateTable)):
            if not isinstance(rows := getattr(self, name), table):
                setattr(self, name, table(rows))

    def become(self, other: RunState) -> None:
        """Take over everything from another run."""
        for each in fields(RunState):
            setattr(self, each.name, getattr(other, each.name))

    @property
    def root(self) -> Scope:
        """The scope of the run's own graph."""
        return self.scopes[f"graph:{self.spec.name}"]

    @property
    def status(self) -> Status:
        """Ending comes before paused, paused before awaiting-input, that before running."""
        if self.ending is not None:
            return Status(self.ending.outcome) if self.finished else Status.ENDING
        if self.pause is not None:
            return Status.PAUSED
        visits = self.visits
        is_asked = not visits.count(BY_STATE, "busy") and visits.count(BY_STATE, "asked")
        return Status.AWAITING_INPUT if is_asked else Status.RUNNING

    def graph_of(self, scope: str) -> GraphSpec:
        graph = self.spec
        for node in self.scopes[scope].path:
            inner = graph.nodes[node]
            assert isinstance(inner, SubgraphNode)  # noqa: S101 a path leads through nothing else
            graph = inner.graph
        return graph

    def node_of(self, visit: Visit) -> Node:
        return self.graph_of(visit.scope).nodes[visit.node]

    def outward(self, visit: Visit) -> Iterator[Visit]:
        """Yield a visit, and then those that the graphs around it are walked for, the innermost first."""
        each: Visit | None = visit
        while each is not None:
            yield each
            around = self.scopes[each.scope].visit
            each = None if around is None else self.visits[around]

    def visits_in(self, kind: type[object]) -> list[Visit]:
        """Return the visits in a state, oldest first."""
        return self.visits.found(BY_STATE, kind)

    def running(self) -> list[tuple[Visit, Running]]:
        """Return the visits whose code runs, with their states, oldest first."""
        return [(v, v.state) for v in self.visits_in(Running) if isinstance(v.state, Running)]

    def first_pause(self) -> tuple[str, datetime] | None:
        """Return the visit whose pause ends first, by its address, and when."""
        match self.visits.first(PAUSED, ALL):
            case Visit(address=address, state=Ready(not_before=datetime() as moment)):
                return address, moment
            case _:
                return None

    @property
    def is_at_rest(self) -> bool:
        """Whether none of its code is under way: it waits for people, for a time, or to be resumed.

        Code that was told to stop is under way until it has ended, and blocked code until it is stopped:
        Temporal tries it again.
        """
        return not self.visits.count(BY_STATE, Running)

    def next_attempt(self) -> datetime | None:
        first = self.first_pause()
        return None if first is None else first[1]

    def first_deadline(self) -> tuple[datetime, Interrupt | Pause | Ending] | None:
        """Return the earliest deadline or notice and what is due then; of equal ones the older."""
        found: list[tuple[datetime | None, Interrupt | Pause | Ending]] = []
        if (interrupt := self.ledger.open.first(DUE, ALL)) is not None:
            found.append((interrupt.due, interrupt))
        if self.pause is not None:
            found.append((self.pause.deadline, self.pause))
        if self.ending is not None:
            found.append((self.ending.grace_until, self.ending))
        due = ((moment, each) for moment, each in found if moment is not None)
        return min(due, key=lambda each: each[0], default=None)

    def next_deadline(self) -> datetime | None:
        """Return the time at which the run needs a tick if nothing happens before."""
        first = self.first_deadline()
        moments = (first and first[0], self.mailbox.first_expiry, self.next_attempt())
        return min((moment for moment in moments if moment is not None), default=None)


ScopeValues: TypeAlias = Mapping[str, Mapping[str, Json]]
"""The values of every scope, by its address."""


def copied(state: RunState) -> RunState:
    """Return a copy of a run that changes apart from it."""
    return replace(
        state,
        scopes=ScopeTable({key: _copied_scope(scope) for key, scope in state.scopes.items()}),
        visits=VisitTable({key: replace(visit) for key, visit in state.visits.items()}),
        gates=GateTable(state.gates),
        ledger=Ledger(open=InterruptTable(state.ledger.open), settled=dict(state.ledger.settled)),
        counters=replace(state.counters),
    )


def _copied_scope(scope: Scope) -> Scope:
    fans = {
        key: replace(fan, items=[replace(item) for item in fan.items])
        for key, fan in scope.fans.items()
    }
    return replace(scope, fans=fans)


def parted(state: RunState) -> tuple[RunState, GraphSpec, ScopeValues]:
    """The snapshot without its heavy parts, the spec, and the values of every scope."""
    values = {address: scope.values for address, scope in state.scopes.items()}
    scopes = {address: replace(scope, values={}) for address, scope in state.scopes.items()}
    bare = replace(state, scopes=ScopeTable(scopes))
    return _with_spec(bare, GraphSpec(name=state.spec.name)), state.spec, values


def joined(snapshot: RunState, spec: GraphSpec, values: ScopeValues) -> RunState:
    """The run again. Raises ValueError if the snapshot was written by a later version of this code."""
    if snapshot.format > FORMAT:
        raise ValueError(
            f"this snapshot has format {snapshot.format}, and this version reads up to {FORMAT}: "
            "deploy the version that wrote it, or a later one"
        )
    scopes = {
        address: replace(scope, values=values[address])
        for address, scope in snapshot.scopes.items()
    }
    return _with_spec(replace(snapshot, scopes=ScopeTable(scopes)), spec)


def _with_spec(state: RunState, spec: GraphSpec) -> RunState:
    ending = state.ending
    if ending is not None and ending.before is not None:
        ending = replace(ending, before=replace(ending.before, spec=spec))
    return replace(state, spec=spec, ending=ending)
