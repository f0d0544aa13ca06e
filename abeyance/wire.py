"""What crosses a process boundary: names in Temporal, and the shapes of orders and answers.

Everything here is data without behaviour. Requests are strict (an unknown field is an error); what a
run writes down for itself (orders to activities, snapshots) is read leniently, so that a worker of
yesterday can still be replayed by one of tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from abeyance.core.ledger import Receipt
from abeyance.core.mailbox import Rejected, Undelivered
from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.duration import OptionalSeconds

WORKFLOW = "AgentRun"
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
MEMO_INTERRUPT = "interrupt:"
"""Keys of a run's memo; the last is a prefix, followed by the id of an open interrupt."""

REPLAYED = "replayed"
"""The type of the error by which a validator hands out the receipts of answers that were given
before: a rejected update leaves nothing in the history."""

EMPTY = "queue_empty"
"""The type of the error by which `take_messages` is turned away when there is nothing to take."""

DEEPEST = 100
"""How many levels lists and mappings may be nested in a value. Whoever reads JSON gives up at 200, and
a run that cannot be read is stuck for ever: so there has to be room for what a value is put into."""

_LATEST = 2200
"""The year from which on no timer can be set: Temporal's server counts at most 292 years."""

RUN_ID_RULE = r"^[A-Za-z0-9_-]{1,256}$"


def refuse_too_deep(value: JsonValue) -> JsonValue:
    """The value itself. Raises ValueError if it is nested deeper than `DEEPEST`."""
    nesting = (dict, list, tuple)
    level = [value] if isinstance(value, nesting) else []
    for _ in range(DEEPEST):
        if not level:
            return value
        inside = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [item for item in chain.from_iterable(inside) if isinstance(item, nesting)]
    if not level:
        return value
    message = f"lists and mappings are nested in it deeper than {DEEPEST} levels"
    raise ValueError(message)


Value: TypeAlias = Annotated[JsonValue, AfterValidator(refuse_too_deep)]
"""A JSON value that somebody sends."""


def _moment(given: Any) -> Any:
    if isinstance(given, (str, datetime)):
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


class Request(BaseModel):
    """A request by a person or a program: nothing unknown in it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(BaseModel):
    """Something that our own code wrote and reads again."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class StartRun(Record):
    """What a run is, beside its spec and values; it stays the same over every hand-over.

    `request` is a hash of the whole call that started it, where its id was made from the caller's key.
    Only `generation` changes: it grows from each history of the run to the next, so that events of
    later ones can be told from earlier ones.
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
    generation: int = 0


class VisitOrder(Record):
    """An order to an activity: run a visit's code, or ask its node's route functions.

    `execution` tells this run from an earlier one that had the same id. `routes` names the route
    functions that the run's own graph has for the node; None leaves it to the graph of the worker.
    """

    kind: Literal["visit", "routes"]
    run_id: str
    execution: str = ""
    graph: str
    node: str
    address: str
    values: dict[str, Any]
    answers: dict[str, Any] = Field(default_factory=dict)
    start: int = 1
    retries: int = 0
    timeout: float | None = None
    journal: Any = None
    outcome: str | None = None
    routes: tuple[str, ...] | None = None


class Finished(Record):
    """The code returned. `routed` are the targets that route functions chose."""

    kind: Literal["finished"] = "finished"
    patch: dict[str, Any] = Field(default_factory=dict)
    goto: str | None = None
    routed: tuple[str, ...] = ()


class Stopped(Record):
    """The code was stopped because the run asked for it."""

    kind: Literal["stopped"] = "stopped"
    journal: Any = None


class Failed(Record):
    """The code failed for good."""

    kind: Literal["failed"] = "failed"
    code: str
    message: str
    journal: Any = None


VisitOutcome: TypeAlias = Annotated[Finished | Stopped | Failed, Field(discriminator="kind")]


class VisitReport(Record):
    """What an activity returns."""

    outcome: VisitOutcome


class Journal(Record):
    """What a visit's attempts remember: every heartbeat carries all of it.

    An attempt that is in none of the counts was lost with its worker, or ran out of time.
    """

    failures: int = 0
    excused: int = 0


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


class Control(ControlBody):
    """A control operation as the run gets it: also by whom, as its sender claims."""

    actor: str = Field(default="temporal", max_length=256)


class Pause(PauseBody, Control):
    """Start no new work."""


class Resume(Control):
    """Go on."""


class Cancel(CancelBody, Control):
    """End in good order."""


class SteerMessage(Request):
    """A message for a run's mailbox."""

    message_id: str = Field(min_length=1, max_length=256)
    text: str = Field(min_length=1)
    metadata: dict[str, Value] = Field(default_factory=dict)
    sender: str = Field(default="temporal", max_length=256)


class MessageReceipt(Record):
    """That a message was accepted."""

    message_id: str
    duplicate: bool
    queue_depth: int


class TakeMessages(Request):
    """A visit asks for the oldest messages, at most `most`."""

    visit: str
    most: int = Field(default=1, ge=1, le=1000)


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


class Respond(Answers):
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


class EditValues(ValuesBody):
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


class EditDeadline(DeadlineBody):
    """An edit of a deadline as the run gets it: also of which interrupt, and by whom."""

    interrupt_id: str
    principal: Principal = Field(default_factory=lambda: Principal(subject="temporal"))


class Receipts(Record):
    """What became of the answers of one call."""

    receipts: list[Receipt]


class InterruptView(Record):
    """An interrupt as people and programs see it."""

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
    parents: list[dict[str, Any]] = Field(default_factory=list)
    is_root_cause: bool = True
    digest: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    answer_sha256: str | None = None
    answer: Any = None
    settled_at: datetime | None = None
    settled_reason: str | None = None


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


class RunView(Record):
    """A run as people and programs see it."""

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
    error: ErrorView | None = None
    beside: list[ErrorView] = Field(default_factory=list)
    cancelled_by: str | None = None
    degraded: bool = False


class ClosingRecord(Record):
    """What a run leaves behind: enough to read it, and to answer for it, without a worker."""

    outcome: str
    reason: str | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    undelivered: list[Undelivered] = Field(default_factory=list)
    view: RunView
    interrupts: list[InterruptView] = Field(default_factory=list)


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
