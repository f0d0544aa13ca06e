"""The commands about a run: control, messages, edits of its values, migration and retry."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from abeyance.core.policy import TEMPORAL, Principal, is_reserved
from abeyance.core.state import Status
from abeyance.core.terms import Priority
from abeyance.core.text import LONGEST_ID, truncate
from abeyance.duration import OptionalSeconds
from abeyance.wire import Keyed, Moment, Request, Value, is_none


def _printable(text: str) -> str:
    if not text.isprintable():
        message = f"{truncate(text, 100)!r} has unprintable characters: remove them"
        raise ValueError(message)
    return text


def _not_only_dots(text: str) -> str:
    if not text.strip("."):
        message = f"{truncate(text, 100)!r} is not an id: no URL can hold dots alone"
        raise ValueError(message)
    return text


def _short(text: str) -> str:
    length = len(text.encode())
    if length > LONGEST_ID:
        raise ValueError(
            f"{truncate(text, 100)!r} has {length} bytes: an id has at most {LONGEST_ID}"
        )
    return text


Id: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=LONGEST_ID), AfterValidator(_short)
]
Name: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=256), AfterValidator(_printable)
]
ConversationId: TypeAlias = Annotated[
    Id, AfterValidator(_printable), AfterValidator(_not_only_dots)
]
LabelName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,64}$")]
LabelValue: TypeAlias = Annotated[
    str, StringConstraints(max_length=256), AfterValidator(_printable)
]
_LABEL_NAME: Final = TypeAdapter(LabelName)
_LABEL_VALUE: Final = TypeAdapter(LabelValue)


def _label(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        message = f"{truncate(text, 100)!r} is not a label: write name=value"
        raise ValueError(message)
    return f"{_LABEL_NAME.validate_python(name)}={_LABEL_VALUE.validate_python(value)}"


Person: TypeAlias = Annotated[str, Field(pattern=r"^\S(?:.*\S)?$", max_length=256)]
"""Any subject: its issuer may write it with blanks."""


def _somebody(subject: str) -> str:
    if is_reserved(subject):
        message = f"{subject!r} is nobody who could start a run: write the subject of a person"
        raise ValueError(message)
    return subject


Label: TypeAlias = Annotated[
    str,
    AfterValidator(_label),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9_.:/-]{1,64}="}),
]
"""A label in a filter."""


class StartFields(Request):
    """What lists and conversations find a run by, given at its start."""

    on_behalf_of: Annotated[Person, AfterValidator(_somebody)] | None = Field(
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


class RunsPage(Request):
    """Which page of the runs is read."""

    statuses: frozenset[Status] = frozenset()
    graph: Name | None = None
    conversation_id: Name | None = None
    labels: tuple[Label, ...] = ()
    blocked: bool | None = Field(default=None, strict=True)
    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=1_000, strict=True)


class StreamPage(Request):
    """Which events of all runs are read."""

    types: tuple[Name, ...] = ()
    graph: Name | None = None
    capabilities: tuple[Name, ...] = ()


class TakeMessages(Request):
    """Take the messages of a visit from the n-th (`start`) to the `upto`-th."""

    visit: str
    start: int = Field(default=0, ge=0)
    upto: int = Field(default=1, ge=1, le=100_000)


class Wait(Request):
    """Wait until the run has a status of `until`, or has ended."""

    until: list[Status] = Field(max_length=len(Status))


class ClearMessages(Keyed):
    """Discard the unread messages; they are reported."""

    actor: str = Field(default="temporal", max_length=256)


class ValuesBody(Request):
    """An edit of the values as they were at `version`. The patch is JSON that fits the state."""

    patch: dict[str, Value] = Field(min_length=1)
    version: int = Field(strict=True)


class EditValues(ValuesBody, OfPrincipal):
    """An edit of the values as the run gets it."""


def _node_names(renames: dict[str, str]) -> dict[str, str]:
    if odd := [name for pair in renames.items() for name in pair if not name.strip(".")]:
        message = f"{odd[0]!r} is not the name of a node: write names, nested ones as outer.inner"
        raise ValueError(message)
    return renames


Renames: TypeAlias = Annotated[dict[str, str], AfterValidator(_node_names), Field(max_length=1_000)]
"""The names of nodes in the run's graph, nested ones as `outer.inner`, and what they are called now."""


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
