"""The audit of a run, and its erasure."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response
from pydantic import BaseModel

from abeyance import wire
from abeyance.api import examples, openapi
from abeyance.api.auth import ADMIN, READ, Caller
from abeyance.api.dependencies import VALID_KEY, ClientDep, RunId
from abeyance.errors import Code

router = APIRouter(prefix="/runs", tags=["audit"])

_NDJSON: Final = "application/x-ndjson"


class ErasedRun(BaseModel):
    """The erasure of a run: `erasing`, or `erased` once nothing of it is left but the tombstone.

    `forks` are the runs that were forked from it: they have its past, and are not erased with it.
    """

    run_id: str
    state: wire.ErasureState
    forks: list[str]


@router.get(
    "/{run_id}/audit",
    dependencies=[READ],
    response_class=Response,
    responses=openapi.read(
        "The audit.", examples.AUDIT, Code.UNKNOWN_RUN, Code.ERASED, media_type=_NDJSON
    ),
)
async def read_audit(run_id: RunId, caller: Caller, client: ClientDep) -> Response:
    """Retrieve who did what in a run and when, what they were shown, and what they answered, as lines of
    JSON.

    Each line has the hash of the line before and, if the service has a key, a signature. The last line is
    `end`, or `open` if the run has not ended. If Temporal has deleted the run, the audit is that of the
    archive. The answer to a question with a capability is only there for callers who have that
    capability, or `admin`.
    """
    text = await client.run(run_id).audit(reader=caller)
    return Response(text, media_type=_NDJSON, headers={"Cache-Control": "no-store"})


@router.delete(
    "/{run_id}",
    status_code=202,
    dependencies=[ADMIN, VALID_KEY],
    responses=openapi.change(
        202,
        "The run is being erased.",
        examples.ERASING,
        Code.UNKNOWN_RUN,
        Code.NOT_FINISHED,
    ),
)
async def erase_run(run_id: RunId, client: ClientDep) -> ErasedRun:
    """Erase a run that has ended: its history, what is stored of it, and its archive.

    A worker does it. Repeat the request to learn whether it is done. A signed tombstone remains, and
    reading the run is refused as `erased`. An open run has to be cancelled first. Erase the `forks` of
    the run too: each has a copy of its past.
    """
    state = await client.runs.erase(run_id)
    return ErasedRun(run_id=run_id, state=state, forks=await client.runs.forks(run_id))
