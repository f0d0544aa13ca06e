"""The commands of callers, each defined once: the argument of its signal or update.

The HTTP body is the same less what the server fills in. An unknown field is an error. `as_events` makes
commands events of the core.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from abeyance.commands.fields import (
    Assignees,
    Base64,
    ConversationId,
    Id,
    LabelName,
    LabelValue,
    Name,
    Person,
    Renames,
    Starter,
)
from abeyance.core.delegations import Delegation
from abeyance.core.policy import TEMPORAL, Principal
from abeyance.core.terms import Priority
from abeyance.duration import OptionalSeconds, OptionalSpan, Seconds
from abeyance.wire import BY_NAME_AND_ALIAS, Keyed, Moment, Request, Value, is_empty, is_none

REWIND_TO_START: Final = "start"
"""The target of a rewind that is not a question."""

# About a run: control, messages, edits of its values, migration and retry


class StartFields(Request):
    """The fields by which lists and conversations find a run, given at its start."""

    on_behalf_of: Starter | None = Field(
        default=None,
        description="Who starts the run, if another sends the start: `@starter` is this person.",
    )
    conversation_id: ConversationId | None = Field(
        default=None, description="The conversation that the run belongs to."
    )
    session_type: Name = Field(
        default="agent", description="The type of the run within its conversation."
    )
    labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=20)


class OfConversation(Request):
    """A request about the active runs of a conversation."""

    conversation_id: ConversationId


class OfPrincipal(Keyed):
    """A request with its principal. Without one (as sent from Temporal's UI) it is `temporal`, without
    capabilities.
    """

    principal: Principal = TEMPORAL


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


class MessageBody(Request):
    """A message for a run. Its `message_id` defaults to a generated one.

    `action` is a word for the code that reads it; `params` are its parameters. `target` is the address or
    the name of the receiving node. `ttl` is how long the message may stay unread, as any duration.
    """

    message_id: Id | None = None
    text: str = ""
    parts: tuple[Part, ...] = Field(default=(), max_length=20)
    metadata: dict[str, Value] = Field(default_factory=dict)
    action: str | None = Field(default=None, min_length=1, max_length=100)
    params: dict[str, Value] = Field(default_factory=dict)
    target: str | None = Field(default=None, min_length=1, max_length=2_000)
    priority: Priority = "normal"
    ttl: OptionalSeconds = Field(default=None, gt=0)


class SteerMessage(MessageBody):
    """A message as the run gets it, with its sender and the sender's capabilities."""

    sender: str = Field(default="temporal", max_length=256)
    capabilities: tuple[str, ...] = ()


class SendMessage(SteerMessage):
    """A message that gets a receipt. With `pause` the run is paused first, if it accepts the message."""

    pause: Pause | None = Field(default=None, exclude_if=is_none)


class TakeMessages(Request):
    """Take the messages of a visit from the n-th (`start`) to the `upto`-th."""

    visit: str
    start: int = Field(default=0, ge=0)
    upto: int = Field(default=1, ge=1, le=100_000)


class ClearMessages(Keyed):
    """Discard the unread messages; they are reported."""

    actor: str = Field(default="temporal", max_length=256)


class ValuesBody(Request):
    """An edit of the values as they were at `version`. The patch is JSON that fits the state."""

    patch: dict[str, Value] = Field(min_length=1)
    version: int = Field(strict=True)


class EditValues(ValuesBody, OfPrincipal):
    """An edit of the values as the run gets it."""


class MigrationFields(Request):
    """A migration to today's graph: a `patch` of the values, and a `map` of nodes that were renamed.

    With `dry_run` nothing changes, and the response says what would.
    """

    dry_run: bool = Field(default=False, strict=True)
    patch: dict[str, Value] = Field(default_factory=dict)
    map: Renames = Field(default_factory=dict)


class MigrateBody(MigrationFields):
    """A migration as its caller asks for it. With `pause`, a run whose code is under way is paused until
    that has ended, and goes on once it is migrated.
    """

    pause: bool = Field(default=False, strict=True)


class Migrate(MigrationFields, OfPrincipal):
    """A migration as the run gets it. `version` is that of the sender's graph, if it has one."""

    version: str | None = None


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


class RewindBody(Request):
    """A rewind of a run to a question, or to its `start`, and a `patch` of the values that it has then.

    With `dry_run` nothing changes, and the response says what would.
    """

    to: str = Field(min_length=1, max_length=400)
    patch: dict[str, Value] = Field(default_factory=dict)
    dry_run: bool = Field(default=False, strict=True)


# About questions: answers, deadlines, claims, assignees, delegations


class OfQuestion(OfPrincipal):
    """A command of a principal about a question."""

    interrupt_id: str


class Answers(Request):
    """Answers, in one of three forms: `responses` by id, `interrupt_id` with `response`, or a bare
    `response` to the only open interrupt.
    """

    responses: dict[str, Value] | None = Field(default=None, min_length=1, max_length=500)
    interrupt_id: str | None = Field(default=None, min_length=1)
    response: Value = None
    note: str | None = Field(default=None, max_length=2_000, exclude_if=is_none)
    digests: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    on_behalf_of: Person | None = Field(default=None, exclude_if=is_none)

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


class Respond(Answers, OfPrincipal):
    """Answers as the run gets them. `delegations` are those to the principal.

    What is remembered of them ends at `vouched_until`, if an issuer of tokens vouches for the principal.
    `remember_only` says that it counts in the run alone, or that nothing is remembered of them. `granted`
    is how many grants the principal has, which take `granted_bytes`.
    """

    delegations: tuple[Delegation, ...] = ()
    vouched_until: Moment | None = Field(default=None, exclude_if=is_none)
    remember_only: Literal["run", "nothing"] | None = Field(default=None, exclude_if=is_none)
    granted: int | None = Field(default=None, exclude_if=is_none)
    granted_bytes: int | None = Field(default=None, exclude_if=is_none)


class DeadlineBody(Request):
    """A new deadline of an open interrupt: a time, or a `timeout` from now; null removes it. A question
    with a calendar takes business time too, such as `2bd` or `3bh`.

    `on_timeout` is `halt` or `goto:<node>`.
    """

    deadline: Moment | None = None
    timeout: OptionalSpan = None
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


class EditDeadline(DeadlineBody, OfQuestion):
    """An edit of a deadline as the run gets it."""


ONE_CLAIM: Final = 1_800.0
"""How many seconds a claim lasts unless its caller says so."""
LONGEST_CLAIM: Final = 86_400.0
"""How many seconds it may last."""


class ClaimBody(Request):
    """Claim a question for a time (`for`, at most a day), for oneself or for a person who has delegated
    it.
    """

    model_config = BY_NAME_AND_ALIAS

    for_: Seconds = Field(default=ONE_CLAIM, alias="for", gt=0, le=LONGEST_CLAIM)
    on_behalf_of: Person | None = Field(default=None, exclude_if=is_none)


class Claim(ClaimBody, OfQuestion):
    """A claim as the run gets it. `delegations` are those to the principal."""

    delegations: tuple[Delegation, ...] = Field(default=(), exclude_if=is_empty)


class ReleaseBody(Request):
    """End the claim of a question. There is nothing to choose."""


class ReleaseClaim(ReleaseBody, OfQuestion):
    """The end of a claim as the run gets it."""


class ReassignBody(Request):
    """Replace whom a question is for by the subjects and groups `to`. `note` is why.

    With `votes` they also become those who vote on it.
    """

    to: Assignees
    votes: bool = Field(default=False, strict=True)
    note: str | None = Field(default=None, max_length=2_000)


class Reassign(ReassignBody, OfQuestion):
    """Other assignees as the run gets them."""


class DelegateBody(Request):
    """Let `to` answer in one's place, from `from` (else now) until `until`, at most 90 days from now.

    `capabilities` are those that are lent, of those that questions ask for; without them all that one
    has.
    """

    model_config = BY_NAME_AND_ALIAS

    to: Person
    capabilities: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None = Field(
        default=None, max_length=200
    )
    from_: Moment | None = Field(default=None, alias="from")
    until: Moment
    reason: str | None = Field(default=None, max_length=2_000)


class TakeBackBody(Request):
    """Take back a yes while its question is held. `note` is why, and is recorded with it."""

    note: str | None = Field(default=None, max_length=2_000)


class TakeBack(TakeBackBody, OfQuestion):
    """The taking back of a yes, as the run gets it."""


ListedStatus: TypeAlias = Literal[
    "open", "held", "answered", "expired", "cancelled", "superseded", "all"
]


class Interrupts(Request):
    """Which interrupts of a run are read."""

    status: ListedStatus = "open"


class WhichInterrupt(Request):
    """The argument of a query for one interrupt."""

    interrupt_id: str


QuestionEdit: TypeAlias = EditDeadline | TakeBack | Claim | ReleaseClaim | Reassign
"""A change of an open question, without a receipt."""
Edit: TypeAlias = EditValues | QuestionEdit
"""A change of an open run or one of its questions, without a receipt."""
Command: TypeAlias = Respond | Order | Edit | MigrateBody | RetryBody | RewindBody
"""A command that a handle sends to a run; messages are separate."""
