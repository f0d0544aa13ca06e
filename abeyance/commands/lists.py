"""Which page of a list is read: what callers of a client pass, and what a query of the API has."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from abeyance.commands.fields import Label, Name, Search
from abeyance.core.state import Status
from abeyance.core.terms import Priority
from abeyance.core.text import truncate
from abeyance.filters import Order as ListOrder
from abeyance.filters import Outcome, RunOrder
from abeyance.wire import BY_NAME_AND_ALIAS, Moment, Request

_PATH: Final = re.compile(r"(reason|payload|preview|answer)(\.[^.]+)*")
_MOST: Final = 20


def _parted(value: Any) -> Any:
    # `a,b` is as good as two of them.
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple | set | frozenset):
        return value
    return [
        part for each in several for part in (each.split(",") if isinstance(each, str) else [each])
    ]


def _path(text: str) -> str:
    if _PATH.fullmatch(text) is None:
        message = (
            f"{truncate(text, 100)!r} is no field of a question: write reason, payload, preview or "
            "answer, and the names that lead to it after dots, such as reason.amount"
        )
        raise ValueError(message)
    return text


Paths: TypeAlias = Annotated[
    list[Annotated[Name, AfterValidator(_path)]],
    BeforeValidator(_parted, json_schema_input_type=list[str] | str),
    Field(max_length=_MOST),
]
"""Fields of what people were shown, or of their answers."""


class RunsPage(Request):
    """Which page of the runs is read."""

    model_config = BY_NAME_AND_ALIAS

    statuses: frozenset[Status] = frozenset()
    graph: Name | None = None
    conversation_id: Name | None = None
    labels: tuple[Label, ...] = ()
    blocked: bool | None = Field(default=None, strict=True)
    q: Search | None = None
    started_by: Name | None = None
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    order: RunOrder = "-age"
    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=1_000, strict=True)


class StreamPage(Request):
    """Which events of all runs are read."""

    types: tuple[Name, ...] = ()
    graph: Name | None = None
    capabilities: tuple[Name, ...] = ()


class InboxPage(Request):
    """Which page of the inbox is read."""

    status: Literal["open", "held"] = "open"
    ids: frozenset[Name] = frozenset()
    capabilities: frozenset[Name] = frozenset()
    graph: Name | None = None
    conversation_id: Name | None = None
    assignee: Name | None = None
    order: ListOrder = "deadline"
    priority: Priority | None = None
    min_risk: int | None = Field(default=None, ge=0)
    before: Moment | None = None
    q: Search | None = None
    started_by: Name | None = None
    cursor: str | None = None
    limit: int = Field(default=50, ge=1, le=1_000, strict=True)


class ApprovalsPage(Request):
    """The query of a page of the report of approvals."""

    model_config = BY_NAME_AND_ALIAS

    since: Moment | None = Field(
        default=None,
        alias="from",
        description="Only what was settled at this time or later. Absent is 30 days before `to`.",
        examples=["2026-07-01T00:00Z"],
    )
    until: Moment | None = Field(
        default=None,
        alias="to",
        description="Only what was settled before this time. Absent is now.",
        examples=["2026-10-01T00:00Z"],
    )
    person: Name | None = Field(
        default=None,
        description="Only what this subject has answered or voted on, or what was answered for them.",
        examples=["ada"],
    )
    capabilities: list[Name] = Field(
        default_factory=list,
        alias="capability",
        max_length=_MOST,
        description="Only questions that require one of these capabilities. One that ends in `*` selects "
        "all that begin so.",
        examples=[["refunds:*"]],
    )
    graph: Name | None = Field(default=None, description="Only questions of runs of this graph.")
    outcomes: Annotated[
        list[Outcome], BeforeValidator(_parted, json_schema_input_type=list[Outcome] | Outcome)
    ] = Field(
        default_factory=list,
        alias="outcome",
        max_length=_MOST,
        description="Only what came to one of these, separated by commas.",
        examples=[["approved", "granted"]],
    )
    fields: Paths = Field(
        default_factory=list,
        description="Fields of what was shown, or of answers, that each row has beside it, separated by "
        "commas.",
        examples=[["reason.amount", "payload.order"]],
    )
    sums: Paths = Field(
        default_factory=list,
        alias="sum",
        description="Fields whose sums over the whole report the first page has, separated by commas.",
        examples=[["reason.amount"]],
    )
    cursor: str | None = Field(
        default=None, max_length=4_000, description="The `next_cursor` of the previous page."
    )
    limit: int = Field(
        default=50, ge=1, le=1_000, description="The maximum number of rows in a page."
    )
