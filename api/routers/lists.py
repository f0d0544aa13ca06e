"""Lists over all runs: the runs themselves, and what they ask."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ
from abeyance.api.dependencies import ClientDep
from abeyance.api.schemas import LabelName, LabelValue, Listed, Name, statuses_asked
from abeyance.handle import InboxFilter, RunFilter

router = APIRouter(tags=["lists"], dependencies=[READ])

_MOST_FILTERS: Final = 20
_LABEL_NAME: Final = TypeAdapter(LabelName)
_LABEL_VALUE: Final = TypeAdapter(LabelValue)


def _label(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        message = f"{text[:100]!r} is not a label: write name=value"
        raise ValueError(message)
    return f"{_LABEL_NAME.validate_python(name)}={_LABEL_VALUE.validate_python(value)}"


Label: TypeAlias = Annotated[
    str,
    AfterValidator(_label),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9_.:/-]{1,64}="}),
]


class ListQuery(BaseModel):
    """The query parameters that all lists have."""

    model_config = ConfigDict(frozen=True)

    graph: Name | None = Field(default=None, description="Only runs of this graph.")
    conversation_id: Name | None = Field(
        default=None, description="Only runs of this conversation."
    )
    limit: int = Field(
        default=50, ge=1, le=1000, description="The maximum number of entries in a page."
    )
    cursor: str | None = Field(
        default=None, max_length=4000, description="The `next_cursor` of the previous page."
    )


class RunsQuery(ListQuery):
    """The query of a list of runs."""

    status: Annotated[list[str], AfterValidator(statuses_asked)] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="Only runs with one of these statuses, separated by commas.",
        examples=[["awaiting-input,paused"]],
    )
    label: list[Label] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="Only runs with all of these labels, each as `name=value`.",
        examples=[["team=support"]],
    )


@router.get(
    "/runs",
    responses=openapi.read(
        "A page of runs, newest first.",
        openapi_examples.listed(openapi_examples.LISTED_RUN, "eyJzdGFy.9b74c989"),
    ),
)
async def list_runs(
    asked: Annotated[RunsQuery, Query()], client: ClientDep
) -> Listed[wire.RunView]:
    """List runs, newest first.

    The list is read from Temporal's visibility store: it lags by a moment, has no values, and marks each
    run as `degraded`. A page may have fewer than `limit` entries: only a null `next_cursor` means that
    it is the last.
    """
    wanted = RunFilter(
        statuses=frozenset(asked.status),
        graph=asked.graph,
        conversation_id=asked.conversation_id,
        labels=tuple(asked.label),
    )
    return _listed(await client.runs.list(wanted, cursor=asked.cursor, limit=asked.limit))


class InboxQuery(ListQuery):
    """The query of the inbox."""

    capability: list[Name] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="Only interrupts that require one of these capabilities.",
        examples=[["refunds:approve"]],
    )
    before: wire.Moment | None = Field(
        default=None,
        description="Only interrupts with a deadline before this time.",
        examples=["2026-03-05T00:00Z"],
    )


@router.get(
    "/interrupts",
    responses=openapi.read(
        "A page of open interrupts, sorted by deadline.",
        openapi_examples.listed(openapi_examples.LISTED_INTERRUPT, "eyJub3ci.2c26b46b"),
    ),
)
async def list_open_interrupts(
    asked: Annotated[InboxQuery, Query()], client: ClientDep
) -> Listed[wire.InterruptView]:
    """List the open interrupts of all runs by urgency: overdue, due within a day, within a week, later,
    and without a deadline. Each page is sorted by deadline.

    The list is read from Temporal's visibility store: it lags by a moment, and has no schemas and
    payloads. A page may have fewer than `limit` entries: only a null `next_cursor` means that it is the
    last.
    """
    wanted = InboxFilter(
        capabilities=frozenset(asked.capability),
        graph=asked.graph,
        conversation_id=asked.conversation_id,
        before=asked.before,
    )
    return _listed(await client.inbox.list(wanted, cursor=asked.cursor, limit=asked.limit))


def _listed(page: tuple[list[Any], str | None]) -> Listed[Any]:
    items, next_cursor = page
    return Listed(items=items, next_cursor=next_cursor)
