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
    """Which part of which transcript."""

    model_config = ConfigDict(frozen=True)

    address: str | None = Field(
        default=None,
        max_length=_LONGEST_ADDRESS,
        description="The address of the agent, or of something in it, such as a question. Without it, "
        "the only transcript of the run.",
        examples=[openapi_examples.AGENT],
    )
    cursor: str | None = Field(
        default=None,
        description="The `next_cursor` of the page before. None is from the beginning.",
    )
    limit: int = Field(
        default=100,
        ge=1,
        le=transcripts.MAX_ITEMS,
        description="Of a page: how many items at most.",
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
    """Read what was said to an agent and by it: its input, its turns, the calls of its tools and their
    results, and the messages that were injected.

    Whoever goes on from `next_cursor` misses nothing and sees nothing twice. It is null once the run has
    ended and all was read; before that, an empty page says that nothing was said since. Where a run has
    several transcripts and no `address` is given, `invalid_body` lists them in `addresses`; so does
    `unknown_node` for an address that has none. A page may be short of `limit`.
    """
    items, next_cursor = await client.run(run_id).transcript_page(
        asked.address, cursor=asked.cursor, limit=asked.limit
    )
    return Listed(items=items, next_cursor=next_cursor)
