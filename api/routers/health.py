"""Liveness and readiness."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response
from pydantic import BaseModel

from abeyance.api import openapi
from abeyance.api.dependencies import BackendDep
from abeyance.api.problems import unavailable
from abeyance.errors import Code, Unavailable

router = APIRouter(tags=["health"])

_RETRY_AFTER: Final = 2.0


class Health(BaseModel):
    """The process responds."""

    status: str = "ok"


class Readiness(BaseModel):
    """Temporal responds, and workers poll the task queue."""

    ready: bool = True
    workers: int


@router.get("/healthz", responses=openapi.check("The process responds.", {"status": "ok"}))
async def healthz() -> Health:
    """Check that this process responds. Requires no capability."""
    return Health()


@router.get(
    "/readyz",
    response_model=Readiness,
    responses=openapi.check(
        "The service is ready.", {"ready": True, "workers": 2}, Code.UNAVAILABLE
    ),
)
async def readyz(backend: BackendDep) -> Readiness | Response:
    """Check that Temporal responds and that a worker polls the task queue. Requires no capability.

    A worker that is killed is counted for 20 more seconds, or 70 if Temporal has no worker heartbeats.
    """
    try:
        workers = await backend.connection.client.workers()
    except Unavailable as error:
        return _not_ready(str(error))
    if not workers:
        queue = backend.settings.task_queue
        return _not_ready(f"No worker polls the task queue {queue!r}: start one.")
    return Readiness(workers=len(workers))


def _not_ready(reason: str) -> Response:
    return unavailable(reason, retry_after=_RETRY_AFTER, members={"ready": False})
