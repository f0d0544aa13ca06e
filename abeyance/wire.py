"""What crosses a process boundary: names in Temporal, and the shapes of orders and answers.

Everything here is data without behaviour. Requests are strict (an unknown field is an error); what a
run writes down for itself (orders to activities, snapshots) is read leniently, so that a worker of
yesterday can still be replayed by one of tomorrow.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
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

from abeyance.core.events import Message, Priority
from abeyance.core.ledger import Parent, Receipt
from abeyance.core.mailbox import Rejected, Undelivered
from abeyance.core.outcome import VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.state import Called, Limits
from abeyance.duration import OptionalSeconds

MAX_DEPTH = 100
"""How many levels lists and mappings may be nested in a value. Whoever reads JSON gives up at 200, and
a run that cannot be read is stuck for ever: so there has to be room for what a value is put into."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_LATEST = 2200
"""The year from which on no timer can be set: Temporal's server counts at most 292 years."""


def refuse_too_deep(value: JsonValue) -> JsonValue:
    """The value itself. Raises ValueError if it is nested deeper than `DEEPEST`."""
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
"""A JSON value that somebody sends."""


def _moment(given: Any) -> Any:
    # A number, be it in a text, would be read as seconds since 1970.
    if isinstance(given, datetime) or (isinstance(given, str) and _DAY.match(given)):
        return given
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
"""A time that somebody sends: RFC 3339, with its offset from UTC."""


class Record(BaseModel):
    """Something that our own code wrote and reads again."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Stamp(Record):
    """What an order is good for, where only what is sealed is taken. It is sealed with the order.

    `order` is the name of the signal or update, `execution` the first of the run's executions in
    Temporal, `nonce` a number that is used once, and grows with time. `shown` are the digests of the
    questions that an answer is meant for, by their ids.
    """

    order: str
    execution: str = ""
    nonce: str = ""
    shown: dict[str, str] = Field(default_factory=dict)


class Stamped(BaseModel):
    """What travels with a stamp, which is no part of what it says."""

    _stamp: Stamp | None = PrivateAttr(default=None)

    @property
    def stamp(self) -> Stamp | None:
        """The stamp; None if it has none, or came unsealed."""
        return self._stamp

    def stamped(self, stamp: Stamp) -> Self:
        """The same with a stamp."""
        made = self.model_copy()
        made._stamp = stamp  # noqa: SLF001
        return made


class Request(Stamped):
    """A request by a person or a program: nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Keyed(Request):
    """A request that counts once under its `key`: the same again gets the first receipt."""

    key: str | None = Field(
        default=None, min_length=1, max_length=256, exclude_if=lambda key: key is None
    )


UNSEEN: Final = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for the tab and the end of a line
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800"
    "\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"  # what takes no room, or shows nothing
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of writing
    "\u2028\u2029"  # ends of lines that not everybody takes for one
    "\ud800-\udfff"  # halves of characters
    "]"
)
"""The characters by which a text is read as another one than it is. The inbox has the same table."""


def visible(text: str) -> str:
    """The text with what cannot be seen in it shown as code points, such as `<U+202E>`."""
    return UNSEEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """JSON with the same written as escapes: it means what it meant before."""
    return UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


class InterruptView(Record):
    """An interrupt as people and programs see it.

    `abridged`: so much is open beside it that its reason, payload and schema are left out, and the prompt
    is cut; read by its id it is whole. `degraded`: what is kept of it cannot be read here, so its prompt
    says why, and its deadline is the nearest of the run's.
    """

    id: str
    run_id: str
    graph: str
    name: str
    kind: str
    address: str
    prompt: str
    reason: Any = None
    payload: Any = None
    response_schema: Any = None
    requested_capability: str | None = None
    created_at: datetime
    deadline: datetime | None = None
    on_timeout: Any = None
    status: str
    parent: str | None = None
    parents: list[Parent] = Field(default_factory=list)
    is_root_cause: bool = True
    digest: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    answer_sha256: str | None = None
    answer: Any = None
    settled_at: datetime | None = None
    settled_reason: str | None = None
    abridged: bool = False
    degraded: bool = False


class Metrics(Record):
    """What is counted over a run's life."""

    messages_queued: int
    messages_delivered: int
    pause_count: int
    resume_count: int
    cancel_count: int
    max_queue_depth: int
    last_activity_at: datetime
    visits: int


class ErrorView(Record):
    """What failed, and where."""

    code: str
    message: str
    address: str | None = None


class PauseView(Record):
    """Why, by whom and for how long a run is paused."""

    since: datetime
    actor: str
    reason: str | None
    mode: str
    deadline: datetime | None
    on_timeout: str


class AgentView(Record):
    """An agent at work: how many turns its model has taken, and what they took (`input_tokens`, ...)."""

    address: str
    turns: int
    usage: dict[str, int] = Field(default_factory=dict)


class RunView(Record):
    """A run as people and programs see it.

    `guarded_by` are the capabilities that its graph can ask for; to change its course takes them all.
    """

    run_id: str
    graph: str
    graph_version: str
    status: str
    outcome: str | None = None
    reason: str | None = None
    paused: bool = False
    pause: PauseView | None = None
    conversation_id: str | None = None
    session_type: str = "agent"
    labels: dict[str, str] = Field(default_factory=dict)
    started_by: str | None = None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    running: list[str] = Field(default_factory=list)
    agents: list[AgentView] = Field(default_factory=list)
    interrupts: list[InterruptView] = Field(default_factory=list)
    queue_depth: int = 0
    max_queue_size: int = 0
    todos: list[Any] = Field(default_factory=list)
    metrics: Metrics | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    version: int = 0
    result: dict[str, Any] | None = None
    undelivered: list[Undelivered] = Field(default_factory=list)
    rejected: list[Rejected] = Field(default_factory=list)
    blocked: list[dict[str, Any]] = Field(default_factory=list)
    guarded_by: list[str] = Field(default_factory=list)
    error: ErrorView | None = None
    beside: list[ErrorView] = Field(default_factory=list)
    cancelled_by: str | None = None
    degraded: bool = False


class ClosingRecord(Record):
    """What a run leaves behind: enough to read it, and to answer for it, without a worker.

    `transcripts` says where those of its agents are kept, by the agents' addresses; None
    where that was not written down. `keys` are the last calls that came under a key.
    """

    outcome: str
    reason: str | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    undelivered: list[Undelivered] = Field(default_factory=list)
    view: RunView
    interrupts: list[InterruptView] = Field(default_factory=list)
    transcripts: dict[str, str] | None = None
    keys: dict[str, Called] = Field(default_factory=dict)


class Event(Record):
    """Something that happened in a run, as its feed tells it; never values, never an answer.

    `id` is the cursor right after it: opaque, and larger as text than those of earlier events.
    """

    id: str
    time: datetime
    type: str
    run_id: str
    address: str | None = None
    actor: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


TERMINAL_EVENTS = frozenset({"run.completed", "run.failed", "run.cancelled", "run.halted"})
"""The types of the last event of a run."""


class ControlBody(Request):
    """What a caller may say with a control operation. `reason` is recorded with it."""

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
    """A control operation as the run gets it: also by whom, as its sender claims."""

    actor: str = Field(default="temporal", max_length=256)


class Pause(PauseBody, Control):
    """Start no new work. `capabilities` are the actor's, for an end that leads to another node."""

    capabilities: tuple[str, ...] = ()


class Resume(Control):
    """Go on."""


class Cancel(CancelBody, Control):
    """End in good order."""


Order: TypeAlias = Pause | Resume | Cancel
"""What a run may get under a key as a signal."""


class Evict(Request):
    """Halt the run, with `inactive_since` only if it was not active after that."""

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

    A `url` is passed on as it is, and never fetched by us; it has to be https, on a host that the
    service allows.
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


class MessageBody(Request):
    """A message for a run. Without a `message_id` one is made.

    `action` makes it a directive (continue, rerun, go_back, skip, pause, defer, update_state), or is a
    word of the author's own; `params` belong to it. `target` is the address or the name of the node
    that it is for. `ttl` is how long it may stay unread, as any duration.
    """

    message_id: str | None = Field(default=None, min_length=1, max_length=256)
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
    """A message as the run gets it: also from whom, who may pass which gates."""

    sender: str = Field(default="temporal", max_length=256)
    capabilities: tuple[str, ...] = ()


class SendMessage(SteerMessage):
    """A message that gets a receipt. If the run accepts it, `pause` pauses the run before that."""

    pause: Pause | None = Field(default=None, exclude_if=_is_none)


class MessageReceipt(Record):
    """That a message was accepted. `queue_depth` None: no worker could be asked."""

    message_id: str
    duplicate: bool
    queue_depth: int | None


class MessageView(Record):
    """An unread message, as people see it."""

    message_id: str
    text: str
    sender: str
    metadata: dict[str, Any]
    parts: list[dict[str, Any]]
    action: str | None
    params: dict[str, Any]
    target: str | None
    priority: Priority
    sent_at: datetime | None
    expires_at: datetime | None

    @classmethod
    def of(cls, message: Message) -> MessageView:
        """The view of a message. What its sender may do is not shown."""
        return cls(**{name: getattr(message, name) for name in cls.model_fields})


class TakeMessages(Request):
    """A visit asks for its messages from the n-th on (`start`), at most up to the `upto`-th."""

    visit: str
    start: int = Field(default=0, ge=0)
    upto: int = Field(default=1, ge=1, le=100_000)


class ClearMessages(Keyed):
    """Throw the unread messages away; they are reported."""

    actor: str = Field(default="temporal", max_length=256)


class Cleared(Record):
    """How many messages were thrown away."""

    cleared: int


WORKFLOW = "AgentRun"
CONVERSATION_WORKFLOW = "Conversation"
JANITOR_WORKFLOW = "Janitor"
RELEASE_ACTIVITY = "release-conversation"
EVICT_ACTIVITY = "evict-inactive"
TASK_QUEUE = "abeyance"

STATUS = "AbeyanceStatus"
GRAPH = "AbeyanceGraph"
CONVERSATION = "AbeyanceConversation"
CAPABILITY = "AbeyanceCapability"
LABELS = "AbeyanceLabels"
DEADLINE = "AbeyanceDeadline"
ACTIVITY = "AbeyanceActivity"

SEARCH_ATTRIBUTES: Mapping[str, Literal["Keyword", "KeywordList", "Datetime"]] = {
    STATUS: "Keyword",
    GRAPH: "Keyword",
    CONVERSATION: "Keyword",
    CAPABILITY: "KeywordList",
    LABELS: "KeywordList",
    DEADLINE: "Datetime",
    ACTIVITY: "Datetime",
}
"""What Temporal's visibility knows of a run, and of which type it is."""

MEMO_SUMMARY = "summary"
MEMO_FACTS = "facts"
MEMO_START = "start"
MEMO_CLOSING = "closing"
MEMO_QUEUE = "task_queue"
MEMO_INTERRUPT = "interrupt:"
"""Keys of a run's memo; the last is a prefix, followed by the id of an open interrupt."""

MEMO_ROW = (
    *("id", "name", "kind", "address", "prompt", "requested_capability"),
    *("created_at", "deadline", "digest"),
)
"""The fields of an `InterruptView` that the memo has of an open interrupt."""

ANY_CAPABILITY = "*"
"""What stands in a search attribute for capabilities that are too many to list: look in the view."""

REPLAYED = "replayed"
"""The type of the error by which a validator hands out the receipts of answers that were given
before: a rejected update leaves nothing in the history."""

EMPTY = "queue_empty"
"""The type of the error by which `take_messages` is turned away when there is nothing to take."""

STILL_ACTIVE = "still_active"
"""The type of the error by which `evict` is turned away from a run that stays."""

RUN_ID_RULE = r"^[A-Za-z0-9_-]{1,256}$"


class StartRun(Record, Stamped):
    """What a run is, beside its spec and values; it stays the same over every hand-over.

    `request` is a hash of the whole call that started it, where its id was made from the caller's key.
    `claim` is the token by which its conversation knows it. `salt` tells what it asks from what an
    earlier run of its id has asked.

    `generation` grows from each history of the run to the next, so that events of later ones can be told
    from earlier ones. `used` are the nonces of the last orders. With a stamp, the run takes only what was
    sealed for it.
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


class VisitReport(Record, Stamped):
    """What an activity returns. `took` is how many seconds a local one took since it was ordered. A stamp
    names the visit.
    """

    outcome: VisitOutcome = Field(discriminator="kind")
    took: float | None = None


class Journal(Record):
    """What a visit's attempts remember: every heartbeat carries all of it.

    `visit` is whose they are; "" where it is not said. `steps` are the results of finished steps, by
    their names. An attempt that is in none of the counts was lost with its worker, or ran out of time.
    """

    visit: str = ""
    steps: dict[str, Any] = Field(default_factory=dict)
    failures: int = 0
    excused: int = 0

    @staticmethod
    def owner(execution: str, address: str) -> str:
        """What a visit is called in its journal."""
        return f"{execution} {address}"

    def is_of(self, visit: str) -> bool:
        """Whether a visit may go by it: none goes by what was copied from another."""
        return self.visit in ("", visit)


class EvictInactive(Record):
    """A round of the janitor: `inactive_for` is in seconds."""

    inactive_for: float


class Release(Record):
    """Runs of a conversation have ended, or never started: the claims with these tokens are void."""

    conversation_id: str
    tokens: list[str]


class Answers(Request):
    """Answers, in one of three forms: `responses` by id, `interrupt_id` with `response`, or a bare
    `response` to the only open interrupt.
    """

    responses: dict[str, Value] | None = Field(default=None, min_length=1, max_length=500)
    interrupt_id: str | None = Field(default=None, min_length=1)
    response: Value = None
    note: str | None = Field(default=None, max_length=2_000)
    digests: dict[str, str] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # null is an answer, so what was not given must not come out as null.
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
    """Answers as the run gets them: also from whom.

    Without a principal (as sent from Temporal's UI) it is `temporal` who answers, with no capability.
    """

    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class ValuesBody(Request):
    """Fields of the values to set, as the values were at `version`. The patch is JSON that fits the
    state.
    """

    patch: dict[str, Value] = Field(min_length=1)
    version: int = Field(strict=True)


class EditValues(ValuesBody, Keyed):
    """An edit of the values as the run gets it: also by whom."""

    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class DeadlineBody(Request):
    """A new deadline of an open interrupt: a time, or a `timeout` from now; null removes it.

    `on_timeout` is `halt` or `goto:<node>`.
    """

    deadline: Moment | None = None
    timeout: OptionalSeconds = Field(default=None, gt=0)
    on_timeout: str | None = Field(default=None, pattern=r"^(halt|goto:.+)$")

    @model_serializer(mode="wrap")
    def _as_given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # null removes a deadline, so what was not given must not come out as null.
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
    """An edit of a deadline as the run gets it: also of which interrupt, and by whom."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class WhichInterrupt(Request):
    """Of which interrupt something is asked."""

    interrupt_id: str


class Receipts(Record):
    """What became of the answers of one call."""

    receipts: list[Receipt]
