"""What can happen to a run: a closed union, each event a fact with its time.

Names are past participles. Requests by people (`Responded`, `MessageSent`) may be refused; the
controls are absorbed where they change nothing; what follows from our own effects (`VisitEnded`) is never
refused, only absorbed when it comes late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from abeyance.core.json import Json
from abeyance.core.outcome import VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import OnPauseTimeout, OnTimeout, ResumeRun

PauseMode: TypeAlias = Literal["after-node", "now"]
Control: TypeAlias = Literal["pause", "resume", "cancel"]
CancelMode: TypeAlias = Literal["graceful", "now"]
Priority: TypeAlias = Literal["high", "normal", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(_Event):
    """The run begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(_Event):
    """The run goes on from a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(_Event):
    """Time has passed: whatever was due by `now` is carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBegan(_Event):
    """A new workflow task: what may be sent in one task is there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationDue(_Event):
    """The history has grown long. `hard`: running visits are stopped rather than waited for."""

    hard: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitEnded(_Event):
    """A visit's code ended, or the asking of its routes did."""

    visit: str
    outcome: VisitOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFault:
    """One thing by which an answer misses its schema; `pointer` is a JSON pointer into the answer."""

    pointer: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Responded(_Event):
    """A principal answered one or several interrupts, by id: all of it holds or nothing.

    `schema_faults` has an entry (perhaps empty) for every answered interrupt that has a schema; the
    core holds no schema validator, and refuses an answer that nobody validated. `digests` are of
    what the principal was shown, where he sent them.
    """

    principal: Principal
    answers: Mapping[str, Json]
    schema_faults: Mapping[str, tuple[SchemaFault, ...]]
    digests: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(_Event):
    """`timeout` is in seconds. With the same `key` again it is absorbed. `capabilities` are those of the
    actor, for an end that leads to another node.
    """

    actor: str
    capabilities: tuple[str, ...] = ()
    reason: str | None = None
    mode: PauseMode = "after-node"
    timeout: float | None = None
    on_timeout: OnPauseTimeout = field(default_factory=ResumeRun)
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(_Event):
    """Somebody says: go on. With the same `key` again it is absorbed."""

    actor: str
    reason: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(_Event):
    """`grace` is in seconds; None takes the run's own. `native`: through Temporal's own request. With
    the same `key` again it is absorbed.
    """

    actor: str
    reason: str | None = None
    mode: CancelMode = "graceful"
    grace: float | None = None
    native: bool = False
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted(_Event):
    """Room is needed, or nobody cares for the run any more. It is not what anybody does to the run.

    With `inactive_since` it is absorbed by a run that was active later, or that waits for an answer
    which has a deadline of its own.
    """

    actor: str
    inactive_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Steering that somebody put into a run's mailbox.

    `parts` are further parts of it, such as pictures, each a mapping with a `type`. `action` makes it a
    directive, or is the author's own word; `params` belong to it. `target` is the address or the node
    that it is for; None is whoever reads first. `ttl` is how many seconds it may stay unread, counted
    from `sent_at`. `capabilities` are those of the sender, for what a directive does.
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
        """When it is too old to be read."""
        if self.ttl is None or self.sent_at is None:
            return None
        return self.sent_at + timedelta(seconds=self.ttl)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSent(_Event):
    """`signalled`: nobody waits for an answer, so a refusal has to be recorded in the run. `fault` is why
    what was signalled is no message at all.
    """

    message: Message
    signalled: bool = False
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesTaken(_Event):
    """A visit took messages that are for it, so that it has taken `upto` in all since it began.

    What it took before, and has asked for again because it was tried again, it does not take twice.
    """

    visit: str
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesCleared(_Event):
    """A principal threw the unread messages away."""

    actor: str
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesEdited(_Event):
    """A principal set fields of the values, as they were at `version`."""

    principal: Principal
    patch: Mapping[str, Json]
    version: int
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineEdited(_Event):
    """A principal moved the deadline of an open interrupt, or what happens then.

    `deadline` None removes it; `moves` is False where it stays. `on_timeout` None leaves that too.
    `timeout` is how the principal said it, if as a time from `now`.
    """

    principal: Principal
    interrupt_id: str
    moves: bool
    deadline: datetime | None = None
    timeout: float | None = None
    on_timeout: OnTimeout | None = None
    key: str | None = None


Keyed: TypeAlias = (
    Responded | Paused | Resumed | CancelRequested | MessagesCleared | ValuesEdited | DeadlineEdited
)
"""What may come under a key, under which it counts once."""
KEYED: Final = (
    Responded,
    Paused,
    Resumed,
    CancelRequested,
    MessagesCleared,
    ValuesEdited,
    DeadlineEdited,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRefused(_Event):
    """A control signal came to nothing, and nobody waits for its answer: `code` and `reason` say why."""

    signal: Control
    code: str
    reason: str


Event: TypeAlias = (
    Started
    | Restored
    | Ticked
    | TaskBegan
    | RotationDue
    | VisitEnded
    | Responded
    | Paused
    | Resumed
    | CancelRequested
    | Evicted
    | MessageSent
    | MessagesTaken
    | MessagesCleared
    | ValuesEdited
    | DeadlineEdited
    | SignalRefused
)
