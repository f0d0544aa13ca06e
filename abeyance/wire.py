"""Everything that crosses a process boundary: names in Temporal, commands and records.

Commands are strict (an unknown field is an error). What a run writes for itself is read leniently, so
that a later worker can replay the run of an earlier one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from abeyance.core.delegations import Delegation
from abeyance.core.outcome import Ran, VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Limits
from abeyance.core.terms import GROUP, Priority
from abeyance.duration import OptionalSeconds, Seconds

MAX_DEPTH = 100
"""How deep lists and mappings may be nested in a value. The JSON parser stops at 200 levels, and a run
that cannot be parsed is stuck, so there has to be room for what contains the value."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LATEST = 2200
"""The year from which no timer can be set: Temporal's server counts at most 292 years."""


def refuse_too_deep(value: JsonValue) -> JsonValue:
    """Return the value. Raises ValueError if it is nested deeper than `MAX_DEPTH`."""
    nesting = (dict, list, tuple)
    level = [value] if isinstance(value, nesting) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for item in chain.from_iterable(inside) if isinstance(item, nesting)]
    if not level:
        return value
    message = f"lists and mappings are nested in it deeper than {MAX_DEPTH} levels"
    raise ValueError(message)


Value: TypeAlias = Annotated[JsonValue, AfterValidator(refuse_too_deep)]
"""A JSON value in a request."""


def _moment(value: Any) -> Any:
    # pydantic reads a number, also in text, as seconds since 1970.
    if isinstance(value, datetime) or (isinstance(value, str) and _DAY.match(value)):
        return value
    message = "a time is text such as 2026-03-02T09:00:00Z"
    raise ValueError(message)


def _in_utc(moment: datetime) -> datetime:
    if moment.year >= _LATEST:
        message = (
            f"{moment.isoformat()} is after the year {_LATEST - 1}: what never ends needs no time"
        )
        raise ValueError(message)
    return moment.astimezone(UTC) if moment.year > 1 else moment


Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_moment), AfterValidator(_in_utc)]
"""A time in a request: RFC 3339, with its offset from UTC."""


class Record(BaseModel):
    """Data that this package wrote: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Stamp(Record):
    """The stamp of a command, for runs that accept only sealed ones. It is sealed with the command.

    `order` is the name of the signal or update, `execution` the first of the run's executions in
    Temporal, `nonce` a number that is used once and grows with time. `shown` are the digests of the
    answered interrupts, by id.
    """

    order: str
    execution: str = ""
    nonce: str = ""
    shown: dict[str, str] = Field(default_factory=dict)


class Stamped(BaseModel):
    """Data that carries a stamp outside of its fields."""

    _stamp: Stamp | None = PrivateAttr(default=None)

    @property
    def stamp(self) -> Stamp | None:
        """The stamp, if it has one and came sealed."""
        return self._stamp

    def stamped(self, stamp: Stamp) -> Self:
        """Return a copy with a stamp."""
        made = self.model_copy()
        made._stamp = stamp  # noqa: SLF001
        return made


class Request(Stamped):
    """A request of a caller: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Keyed(Request):
    """A request with an idempotency key: a repeat has no effect, and gets the first receipt."""

    key: str | None = Field(
        default=None, min_length=1, max_length=256, exclude_if=lambda key: key is None
    )


class ControlBody(Request):
    """The body of a control operation. `reason` is recorded with it."""

    reason: str | None = Field(default=None, max_length=2_000)


class PauseBody(ControlBody):
    """`timeout` as any duration; `on_timeout` is `resume`, `halt` or `goto:<node>`."""

    mode: Literal["after-node", "now"] = "after-node"
    timeout: OptionalSeconds = Field(default=None, gt=0)
    on_timeout: str = Field(default="resume", pattern=r"^(resume|halt|goto:.+)$")


class CancelBody(ControlBody):
    """`grace` as any duration; None takes the run's own."""

    mode: Literal["graceful", "now"] = "graceful"
    grace: OptionalSeconds = Field(default=None, ge=0)


class Control(ControlBody, Keyed):
    """A control operation as the run gets it, with the actor that its sender claims."""

    actor: str = Field(default="temporal", max_length=256)


class Pause(PauseBody, Control):
    """Start no new work. `capabilities` are the actor's, needed if `on_timeout` is a goto."""

    capabilities: tuple[str, ...] = ()


class Resume(Control):
    """Resume after a pause."""


class Cancel(CancelBody, Control):
    """Cancel the run."""


Order: TypeAlias = Pause | Resume | Cancel
"""The control signals."""


class Evict(Request):
    """Halt the run; with `inactive_since` only if it was not active after that."""

    inactive_since: Moment | None = None
    actor: str = Field(default="temporal", max_length=256)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        message = f"the data is not base64: {error}"
        raise ValueError(message) from error
    return text


Base64: TypeAlias = Annotated[str, AfterValidator(_base64)]
"""Bytes, as text."""


class TextPart(Request):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str = Field(min_length=1)


class MediaPart(Request):
    """A part of a message that is a picture, a sound or a document: its `data` in base64, or a `url`.

    A `url` is passed on and never fetched by Abeyance; it has to be https, on a host that the service
    allows.
    """

    type: Literal["media"]
    media_type: str = Field(pattern=r"^[\w.+-]{1,100}/[\w.+-]{1,100}$")
    data: Base64 | None = None
    url: str | None = Field(default=None, max_length=2_000)

    @model_validator(mode="after")
    def _has_one(self) -> MediaPart:
        if (self.data is None) == (self.url is None):
            raise ValueError("give either `data` or `url`")
        return self


Part: TypeAlias = Annotated[TextPart | MediaPart, Field(discriminator="type")]


MAX_MESSAGE_ID = 256
"""In characters."""


class MessageBody(Request):
    """A message for a run. Its `message_id` defaults to a generated one.

    `action` makes it a directive (continue, rerun, go_back, skip, pause, defer, update_state), or is an
    action of the author's own; `params` are its parameters. `target` is the address or the name of the
    receiving node. `ttl` is how long the message may stay unread, as any duration.
    """

    message_id: str | None = Field(default=None, min_length=1, max_length=MAX_MESSAGE_ID)
    text: str = ""
    parts: tuple[Part, ...] = Field(default=(), max_length=20)
    metadata: dict[str, Value] = Field(default_factory=dict)
    action: str | None = Field(default=None, min_length=1, max_length=100)
    params: dict[str, Value] = Field(default_factory=dict)
    target: str | None = Field(default=None, min_length=1, max_length=2_000)
    priority: Priority = "normal"
    ttl: OptionalSeconds = Field(default=None, gt=0)


def _is_none(value: object) -> bool:
    return value is None


class SteerMessage(MessageBody):
    """A message as the run gets it, with its sender and the sender's capabilities."""

    sender: str = Field(default="temporal", max_length=256)
    capabilities: tuple[str, ...] = ()


class SendMessage(SteerMessage):
    """A message that gets a receipt. With `pause` the run is paused first, if it accepts the message."""

    pause: Pause | None = Field(default=None, exclude_if=_is_none)


class TakeMessages(Request):
    """Take the messages of a visit from the n-th (`start`) to the `upto`-th."""

    visit: str
    start: int = Field(default=0, ge=0)
    upto: int = Field(default=1, ge=1, le=100_000)


class ClearMessages(Keyed):
    """Discard the unread messages; they are reported."""

    actor: str = Field(default="temporal", max_length=256)


WORKFLOW = "AgentRun"
CONVERSATION_WORKFLOW = "Conversation"
JANITOR_WORKFLOW = "Janitor"
ARCHIVER_WORKFLOW = "Archiver"
ERASURE_WORKFLOW = "Erasure"
DELEGATIONS_WORKFLOW = "Delegations"
RELEASE_ACTIVITY = "release-conversation"
READ_GRAPH_ACTIVITY = "read-graph"
EVICT_ACTIVITY = "evict-inactive"
ARCHIVE_ACTIVITY = "archive-runs"
ERASE_ACTIVITY = "erase-run"
NOTIFICATION_WORKFLOW = "Notification"
ANNOUNCE_ACTIVITY = "announce"
RECEIVERS_ACTIVITY = "find-receivers"
DELIVER_ACTIVITY = "deliver"
REPORT_ACTIVITY = "report-undelivered"

STATUS = "AbeyanceStatus"
GRAPH = "AbeyanceGraph"
CONVERSATION = "AbeyanceConversation"
CAPABILITY = "AbeyanceCapability"
LABELS = "AbeyanceLabels"
FORKED_FROM = "abeyance.forked-from"
"""The name before the id of its origin, among the labels by which a fork is found."""
DEADLINE = "AbeyanceDeadline"
BLOCKED = "AbeyanceBlocked"
ACTIVITY = "AbeyanceActivity"

SEARCH_ATTRIBUTES: Mapping[str, Literal["Bool", "Keyword", "KeywordList", "Datetime"]] = {
    STATUS: "Keyword",
    GRAPH: "Keyword",
    CONVERSATION: "Keyword",
    CAPABILITY: "KeywordList",
    LABELS: "KeywordList",
    DEADLINE: "Datetime",
    BLOCKED: "Bool",
    ACTIVITY: "Datetime",
}
"""The search attributes of a run and their types."""

MEMO_SUMMARY = "summary"
MEMO_FACTS = "facts"
MEMO_START = "start"
MEMO_CLOSING = "closing"
MEMO_QUEUE = "task_queue"
MEMO_INTERRUPT = "interrupt:"
MEMO_TOMBSTONE = "erased"
MEMO_MOMENT = "moment"
MEMO_UNDELIVERED = "undelivered"
MEMO_UNREPORTED = "unreported"
"""Keys of a run's memo; `interrupt:` is followed by the id of an open interrupt. After those come
that of an erasure's memo, and those of a notification's: what it is about, whom it did not reach, and of
whom it could not report that to the run."""

MEMO_ROW = (
    *("id", "name", "kind", "address", "prompt", "requested_capability"),
    *("created_at", "deadline", "digest"),
)
"""The fields of a `views.InterruptView` that the memo has of an open interrupt."""

MEMO_PROGRESS = (
    *("status", "held_until", "answered_by", "on_behalf_of", "missing"),
    *("escalations", "claim", "barred"),
)
"""Further fields, which it has if they are set."""

MEMO_TERMS = ("assignees", "assignees_only", "priority", "risk", "quorum", "not_by")
"""Terms of the question, which it has if they are not the defaults."""

ANY_CAPABILITY = "*"
"""The value of a search attribute in place of too many capabilities; the view has them all."""

REPLAYED = "replayed"
"""The type of the error with which a validator returns the receipt of a repeated call: a rejected update
leaves nothing in the history."""

EMPTY = "queue_empty"
"""The type of the error with which `take_messages` is rejected if there is nothing to take."""

NO_GRAPH = "no_graph"
"""The type of the error of a worker that is asked for a graph that it does not have."""

STILL_ACTIVE = "still_active"
"""The type of the error with which a run rejects `evict`."""


def _is_empty(value: object) -> bool:
    return not value


class StartRun(Record, Stamped):
    """The start of a run, beside its spec and values; continue-as-new carries it over.

    `request` is a hash of the whole call that started it, if its id was made from the caller's key.
    `claim` is its token in its conversation. `salt` makes its interrupt ids differ from those of an
    earlier run with its id.

    `generation` grows from each history of the run to the next, which orders their events. `used` are the
    nonces of the latest commands. With a stamp, the run accepts only what was sealed for it.

    `interrupt_before`, `interrupt_after` and `on_error` are the start's own, which another version of the
    graph gets too. A retry has the execution that it goes on from (`retry_of`), the first of all
    (`origin`), and the hashes of its latest calls with a key (`retry_keys`). A fork has the id of the run
    that it is `forked_from`. `notify` are patterns of the events that somebody is to be notified of.
    """

    run_id: str
    limits: Limits = Field(default_factory=Limits)
    conversation_id: str | None = None
    session_type: str = "agent"
    labels: dict[str, str] = Field(default_factory=dict)
    started_by: str = "temporal"
    digest: str = ""
    graph_version: str = ""
    request: str | None = None
    claim: str | None = None
    generation: int = 0
    used: tuple[str, ...] = ()
    salt: str = ""
    interrupt_before: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    interrupt_after: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    on_error: str | None = Field(default=None, exclude_if=_is_empty)
    retry_of: str = Field(default="", exclude_if=_is_empty)
    origin: str = Field(default="", exclude_if=_is_empty)
    retry_keys: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    notify: tuple[str, ...] = Field(default=(), exclude_if=_is_empty)
    forked_from: str | None = Field(default=None, exclude_if=_is_empty)


class VisitReport(Record, Stamped):
    """The result of an activity. `took` is how many seconds a local one took since it was scheduled. A
    stamp names the visit. `notify` is as in `StartRun`, by the worker's rules; None if it has none.
    `then` are the visits that ran after it in the same activity, and `ended` is when it ended itself.
    `worked` is how many seconds its code ran, if that counts towards a budget.
    """

    outcome: VisitOutcome = Field(discriminator="kind")
    took: float | None = None
    ended: datetime | None = Field(default=None, exclude_if=_is_none)
    then: tuple[Ran, ...] = Field(default=(), exclude_if=_is_empty)
    notify: tuple[str, ...] | None = Field(default=None, exclude_if=_is_none)
    worked: float | None = Field(default=None, exclude_if=_is_none)

    @classmethod
    def of(cls, done: Sequence[Ran]) -> Self:
        """Return the report of visits that ran one after another."""
        first, *then = done
        ended = first.ended if then else None
        return cls(outcome=first.outcome, ended=ended, then=tuple(then))


BLOCKED_LINE = "the visit is blocked"
"""Part of the line that a worker logs for each reason, and that `abeyance dev` repeats."""


class VisitBlocked(Request):
    """Signal of a worker: the visit cannot go on, for the reason `code`; None: it can again.

    `journal` are the results of its finished steps by name, if they are not part of the run yet.
    `unread`: the worker could not read the visit, nor its journal.
    """

    visit: str
    code: str | None = None
    message: str = ""
    journal: dict[str, Any] = Field(default_factory=dict)
    unread: bool = False


class WorkerStarted(Request):
    """Signal of a worker that has just started: blocked visits are tried again at once."""


class Undelivered(Record):
    """A notification that did not reach a receiver, and why. `attempts` counts those that were made."""

    receiver: str
    reason: str
    attempts: int


class NotificationFailed(Request):
    """Signal of a notification about the event `about`: it did not reach some receivers.

    `interrupt` is the id of the interrupt that it was about, if any.
    """

    about: str
    undelivered: tuple[Undelivered, ...]
    interrupt: str | None = None


class Journal(Record):
    """The journal of a visit's attempts, which every heartbeat carries in full.

    `visit` is its owner, "" if unknown. `steps` are the results of finished steps by name. `excused`
    counts the attempts that did not fail; the others were lost with their workers. `blocked_by` is the
    code of the reason that the run was told last, "" if it was told that the visit is not blocked.
    `blocked_inside`: the code of the node had begun when the last attempt was blocked. `done` are the
    visits that have ended in the activity; the rest is that of the one after them.
    """

    visit: str = ""
    done: tuple[Ran, ...] = Field(default=(), exclude_if=_is_empty)
    steps: dict[str, Any] = Field(default_factory=dict)
    excused: int = 0
    blocked_by: str | None = None
    blocked_inside: bool = False

    @staticmethod
    def owner(execution: str, address: str) -> str:
        """The owner of a visit's journal."""
        return f"{execution} {address}"

    def is_of(self, visit: str) -> bool:
        """Return whether a visit may use the journal, which may be a copy of another visit's."""
        return self.visit in ("", visit)


class EvictInactive(Record):
    """A round of the janitor: `inactive_for` is in seconds."""

    inactive_for: float


class Erase(Record):
    """Erase an ended run. `requested_at` is the time of its tombstone."""

    run_id: str
    requested_at: datetime


ErasureState: TypeAlias = Literal["erasing", "erased"]
"""Whether the erasure of a run is under way or done."""


class Release(Record):
    """Release the claims with these tokens: their runs have ended, or never started."""

    conversation_id: str
    tokens: list[str]


def _somebody(name: str) -> str:
    if name == GROUP:
        message = f"{name!r} names no group: write it as group:finance"
        raise ValueError(message)
    return name


Subject: TypeAlias = Annotated[
    str,
    Field(pattern=r"^[^\s,*\x00-\x1f\x7f][^\s,\x00-\x1f\x7f]*$", max_length=256),
    AfterValidator(_somebody),
]
"""A subject or a group (`group:finance`) in a list of people."""

Person: TypeAlias = Annotated[str, Field(pattern=r"^\S(?:.*\S)?$", max_length=256)]
"""Any subject: its issuer may write it with blanks."""


class Answers(Request):
    """Answers, in one of three forms: `responses` by id, `interrupt_id` with `response`, or a bare
    `response` to the only open interrupt.
    """

    responses: dict[str, Value] | None = Field(default=None, min_length=1, max_length=500)
    interrupt_id: str | None = Field(default=None, min_length=1)
    response: Value = None
    note: str | None = Field(default=None, max_length=2_000)
    digests: dict[str, str] = Field(default_factory=dict)
    on_behalf_of: Person | None = None

    @model_serializer(mode="wrap")
    def _set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # null is an answer, so an absent field must not be written as null.
        return {name: v for name, v in handler(self).items() if name in self.model_fields_set}

    @model_validator(mode="after")
    def _has_one_form(self) -> Answers:
        has_response = "response" in self.model_fields_set
        if self.responses is not None and (has_response or self.interrupt_id is not None):
            raise ValueError("give either `responses` or `response`, not both")
        if self.responses is None and not has_response:
            raise ValueError(
                "the answer is missing: give `response`, or `responses` by interrupt id"
            )
        return self


class Respond(Answers, Keyed):
    """Answers as the run gets them, with the principal.

    Without one (as sent from Temporal's UI) the principal is `temporal`, without capabilities.
    `delegations` are those to the principal.
    """

    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))
    delegations: tuple[Delegation, ...] = ()


class ValuesBody(Request):
    """An edit of the values as they were at `version`. The patch is JSON that fits the state."""

    patch: dict[str, Value] = Field(min_length=1)
    version: int = Field(strict=True)


class EditValues(ValuesBody, Keyed):
    """An edit of the values as the run gets it, with the principal."""

    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class DeadlineBody(Request):
    """A new deadline of an open interrupt: a time, or a `timeout` from now; null removes it.

    `on_timeout` is `halt` or `goto:<node>`.
    """

    deadline: Moment | None = None
    timeout: OptionalSeconds = Field(default=None, gt=0)
    on_timeout: str | None = Field(default=None, pattern=r"^(halt|goto:.+)$")

    @model_serializer(mode="wrap")
    def _set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # null removes a deadline, so an absent field must not be written as null.
        return {name: v for name, v in handler(self).items() if name in self.model_fields_set}

    @model_validator(mode="after")
    def _changes_something(self) -> DeadlineBody:
        moved = {"deadline", "timeout"} & self.model_fields_set
        if len(moved) > 1:
            raise ValueError("give either `deadline` or `timeout`, not both")
        if not moved and self.on_timeout is None:
            raise ValueError(
                "there is nothing to change: give `deadline`, `timeout` or `on_timeout`"
            )
        return self


class EditDeadline(DeadlineBody, Keyed):
    """An edit of a deadline as the run gets it, with the interrupt and the principal."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


ONE_CLAIM: Final = 1_800.0
"""How many seconds a claim lasts unless its caller says so."""
LONGEST_CLAIM: Final = 86_400.0
"""How many seconds it may last."""


class ClaimBody(Request):
    """Claim a question for so long (`for`, at most a day), in one's own place or in that of somebody who
    has delegated it.
    """

    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )

    for_: Seconds = Field(default=ONE_CLAIM, alias="for", gt=0, le=LONGEST_CLAIM)
    on_behalf_of: Person | None = Field(default=None, exclude_if=_is_none)


class Claim(ClaimBody, Keyed):
    """A claim as the run gets it, with the interrupt, the principal, and the delegations to them."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))
    delegations: tuple[Delegation, ...] = Field(default=(), exclude_if=_is_empty)


class ReleaseClaim(Keyed):
    """End the claim of a question."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class ReassignBody(Request):
    """Replace whom a question is for by the subjects and groups `to`. `note` is why."""

    to: tuple[Subject, ...] = Field(min_length=1, max_length=100)
    note: str | None = Field(default=None, max_length=2_000)


class Reassign(ReassignBody, Keyed):
    """Other assignees as the run gets them, with the interrupt and the principal."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class DelegateBody(Request):
    """Let `to` answer in one's place, from `from` (else now) until `until`, at most 90 days from now.

    `capabilities` are those that are lent, of those that questions ask for; without them all that one
    has.
    """

    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )

    to: Person
    capabilities: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None = Field(
        default=None, max_length=200
    )
    from_: Moment | None = Field(default=None, alias="from")
    until: Moment
    reason: str | None = Field(default=None, max_length=2_000)


class Undelegate(Request):
    """Delete a delegation."""

    id: str
    principal: Principal


class TakeBackBody(Request):
    """Take back a yes while its question is held. `note` is why, and is recorded with it."""

    note: str | None = Field(default=None, max_length=2_000)


class TakeBack(TakeBackBody, Keyed):
    """What is taken back as the run gets it, with the interrupt and the principal."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


def _node_names(renames: dict[str, str]) -> dict[str, str]:
    if odd := [name for pair in renames.items() for name in pair if not name.strip(".")]:
        message = f"{odd[0]!r} is not the name of a node: write names, nested ones as outer.inner"
        raise ValueError(message)
    return renames


Renames: TypeAlias = Annotated[dict[str, str], AfterValidator(_node_names), Field(max_length=1_000)]
"""The names of nodes in the run's graph, nested ones as `outer.inner`, and what they are called now."""


class MigrateBody(Request):
    """A migration to today's graph: a `patch` of the values, and a `map` of nodes that were renamed.

    With `dry_run` nothing changes, and the response says what would.
    """

    dry_run: bool = Field(default=False, strict=True)
    patch: dict[str, Value] = Field(default_factory=dict)
    map: Renames = Field(default_factory=dict)


class Migrate(MigrateBody, Keyed):
    """A migration as the run gets it. `version` is that of the sender's graph, if it has one."""

    version: str | None = None
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class RetryBody(Request):
    """A retry of an ended run: by the graph that it has, or by today's, with a `map` of renamed nodes."""

    graph: Literal["pinned", "today"] = "pinned"
    patch: dict[str, Value] = Field(default_factory=dict)
    map: Renames = Field(default_factory=dict)

    @model_validator(mode="after")
    def _maps_to_today(self) -> Self:
        if self.map and self.graph == "pinned":
            raise ValueError("`map` is for today's graph: add `graph: today`, or leave it out")
        return self

    @property
    def changes_course(self) -> bool:
        """Whether it changes more than that the run goes on."""
        return self.graph == "today" or bool(self.patch)


class ForkBody(Request):
    """A fork: how many finished visits it goes back, and the id of the new run, generated if absent."""

    back: int = Field(default=0, ge=0, le=1_000_000, strict=True)
    run_id: str | None = None


class ScopeValues(Record):
    """The values of one graph of a run, and the names of the nodes that lead to it from the root."""

    path: tuple[str, ...] = ()
    values: dict[str, Any]


class ReadGraph(Record):
    """What is needed to read today's graph for a run: its start's options, values and renamed nodes."""

    graph: str
    interrupt_before: tuple[str, ...] = ()
    interrupt_after: tuple[str, ...] = ()
    on_error: str | None = None
    renames: dict[str, str] = Field(default_factory=dict)
    patch: dict[str, Any] = Field(default_factory=dict)
    scopes: list[ScopeValues] = Field(default_factory=list)


class GraphToday(Record):
    """Today's graph: as it is pinned in a run, its `version`, and the patch as JSON that fits its model.

    `faults` are the values that do not fit, each as an obstacle of a migration.
    """

    spec: GraphSpec
    version: str
    patch: dict[str, Any] = Field(default_factory=dict)
    faults: list[dict[str, Any]] = Field(default_factory=list)


class WhichInterrupt(Request):
    """The argument of a query for one interrupt."""

    interrupt_id: str
