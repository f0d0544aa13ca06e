"""Operator endpoints: eviction, and the codec of Temporal's UI and command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body
from pydantic import BaseModel, Field

from abeyance import wire
from abeyance.api import examples, openapi
from abeyance.api.auth import ADMIN, Caller
from abeyance.api.dependencies import VALID_KEY, BackendDep, ClientDep
from abeyance.api.rights import ALL_RUNS_ONLY
from abeyance.duration import OptionalSeconds
from abeyance.errors import Code
from abeyance.storage import converter
from abeyance.util import invalid

router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[ADMIN, ALL_RUNS_ONLY])
# The protocol of a codec server is Temporal's. Pages of configured UI origins may call these two routes.
codec_router = APIRouter(
    prefix="/codec", dependencies=[ADMIN, ALL_RUNS_ONLY], include_in_schema=False
)

_MAX_EVICTED: Final = 1_000

Document = Annotated[Mapping[str, Any], Body()]


class EvictBody(wire.Request):
    """The runs to evict: those inactive for `inactive_for`, and all but the `keep` most recently active.

    Without either, the service uses its `session_inactive_timeout` and `max_active_runs`.
    """

    inactive_for: OptionalSeconds = Field(default=None, ge=0)
    keep: int | None = Field(default=None, ge=0, strict=True)
    limit: int = Field(default=_MAX_EVICTED, ge=1, le=_MAX_EVICTED, strict=True)


class Evicted(BaseModel):
    """The runs that were halted. If there are as many as `limit`, there may be more."""

    evicted: int
    runs: list[str]


@router.post(
    "/evict",
    dependencies=[VALID_KEY],
    responses=openapi.change(200, "The runs were halted.", examples.EVICTED, Code.OUTSIDE_READS),
)
async def evict(
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    body: Annotated[EvictBody | None, Body(examples=[examples.EVICT])] = None,
) -> Evicted:
    """Halt runs that are inactive, or too many, with the reason `evicted`.

    Activity is read from Temporal's visibility store, which lags by a moment and is exact to the minute.
    Each run then checks itself whether it is inactive. A run that waits for an answer with a deadline is
    not inactive.
    """
    body = body or EvictBody()
    inactive_for, keep = body.inactive_for, body.keep
    if inactive_for is None and keep is None:
        inactive_for = backend.settings.session_inactive_timeout or None
        keep = backend.settings.max_active_runs or None
    if inactive_for is None and keep is None:
        message = (
            "needs `inactive_for` or `keep`, because the service sets neither "
            "ABEYANCE_SESSION_INACTIVE_TIMEOUT nor ABEYANCE_MAX_ACTIVE_RUNS"
        )
        raise invalid([{"pointer": "", "message": message}])
    evicted = await client.runs.evict(
        inactive_for=inactive_for, keep=keep, most=body.limit, actor=caller.subject
    )
    return Evicted(evicted=len(evicted), runs=evicted)


@codec_router.post("/decode")
async def decode(client: ClientDep, document: Document) -> dict[str, Any]:
    """Decrypt payloads, and load them from storage."""
    try:
        return await converter.decoded(client.temporal.data_converter, document)
    except ValueError as error:
        raise invalid([{"pointer": "/payloads", "message": str(error)}]) from error


@codec_router.post("/encode")
async def encode(client: ClientDep, document: Document) -> dict[str, Any]:
    """Encrypt payloads, and move large ones to storage."""
    try:
        return await converter.encoded(client.temporal.data_converter, document)
    except ValueError as error:
        raise invalid([{"pointer": "/payloads", "message": str(error)}]) from error
