"""What agents have said, and what was said to them."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ
from abeyance.api.dependencies import ClientDep
from abeyance.api.path_params import RunId
from abeyance.api.schemas import Listed
from abeyance.errors import Code
from abeyance.history import transcripts

router = APIRouter(prefix="/runs/{run_id}", tags=["transcripts"], dependencies=[READ])

_LONGEST_ADDRESS: Final = 4_000


class TranscriptQuery(BaseModel):
    """The query of a page of a transcript."""

    model_config = ConfigDict(frozen=True)

    address: str | None = Field(
        default=None,
        max_length=_LONGEST_ADDRESS,
        description="The address of the agent, or of something in it, such as an interrupt. Required if "
        "the run has several transcripts.",
        examples=[openapi_examples.AGENT],
    )
    cursor: str | None = Field(
        default=None,
        description="The `next_cursor` of the previous page. Absent starts at the beginning.",
    )
    limit: int = Field(
        default=100,
        ge=1,
        le=transcripts.MAX_ITEMS,
        description="The maximum number of items in a page.",
    )


@router.get(
    "/transcript",
    responses=openapi.read(
        "A page of the transcript, oldest first.",
        openapi_examples.listed(openapi_examples.SAID, "eyJhZGRy.2c26b46b68ffc68f"),
        Code.UNKNOWN_RUN,
        Code.UNKNOWN_NODE,
        Code.GONE,
    ),
)
async def read_transcript(
    run_id: RunId, asked: Annotated[TranscriptQuery, Query()], client: ClientDep
) -> Listed[TranscriptItem]:
    """List the transcript of an agent: its input, its turns, its tool calls with their results, and the
    messages that were injected.

    Continue from `next_cursor` to get every item exactly once. It is null after the last item of a run
    that has ended; until then an empty page means that nothing is new. If a run has several transcripts
    and the query no `address`, `invalid_body` lists them in `addresses`; `unknown_node` does so for an
    address without a transcript. A page may have fewer than `limit` items.
    """
    items, next_cursor = await client.run(run_id).transcript_page(
        asked.address, cursor=asked.cursor, limit=asked.limit
    )
    return Listed(items=items, next_cursor=next_cursor)
