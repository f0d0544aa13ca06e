"""Which page of a list is read: what callers of a client pass, and what a query of the API has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from abeyance.commands.fields import Label, Name, Search
from abeyance.core.state import Status
from abeyance.core.terms import Priority
from abeyance.core.text import truncate
from abeyance.filters import Order as ListOrder
from abeyance.filters import Outcome, RunOrder
from abeyance.views import UNTIL_BLOCKED
from abeyance.wire import BY_NAME_AND_ALIAS, Moment, Request

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound=Iterable[str])
F = TypeVar("F", bound="DataclassInstance")

_PATH: Final = re.compile(r"(reason|payload|preview|answer)(\.[^.]+)*")
_MOST: Final = 20


def parted(value: Any) -> Any:
    """Return a list of values, split at commas."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list | tuple | set | frozenset):
        return value
    return [
        part
        for each in several
        for part in (map(str.strip, each.split(",")) if isinstance(each, str) else [each])
    ]


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def known_statuses(names: S, *beside: str) -> S:
    """Return names that are statuses of a run, or `beside` these. Raises ValueError for any other."""
    known = [*map(str, Status), *beside]
    for name in names:
        if name not in known:
            shown = truncate(str(name), 100)
            message = f"{shown!r} is not a status of a run: use one of {', '.join(known)}"
            if name == UNTIL_BLOCKED:
                message += "; the filter blocked=true selects runs of any status that are blocked"
            raise ValueError(message)
    return names


def narrowed(filters: F, page: Request) -> F:
    """Return a filter with what a page is narrowed down by, and the rest as it was."""
    names = {each.name for each in fields(filters)} & type(page).model_fields.keys()
    return replace(filters, **{name: getattr(page, name) for name in names})


def _path(text: str) -> str:
    if _PATH.fullmatch(text) is None:
        message = (
            f"{truncate(text, 100)!r} is not a field of a question: write reason, payload, preview or "
            "answer, and the names that lead to it after dots, such as reason.amount"
        )
        raise ValueError(message)
    return text


Paths: TypeAlias = Annotated[
    list[Annotated[Name, AfterValidator(_path)]],
    BeforeValidator(parted, json_schema_input_type=list[str] | str),
    Field(max_length=_MOST),
]
"""Fields of the content shown to people, or of their answers."""


class RunSelection(Request):
    """Which runs are read, or changed together."""

    model_config = BY_NAME_AND_ALIAS

    statuses: Annotated[
        frozenset[str],
        BeforeValidator(parted, json_schema_input_type=list[str] | str),
        AfterValidator(known_statuses),
    ] = Field(
        default=frozenset(),
        alias="status",
        max_length=_MOST,
        description="Only runs with one of these statuses, separated by commas.",
        examples=[["awaiting-input,paused"]],
    )
    graph: Name | None = Field(default=None, description="Only runs of this graph.")
    conversation_id: Name | None = Field(
        default=None, description="Only runs of this conversation."
    )
    labels: Annotated[
        tuple[Label, ...], BeforeValidator(_several, json_schema_input_type=list[Label] | Label)
    ] = Field(
        default=(),
        alias="label",
        max_length=_MOST,
        description="Only runs with all of these labels, each as `name=value`.",
        examples=[["team=support"]],
    )


class Paged(Request):
    """The start of a page, and its length."""

    model_config = BY_NAME_AND_ALIAS

    page_size: int = Field(
        default=50, ge=1, le=1_000, description="The maximum number of entries in a page."
    )
    limit: int | None = Field(
        default=None,
        ge=1,
        le=1_000,
        description="Another name of `page_size`, which it overrides.",
    )
    cursor: str | None = Field(
        default=None, max_length=4_000, description="The `next_cursor` of the previous page."
    )

    @property
    def most(self) -> int:
        """The maximum number of entries in the page."""
        return self.page_size if self.limit is None else self.limit


class ListPage(Paged):
    """Which page of a list is read."""

    started_by: Name | None = Field(
        default=None, description="Only runs that this subject has started.", examples=["ada"]
    )
    q: Search | None = Field(
        default=None,
        description="Only entries in which each of these words occurs: in prompts, reasons, ids, names, "
        "labels and people.",
        examples=["invoice 4711"],
    )


class RunsPage(ListPage, RunSelection):
    """Which page of the runs is read."""

    blocked: bool | None = Field(
        default=None,
        description="Only runs with a blocked visit (`true`), or only the others (`false`).",
    )
    since: Moment | None = Field(
        default=None,
        alias="from",
        description="Only runs that started at this time or later.",
        examples=["2026-07-01T00:00Z"],
    )
    until: Moment | None = Field(
        default=None,
        alias="to",
        description="Only runs that started before this time.",
        examples=["2026-10-01T00:00Z"],
    )
    order: RunOrder = Field(
        default="-age",
        description="`age`: the oldest first. `activity`: the longest inactive first. `-` before it "
        "reverses the order.",
    )


class StreamPage(Request):
    """Which events of all runs are read."""

    model_config = BY_NAME_AND_ALIAS

    types: tuple[Name, ...] = Field(
        default=(),
        alias="type",
        max_length=_MOST,
        description="Only events of these types. A type that ends in `*` selects all that begin so.",
        examples=[["interrupt.*", "run.failed"]],
    )
    graph: Name | None = Field(default=None, description="Only events of runs of this graph.")
    capabilities: tuple[Name, ...] = Field(
        default=(),
        alias="capability",
        max_length=_MOST,
        description="Only events of interrupts that require one of these capabilities. One that ends in "
        "`*` selects all that begin so.",
        examples=[["refunds:*"]],
    )


class InboxPage(ListPage):
    """Which page of the inbox is read."""

    graph: Name | None = Field(default=None, description="Only runs of this graph.")
    conversation_id: Name | None = Field(
        default=None, description="Only runs of this conversation."
    )
    assignee: Name | None = Field(
        default=None,
        description="Only interrupts for this subject, or for this group as `group:finance`.",
        examples=["ada"],
    )
    priority: Priority | None = Field(default=None, description="Only interrupts of this priority.")
    min_risk: int | None = Field(
        default=None, ge=0, le=100, description="Only interrupts with at least this risk."
    )
    order: ListOrder = Field(
        default="deadline",
        description="`deadline`: the nearest first, those without one last. `priority` and `risk`: the "
        "highest first. `age`: the oldest first. `-` before it reverses the order.",
    )
    status: Literal["open", "held"] = Field(
        default="open",
        description="`held`: those with a yes that can still be taken back.",
    )
    ids: frozenset[Name] = Field(
        default=frozenset(),
        alias="id",
        max_length=_MOST,
        description="Only these interrupts: those that are answered meanwhile are left out.",
        examples=[["refund-4711.b276f6238dab3ba5"]],
    )
    capabilities: frozenset[Name] = Field(
        default=frozenset(),
        alias="capability",
        max_length=_MOST,
        description="Only interrupts that require one of these capabilities. One that ends in `*` "
        "selects all that begin so.",
        examples=[["refunds:*"]],
    )
    before: Moment | None = Field(
        default=None,
        description="Only interrupts with a deadline before this time.",
        examples=["2026-03-05T00:00Z"],
    )


class ApprovalsPage(Paged):
    """The query of a page of the report of approvals."""

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
    capabilities: tuple[Name, ...] = Field(
        default=(),
        alias="capability",
        max_length=_MOST,
        description="Only questions that require one of these capabilities. One that ends in `*` selects "
        "all that begin so.",
        examples=[["refunds:*"]],
    )
    graph: Name | None = Field(default=None, description="Only questions of runs of this graph.")
    outcomes: Annotated[
        frozenset[Outcome],
        BeforeValidator(parted, json_schema_input_type=list[Outcome] | Outcome),
    ] = Field(
        default=frozenset(),
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
