"""Starting runs and reading them."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator

from abeyance import wire
from abeyance.api import openapi, openapi_examples
from abeyance.api.auth import READ, START, Who
from abeyance.api.dependencies import AppState, ClientDep
from abeyance.api.long_poll import Leaving, Length, long_poll
from abeyance.api.path_params import Key, RunId, chosen_run_id, hash_of, run_id_of
from abeyance.api.routers.control import shown_to
from abeyance.api.schemas import RunResult, RunStatus, StartBody, statuses_asked
from abeyance.errors import Code, Refusal

router = APIRouter(prefix="/runs", tags=["runs"])


def _statuses(given: Any) -> frozenset[str]:
    # A parameter that takes several values comes as a list.
    parts = given if isinstance(given, list) else [given]
    return frozenset(statuses_asked([str(part) for part in parts]))


Wait: TypeAlias = Annotated[
    Length | None,
    Query(
        description="How long to wait until the run has a status of `until` or has ended: ISO 8601, "
        "`30s`, or seconds. The service caps it at its `default_timeout`.",
        examples=["PT30S"],
    ),
]
Until: TypeAlias = Annotated[
    frozenset[str] | None,
    BeforeValidator(_statuses, json_schema_input_type=str),
    Query(
        description="The statuses to wait for with `wait`, separated by commas. A run that has ended is "
        "always returned at once.",
        examples=["awaiting-input,completed"],
    ),
]


@router.post(
    "",
    status_code=201,
    dependencies=[START],
    responses={
        200: openapi.also(
            "The run, which an earlier request started.", openapi_examples.RUN, wire.RunView
        ),
        **openapi.change(
            201,
            "The new run.",
            openapi_examples.RUN,
            Code.UNKNOWN_GRAPH,
            Code.UNKNOWN_NODE,
            Code.RUN_EXISTS,
            Code.IDEMPOTENCY_CONFLICT,
            Code.CONVERSATION_BUSY,
            Code.TOO_MANY_RUNS,
            Code.INVALID_RUN_ID,
            Code.INVALID_INPUT,
        ),
    },
)
async def start_run(
    *, body: StartBody, who: Who, behind: AppState, client: ClientDep, key: Key, response: Response
) -> wire.RunView | RunStatus:
    """Start a run of a graph.

    Starting the same graph with the same input under the id of a running run changes nothing. With an
    `Idempotency-Key` and no `run_id`, the id is derived from the key: a retry returns the run, even if it
    has ended, and the same key with another body is refused. With both, one key starts one run, even with
    `reuse`. A conversation has at most one active run of the type `agent`, unless `allow_concurrent` is
    set. Without `runs:read` the response has only the run's id and status.
    """
    graph = behind.graph(body.graph)
    if not isinstance(body.input, dict):
        raise Refusal(
            Code.INVALID_INPUT,
            f"The input {str(body.input)[:100]!r} is not an object: send the fields of the graph.",
            errors=[{"pointer": "", "message": "is not an object"}],
        )
    named_by = key if body.run_id is None else None
    started = await client.runs.start(
        graph,
        body.input,
        run_id=chosen_run_id(body.run_id)
        if named_by is None
        else run_id_of(client.task_queue, who.subject, named_by),
        conversation_id=body.conversation_id,
        session_type=body.session_type,
        labels=body.labels,
        limits=body.limits.below(behind.settings.limits()),
        started_by=who.subject,
        # A key names one run for good.
        reuse=body.reuse and named_by is None,
        interrupt_before=body.interrupt_before,
        interrupt_after=body.interrupt_after,
        on_error=body.on_error,
        request=None if key is None else _request(body, who.subject, key),
        allow_concurrent=body.allow_concurrent,
        max_active_runs=behind.settings.max_active_runs,
        max_active_runs_policy=behind.settings.max_active_runs_policy,
    )
    response.headers["Location"] = f"/runs/{started.run_id}"
    if not started.created:
        response.status_code = 200
    return shown_to(who, await client.run(started.run_id).view())


def _request(body: StartBody, subject: str, key: str) -> str:
    # An id that was made from the key tells it already.
    said = body.sha256()
    return said if body.run_id is None else f"{hash_of(subject, key)}.{said}"


@router.get(
    "/{run_id}",
    dependencies=[READ],
    response_model=wire.RunView,
    responses=openapi.read("The run.", openapi_examples.RUN, Code.UNKNOWN_RUN),
)
async def read_run(
    *,
    run_id: RunId,
    behind: AppState,
    client: ClientDep,
    request: Request,
    wait: Wait = None,
    until: Until = None,
) -> wire.RunView | Response:
    """Retrieve a run. With `wait`, the response is delayed until the run has a status of `until`.

    If no worker responds, `degraded` is true and the response has only what Temporal itself stores.
    """
    if not wait:
        return await client.run(run_id).view()
    longest = min(wait, behind.settings.default_timeout)
    waiting = client.run(run_id).wait(until=until or frozenset(), timeout=longest)
    try:
        view = await long_poll(request, waiting, leaving=behind.leaving)
    except Leaving:
        # As at the end of the wait: whoever asks again asks another process, or the next one.
        return await client.run(run_id).view()
    # Nobody reads what is answered to a caller who has gone.
    return Response(status_code=204) if view is None else view


@router.get(
    "/{run_id}/result",
    dependencies=[READ],
    responses=openapi.read(
        "The result of the run.", openapi_examples.RESULT, Code.UNKNOWN_RUN, Code.NOT_FINISHED
    ),
)
async def read_result(run_id: RunId, client: ClientDep) -> RunResult:
    """Retrieve the result of a run that has ended. It is retained as long as the run's history."""
    return RunResult.of(run_id, await client.run(run_id).result())
