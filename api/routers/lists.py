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
        message = f"{text[:100]!r} is no label: write name=value"
        raise ValueError(message)
    return f"{_LABEL_NAME.validate_python(name)}={_LABEL_VALUE.validate_python(value)}"


Label: TypeAlias = Annotated[
    str,
    AfterValidator(_label),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z0-9_.:/-]{1,64}="}),
]


class ListQuery(BaseModel):
    """What can be asked of a list."""

    model_config = ConfigDict(frozen=True)

    graph: Name | None = Field(default=None, description="The name of a graph.")
    conversation_id: Name | None = Field(default=None, description="The runs of one conversation.")
    limit: int = Field(default=50, ge=1, le=1000, description="How many at most.")
    cursor: str | None = Field(
        default=None, max_length=4000, description="The `next_cursor` of the page before."
    )


class RunsQuery(ListQuery):
    """Which runs."""

    status: Annotated[list[str], AfterValidator(statuses_asked)] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="Of one of these statuses, separated by commas.",
        examples=[["awaiting-input,paused"]],
    )
    label: list[Label] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="With all of these labels, each `name=value`.",
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
    """List runs, newest first, as Temporal knows them without asking them: a moment late, without
    values, and marked `degraded`. A page may be short of `limit` and yet not be the last:
    `next_cursor` tells.
    """
    wanted = RunFilter(
        statuses=frozenset(asked.status),
        graph=asked.graph,
        conversation_id=asked.conversation_id,
        labels=tuple(asked.label),
    )
    return _listed(await client.runs.list(wanted, cursor=asked.cursor, limit=asked.limit))


class InboxQuery(ListQuery):
    """Which interrupts."""

    capability: list[Name] = Field(
        default_factory=list,
        max_length=_MOST_FILTERS,
        description="That ask for one of these capabilities.",
        examples=[["refunds:approve"]],
    )
    before: wire.Moment | None = Field(
        default=None,
        description="With a deadline before this time.",
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
    """List what all running runs ask: first those whose nearest deadline has passed, then those with one
    within a day, within a week, later, and none; on each page by deadline.

    As Temporal knows them without asking the runs: a moment late, without schemas and payloads. A page
    may be short of `limit` and yet not be the last: `next_cursor` tells.
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
