"""Resets: the server makes another execution that begins with a part of an execution's history.

Activities and timers that were pending at that point begin again, from the data in the history alone.
Jobs that came later do not come again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivationJob as Job

from tests.simulation.execution import Execution
from tests.simulation.history import SCHEDULED, STARTED, Logged, told
from tests.simulation.tasks import Done, Update


@dataclass(frozen=True, kw_only=True)
class Reset:
    """A reset: its caller, the question to which it goes back, and the salt by which the run knows it."""

    by: str
    to: str
    salt: str


def reset(base: Execution, event: int, reason: str, request_id: str) -> tuple[Execution, Reset]:
    """Reset a run to just before an event of an execution. Return the execution that continues it."""
    server = base.server
    kept = base.log[: event - 1]
    is_end = event == len(base.log) and not base.is_open
    assert kept[-1].type in (STARTED, SCHEDULED) or is_end, (
        "the server goes back to a task or an end"
    )
    latest = server.execution(base.workflow_id)
    assert latest is not None
    new = Execution(
        server,
        workflow_id=base.workflow_id,
        type=base.type,
        queue=base.queue,
        input=base.input,
        memo=dict(base.memo_at_start),
        attributes=dict(base.attributes_at_start),
        request_id=request_id,
        before=base.before,
    )
    new.base, new.first, new.seed, new.started_at = base, base.first, base.seed, base.started_at
    server.note(f"{base.run_id} is reset to its event {event} as {new.run_id}: {reason}")
    if latest.is_open:
        latest.terminate()
    server.chains[base.workflow_id].append(new)
    job = Job()
    job.update_random_seed.randomness_seed = new.number
    if kept[-1].type != STARTED:
        kept.append(Logged(STARTED, server.now()))
    kept.append(told(job, server.now(), reason))
    new.goes_on(kept, [each for each in base.done if each.completed < event])
    _restore(new, base)
    told_by = json.loads(reason)
    salt = f"{new.number:x}"
    return new, Reset(by=told_by["by"], to=told_by["to"], salt=salt)


def _restore(new: Execution, base: Execution) -> None:
    """Restore the signals, updates, timers and activities that are pending in the history."""
    jobs = [each.job for each in new.log if each.job is not None]
    known = map(id, jobs)
    new.signals = {key: job for key, job in base.signals.items() if id(job) in {*known}}
    for update in base.updates.values():
        if 0 < update.accepted_at <= new.length:
            new.updates[update.id] = _update(update, new.length)
    timers: dict[int, datetime] = {}
    orders: dict[int, Any] = {}
    unwanted: set[int] = set()
    for done, command in _commands(new.done):
        match command.WhichOneof("variant"):
            case "start_timer":
                start = command.start_timer
                timers[start.seq] = done.ended + start.start_to_fire_timeout.ToTimedelta()
            case "cancel_timer":
                timers.pop(command.cancel_timer.seq, None)
            case "schedule_activity":
                orders[command.schedule_activity.seq] = command.schedule_activity
            case "request_cancel_activity":
                unwanted.add(command.request_cancel_activity.seq)
            case "upsert_workflow_search_attributes":
                fields = command.upsert_workflow_search_attributes.search_attributes
                new.attributes.update(fields.indexed_fields)
            case "modify_workflow_properties":
                new.memo.update(command.modify_workflow_properties.upserted_memo.fields)
            case _:
                pass
    over = resolved(new)
    fired = {job.fire_timer.seq for job in jobs if job.HasField("fire_timer")}
    new.visits = {seq: order.activity_id or str(seq) for seq, order in orders.items()}
    for seq, due in timers.items():
        if seq not in fired:
            new.start_timer(seq, due)
    for seq, order in orders.items():
        if seq not in over:
            new.order(order).is_cancel_requested = seq in unwanted


def _commands(tasks: list[Done]) -> Iterator[tuple[Done, Any]]:
    """Yield the commands that the SDK sent, with their tasks."""
    for done in tasks:
        ordered = {
            c.schedule_activity.seq for c in done.commands if c.HasField("schedule_activity")
        }
        unsent = ordered & {
            c.request_cancel_activity.seq
            for c in done.commands
            if c.HasField("request_cancel_activity")
        }
        for command in done.commands:
            about = getattr(command, command.WhichOneof("variant") or "")
            is_one = command.HasField("schedule_activity") or command.HasField(
                "request_cancel_activity"
            )
            if not is_one or about.seq not in unsent:
                yield done, command


def _update(update: Update, length: int) -> Update:
    """Return an update as it was when the history had `length` events."""
    kept = Update(id=update.id, job=update.job, is_accepted=True, accepted_at=update.accepted_at)
    if 0 < update.answered_at <= length:
        kept = replace(kept, answered_at=update.answered_at, outcome=update.outcome)
        kept.settled.set()
    return kept


def resolved(execution: Execution) -> set[int]:
    """Return the activities whose results are in the history, by sequence number."""
    jobs = [each.job for each in execution.log if each.job is not None]
    return {job.resolve_activity.seq for job in jobs if job.HasField("resolve_activity")}


def line(execution: Execution | None) -> Iterator[Execution]:
    """Yield the executions that make up a run's history up to now, the latest first."""
    while execution is not None:
        yield execution
        execution = execution.before


def stands(token: bytes, execution: Execution) -> bool:
    """Return whether a run's history has the result of an activity, by the token of an attempt."""
    run_id, *_, seq, _attempt = token.decode().split(" ")
    for number, each in enumerate(line(execution)):
        base: Execution | None = each
        while base is not None:
            if base.run_id == run_id:
                return number > 0 or int(seq) in resolved(execution)
            base = base.base
    return False
