"""Batch operations: one command for many runs, with a result for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from abeyance import commands, views, wire
from abeyance.api import examples
from abeyance.api.auth import CONTROL, RESPOND, STEER
from abeyance.api.dependencies import Call, CallDep
from abeyance.api.problems import code_of
from abeyance.api.rights import require_readable, vouched
from abeyance.api.routers.control import goes_to_node, require_course
from abeyance.api.routers.messages import to_signal
from abeyance.api.schemas import fields_set
from abeyance.commands import lists
from abeyance.core.state import Status
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.filters import RunFilter
from abeyance.history.description import ENDINGS
from abeyance.orders import control_order
from abeyance.util import checked_run_id, gather_limited

router = APIRouter(prefix="/batch", tags=["batch"])

MAX_RUNS: Final = 1_000
"""The maximum number of runs in one request."""
_CONCURRENCY: Final = 20
_OPEN: Final = frozenset(str(status) for status in Status) - ENDINGS


class BatchFilter(lists.RunSelection):
    """A filter for runs, as in `GET /runs`. Without a `status` it matches runs that have not ended."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> BatchFilter:
        if not (self.statuses or self.graph or self.conversation_id or self.labels):
            raise ValueError(
                "an empty filter would match every run: set status, graph, conversation_id or label"
            )
        return self


class Selection(wire.Request):
    """The runs to change: either `run_ids`, or a `filter` with at most `limit` runs from `cursor` on."""

    run_ids: list[Annotated[str, Field(max_length=1_000)]] | None = Field(
        default=None, min_length=1, max_length=MAX_RUNS
    )
    filter: BatchFilter | None = None
    limit: int = Field(default=MAX_RUNS, ge=1, le=MAX_RUNS, strict=True)
    cursor: str | None = Field(
        default=None, max_length=4_000, description="The `next_cursor` of the previous response."
    )

    @model_validator(mode="after")
    def _is_either(self) -> Selection:
        if (self.run_ids is None) == (self.filter is None):
            raise ValueError("set either `run_ids` or `filter`")
        if self.run_ids is not None and self.model_fields_set & {"limit", "cursor"}:
            raise ValueError("`limit` and `cursor` require a `filter`")
        return self


class PauseBatch(Selection):
    """Runs to pause."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.PAUSE_MANY]})
    body: commands.PauseBody = Field(default_factory=commands.PauseBody)


class ResumeBatch(Selection):
    """Runs to resume."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.RESUME_MANY]})
    body: commands.ControlBody = Field(default_factory=commands.ControlBody)


class CancelBatch(Selection):
    """Runs to cancel."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.CANCEL_MANY]})
    body: commands.CancelBody = Field(default_factory=commands.CancelBody)


class SteerBatch(Selection):
    """Runs to steer, with the same message."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.STEER_MANY]})
    body: commands.MessageBody


class RespondBatch(Selection):
    """Runs to answer. `response` answers the only open interrupt of each run; `responses` answers
    interrupts by id.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [examples.RESPOND_MANY]})
    body: commands.Answers


class RunOutcome(BaseModel):
    """The result for one run. `code` and `detail` give the reason if it was refused."""

    run_id: views.RunId
    ok: bool
    code: str | None = None
    detail: str | None = None


class BatchOutcome(BaseModel):
    """The result for each run. `next_cursor` is set if more runs match the filter."""

    results: list[RunOutcome]
    succeeded: int = Field(examples=[1])
    failed: int
    next_cursor: str | None = None


_RESULTS: Final = "The result for each run."


@router.post("/pause", dependencies=[CONTROL], response_description=_RESULTS)
async def pause_many(body: PauseBatch, call: CallDep) -> BatchOutcome:
    """Pause many runs. Each result says whether Temporal accepted the signal."""
    order = control_order(commands.Pause, fields_set(body.body), call.caller, call.key)

    async def pause(run_id: str) -> None:
        if goes_to_node(body.body):
            await require_course(call.caller, call.client, run_id)
        await call.client.run(run_id).control(order)

    return await _run_batch(call, body, pause)


@router.post("/resume", dependencies=[CONTROL], response_description=_RESULTS)
async def resume_many(body: ResumeBatch, call: CallDep) -> BatchOutcome:
    """Resume many runs. Each result says whether Temporal accepted the signal."""
    order = control_order(commands.Resume, fields_set(body.body), call.caller, call.key)
    return await _run_batch(call, body, lambda run_id: call.client.run(run_id).control(order))


@router.post("/cancel", dependencies=[CONTROL], response_description=_RESULTS)
async def cancel_many(body: CancelBatch, call: CallDep) -> BatchOutcome:
    """Cancel many runs. Each result says whether Temporal accepted the signal."""
    order = control_order(commands.Cancel, fields_set(body.body), call.caller, call.key)
    return await _run_batch(call, body, lambda run_id: call.client.run(run_id).control(order))


@router.post("/steer", dependencies=[STEER], response_description=_RESULTS)
async def steer_many(body: SteerBatch, call: CallDep) -> BatchOutcome:
    """Send the same message to many runs, under one `message_id`.

    A retry with the same `message_id` or `Idempotency-Key` changes nothing. Each result says whether
    Temporal accepted the signal.
    """
    message = to_signal(body.body, call)
    return await _run_batch(
        call, body, lambda run_id: call.client.run(run_id).signal_message(message)
    )


@router.post("/respond", dependencies=[RESPOND], response_description=_RESULTS)
async def respond_to_many(body: RespondBatch, call: CallDep) -> BatchOutcome:
    """Answer many runs. Within a run, either all answers are accepted or none."""
    # Without a worker every single run would time out.
    if not await call.client.workers():
        raise Unavailable("no worker is running: start one and retry")

    async def respond(run_id: str) -> object:
        answers = _answers_for(run_id, body.body)
        order = commands.Respond(**answers, principal=call.caller, key=call.key)
        order = vouched(order, call.credentials)
        return await call.client.run(run_id).respond_to(order)

    return await _run_batch(call, body, respond)


async def _run_batch(
    call: Call, selection: Selection, work: Callable[[str], Awaitable[object]]
) -> BatchOutcome:
    # Take the client first: without Temporal the whole call is refused.
    client = call.client

    async def one(run_id: str) -> RunOutcome:
        try:
            if selection.filter is None:
                await require_readable(client, call.reads, checked_run_id(run_id))
            await work(checked_run_id(run_id))
        except Refusal as refusal:
            return RunOutcome(run_id=run_id, ok=False, code=refusal.code, detail=refusal.message)
        except Unavailable as error:
            return RunOutcome(run_id=run_id, ok=False, code=code_of(error), detail=str(error))
        return RunOutcome(run_id=run_id, ok=True)

    run_ids, next_cursor = await _selected(call, selection)
    results = await gather_limited(run_ids, one, at_once=_CONCURRENCY)
    succeeded = sum(result.ok for result in results)
    return BatchOutcome(
        results=results,
        succeeded=succeeded,
        failed=len(results) - succeeded,
        next_cursor=next_cursor,
    )


async def _selected(call: Call, selection: Selection) -> tuple[list[str], str | None]:
    if selection.filter is None:
        return list(dict.fromkeys(selection.run_ids or ())), None
    run_ids: list[str] = []
    cursor = selection.cursor
    filter_ = lists.narrowed(RunFilter(reads=call.reads), selection.filter)
    filter_ = replace(filter_, statuses=filter_.statuses or _OPEN)
    while True:
        # A page can be short without being the last.
        left = selection.limit - len(run_ids)
        page, cursor = await call.client.runs.list(filter_, cursor=cursor, limit=left)
        run_ids += [view.run_id for view in page]
        if cursor is None or len(run_ids) == selection.limit:
            return list(dict.fromkeys(run_ids)), cursor


def _answers_for(run_id: str, body: commands.Answers) -> dict[str, object]:
    digests = {id_: digest for id_, digest in body.digests.items() if _run_of(id_) == run_id}
    fields = {**fields_set(body), "digests": digests}
    if body.responses is None:
        return fields
    responses = {id_: answer for id_, answer in body.responses.items() if _run_of(id_) == run_id}
    if not responses:
        raise Refusal(
            Code.UNKNOWN_INTERRUPT,
            f"No answer is for an interrupt of the run {run_id!r}: the ids of its interrupts begin with "
            "the run id.",
            run_id=run_id,
        )
    return {**fields, "responses": responses}


def _run_of(interrupt_id: str) -> str:
    return interrupt_id.rpartition(".")[0]
