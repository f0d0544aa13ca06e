"""Runs: start, list, and read a run, its result and its transcripts."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BeforeValidator, Field

from abeyance import views, wire
from abeyance.agents import transcript_pages
from abeyance.agents.transcript_view import TranscriptItem
from abeyance.api import examples, openapi
from abeyance.api.auth import READ, START, STARTS_FOR
from abeyance.api.dependencies import (
    Backend,
    BackendDep,
    CallDep,
    ClientDep,
    RunId,
    ServiceStopping,
    WaitSeconds,
    keyed,
    long_poll,
)
from abeyance.api.rights import Reads, labels_of_start, require_free, without_others
from abeyance.api.routers.control import view_for
from abeyance.api.schemas import (
    Listed,
    Page,
    RunResult,
    RunStatus,
    StartBody,
)
from abeyance.authoring.graph import Graph
from abeyance.commands import lists
from abeyance.core.policy import Principal, ReadRights
from abeyance.core.text import truncate
from abeyance.errors import Code, Refusal
from abeyance.filters import RunFilter
from abeyance.handle import Started
from abeyance.storage.run_files import RunFile

router = APIRouter(prefix="/runs", tags=["runs"])

_MAX_ADDRESS_CHARS: Final = 4_000


def _statuses(value: Any) -> frozenset[str]:
    return frozenset(lists.known_statuses(lists.parted(value), views.UNTIL_BLOCKED))


Wait: TypeAlias = Annotated[
    WaitSeconds | None,
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
        description="The statuses to wait for with `wait`, separated by commas; `blocked` waits for a "
        "run with a blocked visit. A run that has ended is always returned at once.",
        examples=["awaiting-input,completed"],
    ),
]


@router.post(
    "",
    status_code=201,
    dependencies=[START],
    response_description="The new run.",
    responses={
        200: {
            "description": "The run, which an earlier request started.",
            "model": views.RunView | RunStatus,
        }
    },
)
async def start_run(
    *,
    body: StartBody,
    call: CallDep,
    request: Request,
    response: Response,
    wait: Wait = None,
    until: Until = None,
) -> views.RunView | RunStatus:
    """Start a run of a graph, and return it as it begins or, with `wait`, as it is after the wait.

    Starting the same graph with the same input under the id of a running run changes nothing. With an
    `Idempotency-Key` and no `run_id`, the id is derived from the key: a retry returns the run, even if it
    has ended, and the same key with another body is refused. With both, one key starts one run, even with
    `reuse`. A conversation has at most one active run of the type `agent`, unless `allow_concurrent` is
    set. Without `runs:read` the response has only the run's id and status.

    A service that starts a run for a person names the person in `on_behalf_of`, which requires
    `runs:start-for`. For four eyes (`@starter`), lists and views the person has started the run; the
    audit has both.

    If the caller sees only runs with some labels, the run gets each of these labels that has one value.
    A start with other values is refused as `outside_reads`.
    """
    run_id, hashed = keyed(call, body.run_id, body.sha256)
    # A key identifies one run forever.
    reuse = body.reuse and (call.key is None or body.run_id is not None)
    body = body.model_copy(update={"run_id": run_id, "reuse": reuse})
    started = await start(body, hashed, caller=call.caller, backend=call.backend, reads=call.reads)
    response.headers["Location"] = f"/runs/{started.run_id}"
    if not started.created:
        response.status_code = 200
    view = started.view
    if wait:
        view = await _awaited(started.run_id, request, call.backend, wait, until)
    return view_for(call.caller, view or await call.client.run(started.run_id).view())


async def start(
    body: StartBody,
    request: str | None,
    *,
    caller: Principal,
    backend: Backend,
    reads: ReadRights,
    graph: Graph | None = None,
) -> Started:
    """Start a run for a caller with `runs:start`. `request` is as in `Client.runs.start`, and `graph`
    defaults to the one that the body names. Raises as `POST /runs`.
    """
    if body.on_behalf_of not in (None, caller.subject) and not caller.may(STARTS_FOR):
        raise Refusal(
            Code.CAPABILITY_REQUIRED,
            f"You may not start a run on behalf of {body.on_behalf_of!r}: that takes the "
            f"capability {STARTS_FOR!r}, which no other one includes. Leave out `on_behalf_of`, or have "
            f"{STARTS_FOR!r} added to the token of this service.",
            capability=STARTS_FOR,
            capabilities=[STARTS_FOR],
        )
    client = backend.connection.client
    graph = backend.graph(body.graph) if graph is None else graph
    if not isinstance(body.input, dict):
        raise Refusal(
            Code.INVALID_INPUT,
            f"The input {truncate(json.dumps(body.input, ensure_ascii=False), 100)} is not an object: "
            "send the fields of the graph.",
            errors=[{"pointer": "", "message": "is not an object"}],
        )
    labels = labels_of_start(reads, body.labels)
    await require_free(client, reads, body.run_id)
    starting = client.runs.start(
        graph,
        body.input,
        run_id=body.run_id,
        conversation_id=body.conversation_id,
        session_type=body.session_type,
        labels=labels,
        limits=body.limits.below(backend.settings.limits()),
        started_by=caller.subject,
        on_behalf_of=body.on_behalf_of,
        reuse=body.reuse,
        interrupt_before=body.interrupt_before,
        interrupt_after=body.interrupt_after,
        on_error=body.on_error,
        request=request,
        allow_concurrent=body.allow_concurrent,
        max_active_runs=backend.settings.max_active_runs,
        max_active_runs_policy=backend.settings.max_active_runs_policy,
    )
    try:
        return await starting
    except Refusal as refusal:
        raise await without_others(client, reads, refusal) from refusal


@router.get("", dependencies=[READ], response_description="A page of runs.")
async def list_runs(
    query: Annotated[lists.RunsPage, Query()], client: ClientDep, reads: Reads
) -> Page[views.RunView]:
    """List runs, newest first or in another order, without their values."""
    filter_ = lists.narrowed(RunFilter(reads=reads), query)
    page = await client.runs.page(filter_, cursor=query.cursor, limit=query.most)
    return Page(
        items=page.items,
        next_cursor=page.next_cursor,
        total=page.total,
        searched=client.records.searched,
    )


@router.get(
    "/{run_id}",
    dependencies=[READ],
    response_model=views.RunView,
    response_description="The run.",
)
async def read_run(
    *,
    run_id: RunId,
    backend: BackendDep,
    client: ClientDep,
    request: Request,
    wait: Wait = None,
    until: Until = None,
) -> views.RunView | Response:
    """Retrieve a run. With `wait`, the response is delayed until the run has a status of `until`.

    No worker has to be up. If none has processed what was sent to the run, `degraded` is true and the run
    is shown as last recorded. A run that Temporal has deleted is shown as it ended.
    """
    if not wait:
        return await client.run(run_id).view()
    view = await _awaited(run_id, request, backend, wait, until)
    # The caller has disconnected.
    return Response(status_code=204) if view is None else view


async def _awaited(
    run_id: str, request: Request, backend: Backend, wait: float, until: frozenset[str] | None
) -> views.RunView | None:
    """Return the run at a status of `until` or when `wait` is over; None if the caller disconnects."""
    run = backend.connection.client.run(run_id)
    longest = min(wait, backend.settings.default_timeout)
    waiting = run.wait(until=until or frozenset(), timeout=longest)
    try:
        return await long_poll(request, waiting, stopping=backend.stopping)
    except ServiceStopping:
        # Respond as at the end of the wait: a retry reaches another process.
        return await run.view()


@router.get("/{run_id}/result", dependencies=[READ], response_description="The result of the run.")
async def read_result(run_id: RunId, client: ClientDep) -> RunResult:
    """Retrieve the result of a run that has ended, also after Temporal has deleted it."""
    return RunResult.of(run_id, await client.run(run_id).result())


PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that a browser shows in place; everything else is downloaded."""


@router.get(
    "/{run_id}/files/{file_id}",
    dependencies=[READ],
    response_class=Response,
    response_description="The file.",
    responses=openapi.shown("%PDF-1.7 ...", "*/*", {"type": "string", "format": "binary"}),
)
async def read_file(
    run_id: RunId,
    file_id: Annotated[
        str,
        Path(description="The id of the file, which ends its address.", examples=["0" * 64]),
    ],
    client: ClientDep,
) -> Response:
    """Retrieve a picture or a document that a run has stored, to show it with a question.

    A browser shows a picture (PNG, JPEG, GIF, WebP), and downloads anything else. It runs no code in the
    file.
    """
    return sent(await client.run(run_id).run_file(file_id))


def sent(file: RunFile) -> Response:
    """Return the response with a file: a browser shows a picture, and downloads anything else."""
    way = "inline" if file.type in PICTURES else "attachment"
    headers = {
        "Content-Disposition": f"{way}; filename*=UTF-8''{quote(file.name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-store",
    }
    return Response(file.data, media_type=file.type, headers=headers)


class TranscriptQuery(wire.Request):
    """The query of a page of a transcript."""

    address: str | None = Field(
        default=None,
        max_length=_MAX_ADDRESS_CHARS,
        description="The address of the agent, or of something in it, such as an interrupt. Required if "
        "the run has several transcripts.",
        examples=[examples.AGENT],
    )
    cursor: str | None = Field(
        default=None,
        description="The `next_cursor` of the previous page. Absent starts at the beginning.",
    )
    limit: int = Field(
        default=100,
        ge=1,
        le=transcript_pages.MAX_ITEMS,
        description="The maximum number of items in a page.",
    )


@router.get(
    "/{run_id}/transcript",
    dependencies=[READ],
    response_description="A page of the transcript, oldest first.",
)
async def read_transcript(
    run_id: RunId, query: Annotated[TranscriptQuery, Query()], client: ClientDep
) -> Listed[TranscriptItem]:
    """List the transcript of an agent: its input, its turns, its tool calls with their results, and the
    messages that were injected.

    Continue from `next_cursor` to get every item exactly once. It is null after the last item of a run
    that has ended; until then an empty page means that nothing is new. If a run has several transcripts
    and the query has no `address`, `invalid_body` lists them in `addresses`; `unknown_node` does so for
    an address without a transcript. A page may have fewer than `limit` items.
    """
    items, next_cursor = await client.run(run_id).transcript_page(
        query.address, cursor=query.cursor, limit=query.limit
    )
    return Listed(items=items, next_cursor=next_cursor)
