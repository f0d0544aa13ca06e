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
    """Which runs go: those inactive for so long, and all but `keep`, the most recently active.

    Without either, as `session_inactive_timeout` and `max_active_runs` of the service say.
    """

    inactive_for: OptionalSeconds = Field(default=None, ge=0)
    keep: int | None = Field(default=None, ge=0, strict=True)
    limit: int = Field(default=_MOST_EVICTED, ge=1, le=_MOST_EVICTED, strict=True)


class Evicted(BaseModel):
    """The runs that were halted. As many as the limit: there may be more."""

    evicted: int
    runs: list[str]


@router.post(
    "/evict",
    dependencies=[TAKES_KEY],
    responses=openapi.change(200, "The runs that were halted.", openapi_examples.EVICTED),
)
async def evict(
    who: Who,
    behind: AppState,
    client: ClientDep,
    body: Annotated[EvictBody | None, Body(examples=[openapi_examples.EVICT])] = None,
) -> Evicted:
    """Halt runs that nobody cares for any more, or that are too many, with the reason `evicted`.

    What is active is known from visibility: a moment late, and to the minute. A run judges itself whether
    it was inactive; one that waits for an answer with a deadline of its own is not.
    """
    body = body or EvictBody()
    inactive_for, keep = body.inactive_for, body.keep
    if inactive_for is None and keep is None:
        inactive_for = behind.settings.session_inactive_timeout or None
        keep = behind.settings.max_active_runs or None
    if inactive_for is None and keep is None:
        told = (
            "there is nothing to evict by: give `inactive_for` or `keep`, or set "
            "ABEYANCE_SESSION_INACTIVE_TIMEOUT or ABEYANCE_MAX_ACTIVE_RUNS"
        )
        raise invalid([{"pointer": "", "message": told}])
    evicted = await client.runs.evict(
        inactive_for=inactive_for, keep=keep, most=body.limit, actor=who.subject
    )
    return Evicted(evicted=len(evicted), runs=evicted)
