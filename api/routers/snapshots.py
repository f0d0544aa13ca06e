"""Migrate an open run to today's graph, retry an ended one, and fork either."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Body, Response

from abeyance import commands, views
from abeyance.api import examples, openapi
from abeyance.api.auth import Caller, require
from abeyance.api.dependencies import (
    Backend,
    BackendDep,
    ClientDep,
    Key,
    RunId,
    chosen_run_id,
    hash_of,
    run_id_of,
)
from abeyance.api.rights import Reads, require_free, without_others
from abeyance.api.routers.control import require_course, view_for
from abeyance.api.schemas import ForkedRun, RunStatus, fields_set
from abeyance.client.executions import Room
from abeyance.core import authority
from abeyance.core.json import sha256
from abeyance.errors import Code, Refusal

router = APIRouter(prefix="/runs/{run_id}", tags=["control"])

MigrateBody: TypeAlias = Annotated[commands.MigrateBody | None, Body(examples=[examples.MIGRATE])]
RetryBody: TypeAlias = Annotated[commands.RetryBody | None, Body(examples=[examples.RETRY])]
ForkBody: TypeAlias = Annotated[commands.ForkBody | None, Body(examples=[examples.FORK])]

_OF_STARTS: Final = (Code.TOO_MANY_RUNS, Code.GONE)


@router.post(
    "/migrate",
    responses=openapi.change(
        200,
        "What the migration did, or with `dry_run` would do.",
        examples.MIGRATION,
        Code.UNKNOWN_RUN,
        Code.NOT_RUNNING,
        Code.IDEMPOTENCY_CONFLICT,
        Code.NATIVELY_PAUSED,
        Code.CANNOT_MIGRATE,
        Code.VERSIONS_DIFFER,
    ),
)
async def migrate(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    key: Key,
    body: MigrateBody = None,
) -> views.Migration:
    """Move an open run to the graph that its worker has today.

    Everything that the run waits for needs its place in today's graph: each visit, question and message,
    by its name or as `map` says, and its values, with `patch`. Otherwise `cannot_migrate` lists all that
    has none, and nothing changes. With `dry_run` nothing changes either way, and `obstacles` lists it.
    `versions_differ` means that this service has another version of the graph than the worker. This
    requires every capability in the run's `guarded_by`.
    """
    await require_course(caller, client, run_id)
    run = client.run(run_id)
    own = backend.graphs.get(await run.graph_of() or "")
    order = commands.Migrate(
        **fields_set(body),
        version=None if own is None else own.build().version,
        principal=caller,
        key=key,
    )
    return await run.migrate_by(order)


@router.post(
    "/retry",
    responses=openapi.change(
        200,
        "The run, which goes on.",
        examples.RUN,
        Code.UNKNOWN_RUN,
        Code.UNKNOWN_GRAPH,
        Code.NOT_FINISHED,
        Code.RUN_FINISHED,
        Code.IDEMPOTENCY_CONFLICT,
        Code.CONVERSATION_BUSY,
        Code.CANNOT_MIGRATE,
        *_OF_STARTS,
    ),
)
async def retry(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    key: Key,
    reads: Reads,
    body: RetryBody = None,
) -> views.RunView | RunStatus:
    """Let a run that failed, was halted or was cancelled go on from where it ended, under its id.

    Finished visits, answers and messages are kept, and open questions are open again. With `graph: today`
    the run moves to today's graph, as by a migration. A patch, today's graph, and the repeat of what a
    gate allowed require every capability in the run's `guarded_by`. Without `runs:read` the response has
    only the run's id and status.
    """
    require(caller, authority.CONTROL)
    order = body or commands.RetryBody()
    graph = None
    if order.changes_course:
        await require_course(caller, client, run_id)
        graph = backend.graph(await client.run(run_id).graph_of() or "")
    run = client.run(run_id, graph)
    try:
        await run.retry_by(order, principal=caller, key=key, room=_room(backend))
    except Refusal as refusal:
        raise await without_others(client, reads, refusal) from refusal
    return view_for(caller, await run.view())


@router.post(
    "/fork",
    status_code=201,
    responses={
        200: openapi.also(
            "The fork, which an earlier request started.", examples.FORKED, ForkedRun
        ),
        **openapi.change(
            201,
            "The new run, and the questions that it asks first.",
            examples.FORKED,
            Code.UNKNOWN_RUN,
            Code.RUN_EXISTS,
            Code.NOT_FINISHED,
            Code.IDEMPOTENCY_CONFLICT,
            Code.NATIVELY_PAUSED,
            Code.INVALID_RUN_ID,
            Code.NO_SUCH_PAST,
            *_OF_STARTS,
        ),
    },
)
async def fork(
    *,
    run_id: RunId,
    caller: Caller,
    backend: BackendDep,
    client: ClientDep,
    key: Key,
    reads: Reads,
    response: Response,
    body: ForkBody = None,
) -> ForkedRun | RunStatus:
    """Start a new run with the past of an open or ended one, which stays as it is.

    `back` is how many finished visits of the branch that moved last the new run goes back; they run
    again. What else has finished is not done again, and every gate whose effects lie ahead is asked
    again. The same request under the same `run_id` or `Idempotency-Key` starts nothing more. This
    requires every capability in the run's `guarded_by`. Without `runs:read` the response has only the
    new run's id and status.
    """
    await require_course(caller, client, run_id)
    order = body or commands.ForkBody()
    chosen = chosen_run_id(order.run_id)
    request = None
    if key is not None:
        request = sha256([run_id, order.model_dump(mode="json")])
        if chosen is None:
            chosen = run_id_of(client.task_queue, caller.subject, key)
        else:
            request = f"{hash_of(caller.subject, key)}.{request}"
    await require_free(client, reads, chosen)
    order = order.model_copy(update={"run_id": chosen})
    started = await client.run(run_id).fork_by(
        order, principal=caller, request=request, room=_room(backend)
    )
    new = client.run(started.run_id)
    response.headers["Location"] = f"/runs/{started.run_id}"
    if not started.created:
        response.status_code = 200
    if not caller.may(authority.READ):
        return RunStatus(run_id=started.run_id, status="running")
    asked = started.interrupts if started.created else await new.interrupts()
    return ForkedRun(run_id=started.run_id, forked_from=run_id, interrupts=asked)


def _room(backend: Backend) -> Room:
    settings = backend.settings
    return Room(bound=settings.max_active_runs, policy=settings.max_active_runs_policy)
