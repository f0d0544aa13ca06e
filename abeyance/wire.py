"""What crosses a process boundary: names in Temporal, and the shapes of orders and answers.

Everything here is data without behaviour. Requests are strict (an unknown field is an error); what a
run writes down for itself (orders to activities, snapshots) is read leniently, so that a worker of
yesterday can still be replayed by one of tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from abeyance.controls import Cancel as Cancel
from abeyance.controls import CancelBody as CancelBody
from abeyance.controls import Control as Control
from abeyance.controls import ControlBody as ControlBody
from abeyance.controls import Evict as Evict
from abeyance.controls import Order as Order
from abeyance.controls import Pause as Pause
from abeyance.controls import PauseBody as PauseBody
from abeyance.controls import Resume as Resume
from abeyance.core.ledger import Receipt
from abeyance.core.outcome import VisitOutcome
from abeyance.core.policy import Principal
from abeyance.core.state import Limits
from abeyance.duration import OptionalSeconds
from abeyance.mail import Cleared as Cleared
from abeyance.mail import ClearMessages as ClearMessages
from abeyance.mail import MediaPart as MediaPart
from abeyance.mail import MessageBody as MessageBody
from abeyance.mail import MessageReceipt as MessageReceipt
from abeyance.mail import MessageView as MessageView
from abeyance.mail import Part as Part
from abeyance.mail import SendMessage as SendMessage
from abeyance.mail import SteerMessage as SteerMessage
from abeyance.mail import TakeMessages as TakeMessages
from abeyance.mail import TextPart as TextPart
from abeyance.shapes import DEEPEST as DEEPEST
from abeyance.shapes import Keyed as Keyed
from abeyance.shapes import Moment as Moment
from abeyance.shapes import Record as Record
from abeyance.shapes import Request as Request
from abeyance.shapes import Stamp as Stamp
from abeyance.shapes import Stamped as Stamped
from abeyance.shapes import Value as Value
from abeyance.shapes import refuse_too_deep as refuse_too_deep
from abeyance.shown import TERMINAL_EVENTS as TERMINAL_EVENTS
from abeyance.shown import AgentView as AgentView
from abeyance.shown import ClosingRecord as ClosingRecord
from abeyance.shown import ErrorView as ErrorView
from abeyance.shown import Event as Event
from abeyance.shown import InterruptView as InterruptView
from abeyance.shown import Metrics as Metrics
from abeyance.shown import PauseView as PauseView
from abeyance.shown import RunView as RunView

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
