"""What happens in a run: page by page, or as it happens."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ, Admitted
from abeyance.api.dependencies import AppState, Events
from abeyance.api.path_params import RunId
from abeyance.api.schemas import Listed
from abeyance.api.sse import MEDIA_TYPE, EventStream
from abeyance.errors import Code

router = APIRouter(prefix="/runs/{run_id}", tags=["events"], dependencies=[READ])

_JSON: Final = "application/json"


class EventsQuery(BaseModel):
    """The query of a page of events."""

    model_config = ConfigDict(frozen=True)

    after: str | None = Field(
        default=None,
        description="Return events after the one with this id. Absent starts at the oldest.",
    )
    limit: int = Field(
        default=100, ge=1, le=1000, description="The maximum number of events in a page."
    )


def _answers() -> openapi.Answers:
    answers = openapi.read(
        "A page of events, or a stream as text/event-stream.",
        openapi_examples.listed(openapi_examples.EVENT, openapi_examples.EVENT["id"]),
        Code.UNKNOWN_RUN,
        Code.GONE,
        Code.TOO_MANY_RUNS,
    )
    content: dict[str, Any] = answers[200]["content"]
    content[MEDIA_TYPE] = {"schema": {"type": "string"}, "example": openapi_examples.EVENT_STREAM}
    return answers


@router.get("/events", response_model=Listed[wire.Event], responses=_answers())
async def read_events(
    *,
    run_id: RunId,
    asked: Annotated[EventsQuery, Query()],
    events: Events,
    behind: AppState,
    admitted: Admitted,
    request: Request,
    last_event_id: Annotated[
        str | None,
        Header(description="The id of the last event received. Overrides `after`."),
    ] = None,
) -> Listed[wire.Event] | Response:
    """List the events of a run, oldest first. With `Accept: text/event-stream`, stream them as they
    happen.

    Continue after the last id to get every event exactly once. After the run's last event, the stream
    ends and `next_cursor` is null. A stream ends early if its reader is too slow or its token expires.
    """
    after = last_event_id or asked.after
    if _wants_stream(request.headers.get("accept", "")):
        feed = await events.opened(run_id, after)
        return EventStream(feed, leaving=behind.leaving, until=admitted.until)
    items, next_cursor = await events.page(run_id, after, asked.limit)
    return Listed(items=items, next_cursor=next_cursor)


def _wants_stream(accept: str) -> bool:
    # Of the two kinds that there are, the one that is named first.
    named = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    return next((kind for kind in named if kind in (MEDIA_TYPE, _JSON)), _JSON) == MEDIA_TYPE
