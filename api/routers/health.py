"""Whether the service is up, and whether it can do its work."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response
from pydantic import BaseModel

from abeyance.api import openapi
from abeyance.api.dependencies import AppState
from abeyance.api.problems import unavailable
from abeyance.errors import Code, Unavailable

router = APIRouter(tags=["health"])

_RETRY_AFTER: Final = 2.0


class Health(BaseModel):
    """That the service answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """That a run can be started and would be worked on."""

    ready: bool = True
    workers: int


@router.get("/healthz", responses=openapi.check("It answers.", {"status": "ok"}))
async def healthz() -> Health:
    """Tell whether this process answers. Needs no capability."""
    return Health()


@router.get(
    "/readyz",
    response_model=Readiness,
    responses=openapi.check("It can do its work.", {"ready": True, "workers": 2}, Code.UNAVAILABLE),
)
async def readyz(behind: AppState) -> Readiness | Response:
    """Tell whether Temporal answers and a worker asks it for our work. Needs no capability.

    A worker that is told to stop, or is killed, is counted for another 70 seconds at most.
    """
    try:
        workers = await behind.link.client.pollers()
    except Unavailable as error:
        return _not_ready(str(error))
    if not workers:
        queue = behind.settings.task_queue
        return _not_ready(f"No worker asks for work on the task queue {queue!r}: start one.")
    return Readiness(workers=workers)


def _not_ready(why: str) -> Response:
    return unavailable(why, retry_after=_RETRY_AFTER, members={"ready": False})
