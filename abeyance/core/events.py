"""Events of a run: a closed union of facts, each with its time.

Names are past participles. Requests by people (`Responded`, `MessageSent`) may be refused. Controls
without effect are absorbed. The results of our own effects (`VisitEnded`) are never refused, and
absorbed if they come late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from abeyance.core.delegations import Delegation
from abeyance.core.json import Json
from abeyance.core.outcome import VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import GraphSpec, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.terms import Priority, Span
from abeyance.core.who_may_answer import Request

PauseMode: TypeAlias = Literal["after-node", "now"]
Control: TypeAlias = Literal["pause", "resume", "cancel"]
Signal: TypeAlias = Control | Literal["steer"]
CancelMode: TypeAlias = Literal["graceful", "now"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keyed(_Event):
    """A request. A repeat of its idempotency `key` is absorbed."""

    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ByPrincipal(_Keyed):
    """A request of a principal."""

    principal: Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class _InOwnOrOthersPlace(ByPrincipal):
    """`on_behalf_of` is in whose place the principal acts, if they say so, and `delegations` are those to
    them.
    """

    on_behalf_of: str | None = None
    delegations: tuple[Delegation, ...] = ()

    @property
    def request(self) -> Request:
        return Request(
            principal=self.principal,
            now=self.now,
            on_behalf_of=self.on_behalf_of,
            delegations=self.delegations,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(_Event):
    """The run starts; `edit` are values that a rewind to its start sets first."""

    edit: ValuesEdited | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(_Event):
    """The run continues from a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(_Event):
    """Time has passed: everything due by `now` is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBegan(_Event):
    """A new workflow task has begun, with a fresh budget of bytes to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationDue(_Event):
    """The history has grown long. `hard`: running visits are stopped instead of awaited."""

    hard: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitEnded(_Event):
    """A visit's code, or the evaluation of its routes, has ended.

    `worked` is how many seconds it ran, if that counts towards a budget.
    """

    visit: str
    outcome: VisitOutcome
    worked: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitBlocked(_Event):
    """The worker of a running visit reports that its code cannot go on until somebody fixes what
    `message` says, and keeps trying. `code` None: it can go on. `journal` has its finished steps so far.
    `is_unread`: the worker could not read the visit, nor its journal.
    """

    visit: str
    code: str | None
    message: str = ""
    journal: Mapping[str, Json] = field(default_factory=dict)
    is_unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted(_Event):
    """A worker has started, which may have what blocked visits need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFault:
    """A violation of a response schema; `pointer` is a JSON pointer into the answer."""

    pointer: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded(_InOwnOrOthersPlace):
    """A principal answered one or more interrupts, by id: all are accepted, or none.

    `schema_faults` has an entry (perhaps empty) for every answered interrupt with a schema. The core
    has no schema validator, and refuses an answer that was not validated. `digests` are of what the
    principal saw, if sent. `written` are the answers that their types write in another form than they
    were sent: these count, and a repeat is known by what was sent. `lasts` is for how many seconds
    answers are to be remembered. `vouched_until`: the issuer of a token vouches for the principal, and
    what is remembered ends then. `remember_only`: it counts in the run alone, or nothing is remembered.
    `granted` is how many grants the principal has, which take `granted_bytes`; None if that is unknown.
    """

    answers: Mapping[str, Json]
    schema_faults: Mapping[str, tuple[SchemaFault, ...]]
    digests: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    written: Mapping[str, Json] = field(default_factory=dict)
    lasts: Mapping[str, float] = field(default_factory=dict)
    vouched_until: datetime | None = None
    remember_only: Literal["run", "nothing"] | None = None
    granted: int | None = None
    granted_bytes: int | None = None

    @property
    def taken(self) -> Mapping[str, Json]:
        """The answers as their types write them."""
        return {**self.answers, **self.written}


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(_Keyed):
    """`timeout` is in seconds. `capabilities` are those of the actor, and matter if the pause ends at
    another node.
    """

    actor: str
    capabilities: tuple[str, ...] = ()
    reason: str | None = None
    mode: PauseMode = "after-node"
    timeout: float | None = None
    on_timeout: OnPauseTimeout = field(default_factory=ResumeRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(_Keyed):
    """An actor resumed the run."""

    actor: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(_Keyed):
    """`grace` is in seconds; None uses the run's own. `native`: requested through Temporal."""

    actor: str
    reason: str | None = None
    mode: CancelMode = "graceful"
    grace: float | None = None
    native: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted(_Event):
    """The run is evicted, for capacity or inactivity. This does not count as activity.

    With `inactive_since`, a run absorbs it if it was active later, or waits for an answer with a
    deadline.
    """

    actor: str
    inactive_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A steering message in a run's mailbox.

    `parts` are further content, such as pictures, each a mapping with a `type`. `action` is a word for
    the code that reads it; `params` belong to it. `target` is the address or node that it is for; None
    means the first reader. `ttl` is how many seconds it may stay unread after `sent_at`. `capabilities`
    are those of the sender.
    """

    message_id: str
    text: str
    sender: str
    metadata: Mapping[str, Json] = field(default_factory=dict)
    parts: tuple[Mapping[str, Json], ...] = ()
    action: str | None = None
    params: Mapping[str, Json] = field(default_factory=dict)
    target: str | None = None
    priority: Priority = "normal"
    ttl: float | None = None
    sent_at: datetime | None = None
    capabilities: tuple[str, ...] = ()

    @property
    def expires_at(self) -> datetime | None:
        """The time from which the message is too old to be read."""
        if self.ttl is None or self.sent_at is None:
            return None
        return self.sent_at + timedelta(seconds=self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(_Event):
    """`signalled`: the sender does not wait for an answer, so a refusal is recorded in the run. `fault`
    is why a signal's payload is not a valid message.
    """

    message: Message
    signalled: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTaken(_Event):
    """A visit took messages, so that it has taken `upto` in all since it began.

    A retry that asks again for messages that it took before does not take further ones.
    """

    visit: str
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesCleared(_Keyed):
    """A principal discarded the unread messages."""

    actor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEdited(ByPrincipal):
    """A principal set fields of the values, as of `version`. `written` is as in `Responded`."""

    patch: Mapping[str, Json]
    version: int
    written: Mapping[str, Json] = field(default_factory=dict)

    @property
    def taken(self) -> Mapping[str, Json]:
        """The fields as their types write them."""
        return {**self.patch, **self.written}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineEdited(ByPrincipal):
    """A principal moved the deadline of an open interrupt, or changed what happens then.

    `deadline` None removes it; `moves` False leaves it as it is. `on_timeout` None leaves that too.
    `timeout` is the principal's own value, if given from `now` on: in seconds, which `deadline` has too,
    or in business time of the question's calendar.
    """

    interrupt_id: str
    moves: bool
    deadline: datetime | None = None
    timeout: Span | None = None
    on_timeout: OnTimeout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack(ByPrincipal):
    """A principal took back a yes that was held. `note` is why."""

    interrupt_id: str
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(_InOwnOrOthersPlace):
    """A principal keeps an open interrupt for themselves, for so many seconds."""

    interrupt_id: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(ByPrincipal):
    """A principal ended the claim of an open interrupt."""

    interrupt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassigned(ByPrincipal):
    """A principal replaced the assignees of an open interrupt by `to`. `votes`: they alone vote too.
    `note` is why.
    """

    interrupt_id: str
    to: tuple[str, ...]
    votes: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated(ByPrincipal):
    """A principal moved the run to another version of its graph.

    `renames` maps names of nodes of the run's graph to those in `spec`, nested ones as `outer.inner`.
    `patch` sets fields of the values. `request` is a hash of the call, by which its repeat is recognised.
    `versions` are those of the graph before and after, as callers know them: those of the specs change
    with the breakpoints of a run too. `dry_run`: somebody only asks whether it could be done.
    """

    spec: GraphSpec
    dry_run: bool = False
    versions: tuple[str, str] = ("", "")
    request: str = ""
    patch: Mapping[str, Json] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)


Keyed: TypeAlias = (
    Responded
    | Paused
    | Resumed
    | CancelRequested
    | MessagesCleared
    | ValuesEdited
    | DeadlineEdited
    | TakenBack
    | Claimed
    | Released
    | Reassigned
    | Migrated
)
"""Events that may carry an idempotency key, under which they count once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRefused(_Event):
    """A signal had no effect, and its sender does not wait: `code` and `reason` say why."""

    signal: Signal
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationFailed(_Event):
    """A notification about the event `about` did not reach a receiver after so many `attempts`.

    `interrupt` is the id of the interrupt that it was about, if any.
    """

    about: str
    receiver: str
    reason: str
    attempts: int
    interrupt: str | None = None


Event: TypeAlias = (
    Started
    | Restored
    | Ticked
    | TaskBegan
    | RotationDue
    | VisitEnded
    | VisitBlocked
    | WorkerStarted
    | Evicted
    | MessageSent
    | MessagesTaken
    | Keyed
    | SignalRefused
    | NotificationFailed
)
