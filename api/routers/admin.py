"""What operators do to all runs of a deployment."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import ADMIN, Who
from abeyance.api.dependencies import AppState, ClientDep
from abeyance.api.path_params import TAKES_KEY
from abeyance.api.problems import invalid
from abeyance.duration import OptionalSeconds

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[ADMIN])

_MOST_EVICTED: Final = 1_000


class EvictBody(wire.Request):
    """The runs to evict: those inactive for `inactive_for`, and all but the `keep` most recently active.

    Without either, the service uses its `session_inactive_timeout` and `max_active_runs`.
    """

    inactive_for: OptionalSeconds = Field(default=None, ge=0)
    keep: int | None = Field(default=None, ge=0, strict=True)
    limit: int = Field(default=_MOST_EVICTED, ge=1, le=_MOST_EVICTED, strict=True)


class Evicted(BaseModel):
    """The runs that were halted. If there are as many as `limit`, there may be more."""

    evicted: int
    runs: list[str]


@router.post(
    "/evict",
    dependencies=[TAKES_KEY],
    responses=openapi.change(200, "The runs were halted.", openapi_examples.EVICTED),
)
async def evict(
    who: Who,
    behind: AppState,
    client: ClientDep,
    body: Annotated[EvictBody | None, Body(examples=[openapi_examples.EVICT])] = None,
) -> Evicted:
    """Halt runs that are inactive, or too many, with the reason `evicted`.

    Activity is read from Temporal's visibility store, which lags by a moment and is exact to the minute.
    Each run then checks itself whether it is inactive. A run that waits for an answer with a deadline is
    not inactive.
    """
    body = body or EvictBody()
    inactive_for, keep = body.inactive_for, body.keep
    if inactive_for is None and keep is None:
        inactive_for = behind.settings.session_inactive_timeout or None
        keep = behind.settings.max_active_runs or None
    if inactive_for is None and keep is None:
        message = (
            "needs `inactive_for` or `keep`, because the service sets neither "
            "ABEYANCE_SESSION_INACTIVE_TIMEOUT nor ABEYANCE_MAX_ACTIVE_RUNS"
        )
        raise invalid([{"pointer": "", "message": message}])
    evicted = await client.runs.evict(
        inactive_for=inactive_for, keep=keep, most=body.limit, actor=who.subject
    )
    return Evicted(evicted=len(evicted), runs=evicted)
