"""The commands about questions: answers, deadlines, claims, assignees, delegations."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from abeyance.commands.runs import Name, OfPrincipal, Person
from abeyance.core.delegations import Delegation
from abeyance.core.policy import Principal
from abeyance.core.terms import GROUP, Priority
from abeyance.core.text import truncate
from abeyance.duration import OptionalSpan, Seconds
from abeyance.filters import Sort
from abeyance.wire import Moment, Request, Value, is_empty, is_none

_SUBJECT: Final = r"^[^\s,*\x00-\x1f\x7f][^\s,\x00-\x1f\x7f]*$"


def _somebody(name: str) -> str:
    if re.fullmatch(_SUBJECT, name) is None or name == GROUP:
        message = (
            f"{truncate(name, 100)!r} is neither a subject nor a group: write ada, or group:finance, "
            "without blanks and commas"
        )
        raise ValueError(message)
    return name


Subject: TypeAlias = Annotated[
    str,
    Field(max_length=256, json_schema_extra={"pattern": _SUBJECT}),
    AfterValidator(_somebody),
]
"""A subject or a group (`group:finance`) in a list of people."""


class OfQuestion(OfPrincipal):
    """What a principal does to a question."""

    interrupt_id: str


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


class Respond(Answers, OfPrincipal):
    """Answers as the run gets them. `delegations` are those to the principal."""

    delegations: tuple[Delegation, ...] = ()


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
    """Claim a question for so long (`for`, at most a day), in one's own place or in that of somebody who
    has delegated it.
    """

    model_config = ConfigDict(
        validate_by_name=True, validate_by_alias=True, serialize_by_alias=True
    )

    for_: Seconds = Field(default=ONE_CLAIM, alias="for", gt=0, le=LONGEST_CLAIM)
    on_behalf_of: Person | None = Field(default=None, exclude_if=is_none)


class Claim(ClaimBody, OfQuestion):
    """A claim as the run gets it. `delegations` are those to the principal."""

    delegations: tuple[Delegation, ...] = Field(default=(), exclude_if=is_empty)


class ReleaseClaim(OfQuestion):
    """End the claim of a question."""


class ReassignBody(Request):
    """Replace whom a question is for by the subjects and groups `to`. `note` is why.

    With `votes` they also become those who vote on it.
    """

    to: tuple[Subject, ...] = Field(min_length=1, max_length=100)
    votes: bool = Field(default=False, strict=True)
    note: str | None = Field(default=None, max_length=2_000)


class Reassign(ReassignBody, OfQuestion):
    """Other assignees as the run gets them."""


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
    """Delete a delegation. The repeat of a call has the same `key`, a hash."""

    id: str
    principal: Principal
    key: str | None = None


class TakeBackBody(Request):
    """Take back a yes while its question is held. `note` is why, and is recorded with it."""

    note: str | None = Field(default=None, max_length=2_000)


class TakeBack(TakeBackBody, OfQuestion):
    """What is taken back as the run gets it."""


ListedStatus: TypeAlias = Literal[
    "open", "held", "answered", "expired", "cancelled", "superseded", "all"
]


class Interrupts(Request):
    """Which interrupts of a run are read."""

    status: ListedStatus = "open"


class InboxPage(Request):
    """Which page of the inbox is read."""

    status: Literal["open", "held"] = "open"
    capabilities: frozenset[Name] = frozenset()
    graph: Name | None = None
    conversation_id: Name | None = None
    assignee: Name | None = None
    sort: Sort = "deadline"
    priority: Priority | None = None
    min_risk: int | None = Field(default=None, ge=0)
    before: Moment | None = None
    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=1_000, strict=True)


class WhichInterrupt(Request):
    """The argument of a query for one interrupt."""

    interrupt_id: str
