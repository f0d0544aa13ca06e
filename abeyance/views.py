"""The views of a run for callers: views, receipts, events and the closing record.

`abeyance.projections` makes them of a run's state. They are read leniently, like all data that this
package wrote.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Field, WrapSerializer

from abeyance.core.delegations import Delegation
from abeyance.core.events import Message
from abeyance.core.ledger import Claim, Parent, Receipt, Vote
from abeyance.core.mailbox import Rejected, Undelivered
from abeyance.core.terms import Decision, Priority, Quorum, Where
from abeyance.wire import BY_NAME_AND_ALIAS, Record, is_none

# Fields of several views. The example of a response has the required fields, each with its own example,
# and those others that have one.
RunId: TypeAlias = Annotated[str, Field(examples=["refund-4711"])]
GraphName: TypeAlias = Annotated[str, Field(examples=["refund"])]
_VERSION: Final = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
GraphVersion: TypeAlias = Annotated[str, Field(examples=[_VERSION])]
InterruptId: TypeAlias = Annotated[str, Field(examples=["refund-4711.b276f6238dab3ba5"])]
Person: TypeAlias = Annotated[str, Field(examples=["ada"])]
MessageId: TypeAlias = Annotated[str, Field(examples=["note-1"])]


class EscalationView(Record):
    """From `at` on, the people in `to` and those with `requested_capability` may answer, too."""

    at: datetime
    to: list[str] = Field(default_factory=list)
    requested_capability: str | None = None


class DelegationView(Record):
    """A delegation as callers see it. `capabilities` null are all that questions may ask for."""

    model_config = BY_NAME_AND_ALIAS

    id: str = Field(examples=["9f86d081884c7d65"])
    by: Person
    to: str = Field(examples=["bob"])
    capabilities: list[str] | None = Field(examples=[["refunds:approve"]])
    from_: datetime = Field(alias="from")
    until: datetime = Field(examples=["2026-02-14T10:00:00Z"])
    reason: str | None = None
    created_at: datetime

    @classmethod
    def of(cls, delegation: Delegation) -> Self:
        """Return the view of a delegation, without the groups of its maker."""
        return cls(**asdict(delegation), from_=delegation.since)


class RememberView(Record):
    """How far a yes may be remembered: for `most` seconds, where, and for calls that have the `same`
    values, and less than the bounds `below`.
    """

    most: float
    where: list[Where]
    same: list[str] = Field(default_factory=list)
    below: dict[str, float] = Field(default_factory=dict)


class WhyNot(Record):
    """Why a caller may not answer a question: the code of the refusal, and its text."""

    code: str
    detail: str


UNREADABLE: Final = "unreadable"
"""The kind of an interrupt that cannot be read here."""


class InterruptView(Record):
    """An interrupt as callers see it.

    `abridged`: lists omit the reason, the payload and the schema; read the interrupt by its id. An
    interrupt of the kind `unreadable` cannot be read here: it is `degraded`, and the prompt says why.
    `prompt_values` are the places of values in the prompt, `[begin, end]` in characters: these are text,
    even if the prompt is Markdown. In the inbox `started_by` is who started the run, and `about` the
    amount that the reason shows, or else its first argument. `assignees` to `decisions` are the terms of
    the question; `hold` is in seconds, `decisions` are those of an approval, and `preview` describes the
    effect of the call. `remember` tells how far a yes to an open approval may be remembered. `votes` are
    the votes that count, and `missing` is the number of approvals that an open question still needs.
    While the interrupt is `held`, until `held_until`, `answer` and `note` are those that will count then;
    no deadline is shown, because none applies. `reminders` and `escalations` are the times of an open
    question, and `calendar` is the name of its calendar. `claim` has the holder of the claim, and its
    end. `barred` lists the people whom `not_by` bars, each with the rule; `warnings` name the rules that
    nobody can fulfil, and the code that may run twice. Over HTTP, `may_answer` tells whether the caller
    may answer an open question, `may_answer_for` for whom by a delegation, and `why_not` why not. `note`
    is the beginning of the note with the answer, at most 500 characters, and `on_behalf_of` is the person
    for whom it was answered.
    """

    id: InterruptId
    run_id: RunId
    graph: GraphName
    name: str = Field(examples=["approve"])
    kind: str = Field(examples=["question"])
    address: str = Field(examples=["graph:refund;node:approve"])
    prompt: str = Field(examples=["Refund 250 for A-17?"])
    prompt_values: list[tuple[int, int]] = Field(default_factory=list)
    started_by: str | None = Field(default=None, exclude_if=is_none)
    about: dict[str, Any] | None = Field(default=None, exclude_if=is_none)
    reason: Any = None
    payload: Any = None
    preview: Any = None
    remember: RememberView | None = Field(default=None, exclude_if=is_none)
    response_schema: Any = None
    requested_capability: str | None = Field(default=None, examples=["refunds:approve"])
    created_at: datetime
    deadline: datetime | None = Field(default=None, examples=["2026-02-02T10:00:00Z"])
    on_timeout: Any = None
    assignees: list[str] = Field(default_factory=list, examples=[["group:finance"]])
    assignees_only: bool = False
    priority: Priority = "normal"
    risk: int | None = None
    quorum: Quorum | None = None
    hold: float | None = None
    not_by: list[str] = Field(default_factory=list)
    decisions: list[Decision] | None = None
    reminders: list[datetime] = Field(default_factory=list)
    escalations: list[EscalationView] = Field(default_factory=list)
    calendar: str | None = None
    claim: Claim | None = None
    barred: dict[str, str] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)
    may_answer: bool | None = Field(default=None, examples=[True])
    may_answer_for: list[str] = Field(default_factory=list)
    why_not: WhyNot | None = None
    status: str = Field(examples=["open"])
    votes: list[Vote] = Field(default_factory=list)
    missing: int | None = None
    held_until: datetime | None = None
    parent: str | None = None
    parents: list[Parent] = Field(default_factory=list)
    is_root_cause: bool = True
    digest: str | None = None
    answered_by: str | None = None
    on_behalf_of: str | None = None
    answered_at: datetime | None = None
    answer_sha256: str | None = None
    answer: Any = None
    note: str | None = None
    settled_at: datetime | None = None
    settled_reason: str | None = None
    rewound_by: int | None = Field(default=None, exclude_if=is_none)
    abridged: bool = False
    degraded: bool = False


class Metrics(Record):
    """Counters over a run's life."""

    messages_queued: int
    messages_delivered: int
    pause_count: int
    resume_count: int
    cancel_count: int
    max_queue_depth: int
    last_activity_at: datetime
    visits: int


class ErrorView(Record):
    """A failure and its place."""

    code: str
    message: str
    address: str | None = None


class PauseView(Record):
    """The pause of a run."""

    since: datetime
    actor: str
    reason: str | None
    mode: str
    deadline: datetime | None
    on_timeout: str


class AgentView(Record):
    """An agent that runs: its model turns so far and their usage (`input_tokens`, ...)."""

    address: str
    turns: int
    usage: dict[str, int] = Field(default_factory=dict)


UNTIL_BLOCKED: Final = "blocked"
"""A word that a caller can wait for like for a status: the run has a blocked visit."""


class BlockedView(Record):
    """A visit, or without `address` the run, that cannot go on until somebody fixes the fault.

    `code` is a code of docs/reference/blocked.md. `node` is the path of the node. `since` is None where
    that is unknown. `attempt` counts Temporal's attempts so far, if known.
    """

    code: str
    message: str = ""
    node: str = ""
    address: str | None = None
    since: datetime | None = None
    attempt: int | None = None


class RetryingView(Record):
    """A visit that has failed `attempts` times, last with `message`, and runs again at `due`."""

    node: str
    address: str
    message: str
    attempts: int
    due: datetime


class RunView(Record):
    """A run as callers see it.

    `sent_by` is who sent the start on behalf of `started_by`, if they did not start it themselves.
    `guarded_by` are the capabilities that its graph can ask for; changing its course requires them all.
    `open` counts the open interrupts. `degraded`: the view may be old, because no worker has processed
    the latest requests, or because the database was away; or it lacks something, because this process
    cannot read it all.
    """

    run_id: RunId
    graph: GraphName
    graph_version: GraphVersion
    status: str = Field(examples=["awaiting-input"])
    outcome: str | None = None
    reason: str | None = None
    paused: bool = False
    pause: PauseView | None = None
    conversation_id: str | None = None
    session_type: str = "agent"
    labels: dict[str, str] = Field(default_factory=dict, examples=[{"team": "support"}])
    started_by: str | None = Field(default=None, examples=["ada"])
    sent_by: str | None = None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    running: list[str] = Field(default_factory=list)
    agents: list[AgentView] = Field(default_factory=list)
    interrupts: list[InterruptView] = Field(default_factory=list)
    open: int = Field(default=0, examples=[1])
    queue_depth: int = 0
    max_queue_size: int = 0
    metrics: Metrics | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    version: int = 0
    result: dict[str, Any] | None = None
    undelivered: list[Undelivered] = Field(default_factory=list)
    rejected: list[Rejected] = Field(default_factory=list)
    blocked: list[BlockedView] = Field(default_factory=list)
    retrying: list[RetryingView] = Field(default_factory=list)
    guarded_by: list[str] = Field(default_factory=list, examples=[["refunds:approve"]])
    error: ErrorView | None = None
    beside: list[ErrorView] = Field(default_factory=list)
    cancelled_by: str | None = None
    degraded: bool = False

    def is_awaited(self, until: frozenset[str]) -> bool:
        """Return whether a wait is over: the run has a status of `until`, or has ended.

        `blocked` in `until` means a blocked run of any status.
        """
        is_blocked = bool(self.blocked) and UNTIL_BLOCKED in until
        return is_blocked or self.status in until or self.ended_at is not None


class ClosingRecord(Record):
    """The closing state of an ended run. `transcripts` are the references of its agents' transcripts, by
    address.
    """

    outcome: str
    reason: str | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    undelivered: list[Undelivered] = Field(default_factory=list)
    view: RunView
    interrupts: list[InterruptView] = Field(default_factory=list)
    transcripts: dict[str, str] = Field(default_factory=dict)


def closing_record(
    view: RunView, interrupts: list[InterruptView], transcripts: dict[str, str]
) -> ClosingRecord:
    """Return the closing record of an ended run, by its view."""
    return ClosingRecord(
        outcome=view.status,
        reason=view.reason,
        values=view.values,
        undelivered=view.undelivered,
        view=view,
        interrupts=interrupts,
        transcripts=transcripts,
    )


class Obstacle(Record):
    """Something without a place in the new graph: `what` it is, its name and address, why, what to do."""

    what: str
    name: str
    why: str
    remedy: str
    address: str | None = None


class Migration(Record):
    """The effect of a migration, or with `dry_run` the effect that it would have.

    `before` and `after` are versions of the graph. `nodes` maps the current nodes of the run to their
    names in the new graph. `obstacles` is empty unless a dry run found some.
    """

    run_id: RunId
    dry_run: bool = Field(default=False, examples=[True])
    before: str = Field(examples=["2c26b46b68ff"])
    after: str = Field(examples=["fcde2b2edba5"])
    nodes: dict[str, str] = Field(default_factory=dict, examples=[{"pay": "payout"}])
    obstacles: list[Obstacle] = Field(default_factory=list)


class Event(Record):
    """An event of a run's feed; it never contains values or an answer.

    `id` is the cursor right after the event: opaque, and as text greater than the ids of earlier events.
    """

    id: str = Field(examples=["000000000004"])
    time: datetime
    type: str = Field(examples=["interrupt.opened"])
    run_id: RunId
    address: str | None = Field(default=None, examples=["graph:refund;node:approve"])
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict, examples=[{"name": "approve"}])
    rewound_by: int | None = Field(default=None, exclude_if=is_none)


class StreamEvent(Event):
    """An event of the stream of all runs.

    `id` is the cursor right after it in the stream. `event_id` is its id in the feed of its run, which is
    the same for every reader. `graph` is the graph of the run.
    """

    id: str = Field(examples=["000000018201-64c9a8a17f400"])
    graph: GraphName
    event_id: str = Field(examples=["000000000004"])


class Effect(Record):
    """Code that a rewind runs again: since `at` it was begun `attempts` times."""

    node: str
    address: str
    at: datetime
    attempts: int


_EFFECT: Final = {
    "node": "refund.pay",
    "address": "graph:refund;node:pay",
    "at": "2026-01-31T10:20:00Z",
    "attempts": 1,
}


class Rewind(Record):
    """The events that a rewind discarded, or with `dry_run` would discard, and the code that has run
    since that point.

    With the same `ctx.idempotency_key` as before, another service knows a repeated call as a repeat.
    """

    run_id: RunId
    to: InterruptId
    dry_run: bool = Field(default=False, examples=[True])
    discards: list[Event] = Field(default_factory=list)
    effects: list[Effect] = Field(default_factory=list, examples=[[_EFFECT]])


class NewText(Record):
    """Text of a model since the last `model.delta`, which goes into its whole text at `offset`.

    It replaces the whole text from there on. `turn` is that of `model.turn`; `offset` is in characters,
    and 0 with an empty text if the turn began anew.
    """

    turn: int
    offset: int
    text: str


class ModelDelta(Record):
    """An event that only current watchers get, and that has no id."""

    time: datetime
    type: Literal["model.delta"] = "model.delta"
    run_id: str
    address: str
    data: NewText


ENDED_OUTSIDE: Final = frozenset({"terminated", "timed-out"})
"""The statuses of a run that Temporal has ended, instead of the run itself."""
TERMINAL_EVENTS: Final = frozenset(
    {
        *("run.completed", "run.failed", "run.cancelled", "run.halted"),
        *("run.terminated", "run.timed_out"),
    }
)
"""The types of the last event of a run."""


class MessageView(Record):
    """An unread message as callers see it."""

    message_id: MessageId
    text: str = Field(examples=["The customer accepts half of the amount."])
    sender: Person
    metadata: dict[str, Any]
    parts: list[dict[str, Any]] = Field(examples=[[]])
    action: str | None = Field(examples=[None])
    params: dict[str, Any]
    target: str | None = Field(examples=["pay"])
    priority: Priority
    sent_at: datetime | None
    expires_at: datetime | None = Field(examples=[None])

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the view of a message, without the sender's capabilities."""
        return cls(**{name: getattr(message, name) for name in cls.model_fields})


class MessageReceipt(Record):
    """The receipt of an accepted message. `queue_depth` is None without a worker."""

    message_id: MessageId
    duplicate: bool = Field(examples=[False])
    queue_depth: int | None = Field(examples=[1])


class Cleared(Record):
    """The number of discarded messages."""

    cleared: int = Field(examples=[1])


_without_none: Final = WrapSerializer(
    # Not a function: its return type would replace the receipts in the OpenAPI document.
    lambda receipts, handler: [
        {name: value for name, value in each.items() if value is not None}
        for each in handler(receipts)
    ]
)


_RECEIPT: Final = {
    "interrupt_id": "refund-4711.b276f6238dab3ba5",
    "status": "answered",
    "answered_by": "ada",
    "accepted_at": "2026-01-31T11:30:00Z",
    "replayed": False,
}


class Receipts(Record):
    """The receipts of one call. Fields that a receipt does not have are left out."""

    receipts: Annotated[list[Receipt], _without_none] = Field(examples=[[_RECEIPT]])
