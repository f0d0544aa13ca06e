"""Routes for operators and auditors: audits, erasure, eviction, and the codec of Temporal's UI and
command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field

from abeyance import views, wire
from abeyance.api import examples, openapi
from abeyance.api.auth import ADMIN, READ, Caller
from abeyance.api.dependencies import VALID_KEY, BackendDep, ClientDep, RunId
from abeyance.api.rights import ALL_RUNS_ONLY
from abeyance.duration import OptionalSeconds
from abeyance.storage import converter
from abeyance.util import invalid

audit_router = APIRouter(tags=["audit"])
router = APIRouter(prefix="/admin", tags=["admin"], dependencies=[ADMIN, ALL_RUNS_ONLY])
# The protocol of a codec server is Temporal's. Pages of configured UI origins may call these two routes.
codec_router = APIRouter(
    prefix="/codec", dependencies=[ADMIN, ALL_RUNS_ONLY], include_in_schema=False
)

_MAX_EVICTED: Final = 1_000
_NDJSON: Final = "application/x-ndjson"

Document = Annotated[Mapping[str, Any], Body()]


class ErasedRun(BaseModel):
    """The erasure of a run: `erasing`, or `erased` once only the tombstone is left."""

    run_id: views.RunId
    state: wire.ErasureState


@audit_router.get(
    "/runs/{run_id}/audit",
    dependencies=[READ],
    response_class=Response,
    response_description="The audit.",
    responses=openapi.shown(examples.AUDIT, _NDJSON),
)
async def read_audit(run_id: RunId, caller: Caller, client: ClientDep) -> Response:
    """Retrieve the audit of a run as lines of JSON: who did what and when, what they were shown, and what
    they answered.

    Each line has the hash of the line before and, if the service has a key, a signature. The last line is
    `end`, or `open` if the run has not ended. The answer to a question with a capability is only there
    for callers who have that capability, or `admin`.
    """
    text = await client.run(run_id).audit(reader=caller)
    return Response(text, media_type=_NDJSON, headers={"Cache-Control": "no-store"})


@audit_router.delete(
    "/runs/{run_id}",
    status_code=202,
    dependencies=[ADMIN, VALID_KEY],
    response_description="The run is being erased.",
)
async def erase_run(run_id: RunId, client: ClientDep) -> ErasedRun:
    """Erase a run that has ended: its records, its histories, and its stored data.

    Later calls about the run are refused with `erased`, and no run can have its id. The state is
    `erased`, or `erasing` while data is left, which the next request or a worker deletes. A signed
    tombstone remains. An open run has to be cancelled first.
    """
    return ErasedRun(run_id=run_id, state=await client.runs.erase(run_id))


class EvictBody(wire.Request):
    """The runs to evict: those inactive for `inactive_for`, and all but the `keep` most recently active.

    Without either, the service uses its `session_inactive_timeout` and `max_active_runs`.
    """

    inactive_for: OptionalSeconds = Field(default=None, gt=0)
    keep: int | None = Field(default=None, ge=0, strict=True)
    limit: int = Field(default=_MAX_EVICTED, ge=1, le=_MAX_EVICTED, strict=True)


class Evicted(BaseModel):
    """The runs that were halted. If there are as many as `limit`, there may be more."""

    evicted: int = Field(examples=[1])
    runs: list[views.RunId]


@router.post("/evict", dependencies=[VALID_KEY], response_description="The runs were halted.")
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
