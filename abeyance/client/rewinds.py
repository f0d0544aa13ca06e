"""Rewinding a run: the plan of what a rewind discards, and the reset by which Temporal carries it out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType, ResetReapplyType
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.converter import DataConverter

from abeyance import views, wire
from abeyance.client.eviction import Room
from abeyance.commands import REWIND_TO_START
from abeyance.core import edits, idempotency, replies
from abeyance.core.json import Json
from abeyance.core.spec import GraphSpec
from abeyance.core.state import Status
from abeyance.errors import Code, Refusal, Unavailable
from abeyance.history import resets
from abeyance.history.description import RPC, RunDescription
from abeyance.history.reading import events_of, sealed
from abeyance.history.resets import Continued, Point, ResetReason
from abeyance.records import discards
from abeyance.records.claims import Claim
from abeyance.storage.converter import of_run
from abeyance.temporal.retry import NotFound, retry_until

if TYPE_CHECKING:
    from abeyance.client.client import Client

_POLL: Final = 0.05
_POLLS: Final = 100
"""How often to look whether people can read a rewind. Without a worker that takes longer."""
_NEWS: Final = frozenset({"run.rewound"})
"""The events that a rewind itself causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A rewind of a run: what it discards, and the event of an execution to reset to.

    `described` is the run before the plan, and `rewound_by` its latest rewind. `event` is None if nothing
    has happened since the point.
    """

    described: RunDescription
    rewound_by: int | None
    view: views.Rewind
    execution: str
    history: Sequence[HistoryEvent]
    event: int | None


async def planned(client: Client, run_id: str, to: str, *, patch: Mapping[str, Json]) -> Plan:
    """Plan the rewind of a run to a question, or to its start. `patch` are values that it sets.

    Raises `unknown_run`, `unknown_interrupt`, `gone` if Temporal does not have the history any more, the
    refusals of the patch, `not_stopped` for a patch where code begins again at once, and Unavailable.
    """
    records, keeps = client.records, False
    # A rewind that the description lacks comes into the records only after this read.
    before = await records.read(discards.standing, run_id)
    described = await client.line.described(run_id)
    if before is not None and described.is_running:
        # A run that has ended since its rewind may never record it.
        before = await _once_recorded(client, run_id, described.execution, before)
    if to == REWIND_TO_START:
        execution = tasks = (await _row(client, run_id)).origin
        history = await _history(client, run_id, execution)
        found: Point | Continued | None = resets.beginning(history)
    else:
        asked = await records.read(discards.asked_in, run_id, to)
        if asked is None:
            raise replies.unknown(to)
        if not asked.has_waited:
            raise resets.no_point(to, "it was settled as soon as it was asked")
        tasks, (execution, _, length) = asked.task, asked.task.partition("/")
        history = await _history(client, run_id, execution)
        found = resets.point(history, int(length), to, by_deadline=asked.by_deadline)
        keeps = isinstance(found, Point) and found.keeps_task
    if isinstance(found, Continued):
        execution = tasks = found.execution
        history = await _history(client, run_id, execution)
        found = resets.beginning(history)
    view = views.Rewind(run_id=run_id, to=to)
    under_way: Sequence[str] = ()
    if found is not None:
        kept = 0
        if to != REWIND_TO_START:
            kept = await records.read(discards.kept, run_id, tasks, keeps=keeps)
        since, effects, under_way = await records.read(discards.since, run_id, kept)
        # The records may not have the event of the run's end yet.
        is_there = described.is_running and all(event.type in _NEWS for event in since)
        if is_there and not (patch and to == REWIND_TO_START):
            found, since, effects = None, [], []
        view = view.model_copy(update={"discards": since, "effects": effects})
    if patch and to == REWIND_TO_START:
        if found is None:
            raise Unavailable(
                f"no worker has begun the run {run_id!r}: start one, and repeat the call"
            )
        await _refuse_at_start(of_run(client.line.temporal.data_converter, run_id), history, patch)
    elif patch and under_way:
        raise Refusal(
            Code.NOT_STOPPED,
            f"The values cannot be edited at {to!r}, because code was under way there, which begins "
            f"again: {', '.join(under_way)}. Rewind without a patch, pause the run, and edit them then.",
        )
    return Plan(
        described=described,
        rewound_by=None if before is None else before.rewound_by,
        view=view,
        execution=execution,
        history=history,
        event=None if found is None else found.event,
    )


async def _once_recorded(
    client: Client, run_id: str, execution: str, standing: discards.Standing
) -> discards.Standing:
    """Wait a moment until the latest rewind of a run is recorded, and return how the run stands then.

    Before that, the records have what the rewind has discarded. Raises Unavailable.
    """
    latest = _latest(await _history(client, run_id, execution))
    for _ in range(_POLLS):
        if latest is None or latest.time == standing.rewound_at:
            return standing
        await asyncio.sleep(_POLL)
        standing = await _row(client, run_id)
    raise Unavailable(
        f"the run {run_id!r} was rewound, and no worker has recorded that yet: start one, and repeat the "
        "call"
    )


async def _refuse_at_start(
    converter: DataConverter, history: Sequence[HistoryEvent], patch: Mapping[str, Json]
) -> None:
    kinds = [wire.StartRun, GraphSpec, dict[str, dict[str, Any]]]
    _, spec, values = await converter.decode(_begun(history).input.payloads[:3], kinds)
    edits.refuse_patch(spec, values[f"graph:{spec.name}"], patch)


async def refuse(client: Client, plan: Plan) -> None:
    """Raise `not_running` for a run that is ending, and `natively_paused`."""
    run_id = plan.view.run_id
    if not plan.described.is_running:
        return
    await client.line.refuse_natively_paused(run_id)
    if (await _row(client, run_id)).status == Status.ENDING:
        raise Refusal(
            Code.NOT_RUNNING,
            "The run is ending, so it cannot be rewound now: repeat the call when it has ended.",
            run_status=str(Status.ENDING),
        )


async def was_done(client: Client, run_id: str, mark: str | None, key: str | None) -> bool:
    """Return whether the latest rewind of a run was the call with this mark and key.

    Raises `idempotency_conflict` if it was another call with the key.
    """
    if mark is None or key is None:
        return False
    history = await _history(client, run_id, "")
    told = _latest(history)
    if told is None and (await _row(client, run_id)).rewound_by is not None:
        # The run may have been continued as new since.
        while told is None and (before := _begun(history).continued_execution_run_id):
            history = await _history(client, run_id, before)
            told = _latest(history)
    given = None if told is None else told.data.get("key")
    if given is None or given.partition(".")[0] != mark.partition(".")[0]:
        return False
    if given != mark:
        raise idempotency.conflict(key)
    return True


async def carry_out(
    client: Client,
    plan: Plan,
    patch: Mapping[str, Json],
    *,
    by: str,
    mark: str | None,
    room: Room,
) -> bool:
    """Reset the run, and wait a moment until people can read that. Return False if another rewind, which
    people can read, came first: plan this one anew. `patch` are values that the run gets at its start.

    An ended run takes its place among the active runs and in its conversation again. Raises
    `conversation_busy`, `too_many_runs`, `gone`, and Unavailable.
    """
    described, run_id, line = plan.described, plan.view.run_id, client.line
    if plan.event is None:
        return True
    converter = of_run(line.temporal.data_converter, run_id)
    start = await _start(converter, plan.history)
    if not described.is_running:
        await client.executions.capacity.make_room(run_id, room)
        await _claim(client, start)
    request = ResetWorkflowExecutionRequest(
        namespace=line.temporal.namespace,
        workflow_execution=WorkflowExecution(workflow_id=run_id, run_id=plan.execution),
        reason=resets.reason(
            by=by,
            to=plan.view.to,
            key=mark,
            patch=await sealed(converter, patch) if patch else None,
        ),
        workflow_task_finish_event_id=plan.event,
        request_id=uuid.uuid4().hex,
        reset_reapply_type=ResetReapplyType.RESET_REAPPLY_TYPE_NONE,
        reset_reapply_exclude_types=[
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
        ],
    )
    service = line.temporal.workflow_service
    send = partial(service.reset_workflow_execution, request, timeout=RPC)
    try:
        async with client.erasures.none_of(run_id):
            if (await line.described(run_id)).execution != described.execution:
                # Temporal would go back to a history that the rewind of another caller has discarded.
                if await _is_told(client, plan):
                    return False
                raise Unavailable(
                    f"the run {run_id!r} was rewound, or continued as new, while its rewind was planned: "
                    "repeat the call"
                )
            await retry_until(f"the run {run_id!r}", send, seconds=line.patience)
    except (NotFound, Refusal) as error:
        # If the outcome of the reset is unknown, the claim stays: without a run it expires.
        if not described.is_running and start.claim is not None:
            await client.claims.release([start.claim])
        if isinstance(error, NotFound):
            raise _gone(run_id) from None
        raise
    # The run has another execution now, and may have another chain of them.
    await line.cached_run(run_id, anew=True)
    await _is_told(client, plan)
    return True


async def _is_told(client: Client, plan: Plan) -> bool:
    """Wait a moment until people can read that the run was rewound; return whether they can."""
    for _ in range(_POLLS):
        if (await _row(client, plan.view.run_id)).rewound_by != plan.rewound_by:
            return True
        await asyncio.sleep(_POLL)
    return False


async def _claim(client: Client, start: wire.StartRun) -> None:
    # At its end a run gives back the claim that it has started with, so take it again by its token.
    if start.conversation_id is not None and start.claim is not None:
        claim = Claim(
            run_id=start.run_id,
            session_type=start.session_type,
            token=start.claim,
            allow_concurrent=start.allow_concurrent,
            claimed_at=datetime.now(UTC),
        )
        await client.claims.claim(start.conversation_id, claim)


async def _row(client: Client, run_id: str) -> discards.Standing:
    found = await client.records.read(discards.standing, run_id)
    if found is None:
        raise Unavailable(f"the records do not have the run {run_id!r} yet: repeat the call")
    return found


async def _start(converter: DataConverter, history: Sequence[HistoryEvent]) -> wire.StartRun:
    (start,) = await converter.decode(_begun(history).input.payloads[:1], [wire.StartRun])
    assert isinstance(start, wire.StartRun)  # noqa: S101 it is decoded as one
    return start


def _begun(history: Sequence[HistoryEvent]) -> WorkflowExecutionStartedEventAttributes:
    return history[0].workflow_execution_started_event_attributes


def _latest(history: Sequence[HistoryEvent]) -> ResetReason | None:
    """Return the rewind that the latest reset in a history describes."""
    return next(reversed([*resets.reset_reasons(history)]), None)


async def _history(client: Client, run_id: str, execution: str) -> Sequence[HistoryEvent]:
    line = client.line
    read = partial(events_of, line.temporal, line.task_queue, patience=line.patience)
    try:
        return await read(run_id, execution)
    except NotFound:
        raise _gone(run_id) from None


def _gone(run_id: str) -> Refusal:
    return Refusal(
        Code.GONE,
        f"Temporal has deleted the history of the run {run_id!r} at that point, because its retention is "
        "over, so the run cannot be rewound to it.",
        run_id=run_id,
    )
