"""A run's state as people and programs see it. Pure: the same state gives the same view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from abeyance import wire
from abeyance.core import authority, items
from abeyance.core.json import Json, size
from abeyance.core.ledger import Interrupt, Settled
from abeyance.core.spec import Default, GoTo, Halt, OnPauseTimeout, OnTimeout, ResumeRun
from abeyance.core.state import Failure, Phase, RunState

_MOST_AGENTS: Final = 50
"""In a view, which others read too, who wait for something else."""
_ABRIDGED_CHARS: Final = 200
_BESIDE_BULK: Final = 500
"""In bytes: ids, addresses and times of an interrupt."""


def run_view(state: RunState, start: wire.StartRun) -> wire.RunView:
    """The whole view of a run."""
    ending = state.ending
    counters = state.counters
    values = dict(state.root.values)
    is_over = state.finished
    return wire.RunView(
        run_id=state.run_id,
        graph=state.spec.name,
        graph_version=start.graph_version,
        status=str(state.status),
        outcome=ending and ending.outcome,
        reason=ending and ending.reason,
        paused=state.pause is not None,
        pause=_pause_view(state),
        conversation_id=start.conversation_id,
        session_type=start.session_type,
        labels=start.labels,
        started_by=start.started_by,
        created_at=state.created_at,
        updated_at=state.updated_at,
        ended_at=state.updated_at if is_over else None,
        running=[visit.address for visit in state.in_phase(Phase.RUNNING)],
        agents=agents(state)[:_MOST_AGENTS],
        interrupts=open_interrupts(state, beside=state.root.size),
        queue_depth=len(state.mailbox.queue),
        max_queue_size=state.limits.max_queue_size,
        metrics=wire.Metrics(
            messages_queued=counters.messages_queued,
            messages_delivered=counters.messages_delivered,
            pause_count=counters.pause_count,
            resume_count=counters.resume_count,
            cancel_count=counters.cancel_count,
            max_queue_depth=counters.max_queue_depth,
            last_activity_at=state.last_activity_at,
            visits=counters.visits,
        ),
        guarded_by=list(authority.guarded_by(state)),
        values=values,
        version=state.root.version,
        result=values if is_over else None,
        undelivered=list(state.mailbox.undelivered),
        rejected=list(state.mailbox.rejected),
        todos=list(state.todos),
        error=ending and ending.error and _error_view(ending.error),
        beside=[_error_view(failure) for failure in ending.secondary_errors] if ending else [],
        cancelled_by=ending.actor if ending and ending.outcome == "cancelled" else None,
    )


def closing_record(state: RunState, start: wire.StartRun) -> wire.ClosingRecord:
    """What a finished run leaves behind."""
    view = run_view(state, start)
    return wire.ClosingRecord(
        outcome=view.status,
        reason=view.reason,
        values=view.values,
        undelivered=view.undelivered,
        # The values stand once in the record: the client puts them back into the view.
        view=view.model_copy(update={"values": {}, "result": None}),
        interrupts=settled_interrupts(state),
        transcripts=items.transcripts(state),
        keys=dict(state.keys),
    )


def agents(state: RunState) -> list[wire.AgentView]:
    """The agents at work."""
    found = []
    for scope in state.scopes.values():
        if not scope.is_agent:
            continue
        turns, usage = scope.values.get("turns"), scope.values.get("usage")
        found.append(
            wire.AgentView(
                address=scope.address,
                turns=turns if isinstance(turns, int) else 0,
                usage=usage if isinstance(usage, Mapping) else {},
            )
        )
    return found


def open_interrupts(state: RunState, *, beside: int = 0) -> list[wire.InterruptView]:
    """The open interrupts, in the order in which they were opened.

    Temporal ends a run whose worker tells too much at once. So those that find no room any more are
    abridged; `beside` is how many bytes are told with them.
    """
    room = state.limits.visit_bytes - beside
    found = []
    for entry in state.ledger.open.values():
        if room > 0:
            room -= size(_bulk_of(entry)) + _BESIDE_BULK
        found.append(_open_view(state, entry) if room > 0 else _abridged_view(state, entry))
    return found


def interrupt(state: RunState, id_: str) -> wire.InterruptView:
    """One interrupt, with all that is known of it, if that is not too much on its own.

    Raises KeyError if there is none.
    """
    entry = state.ledger.open.get(id_)
    if entry is None:
        return _settled_view(state, state.ledger.settled[id_])
    fits = size(_bulk_of(entry)) <= state.limits.visit_bytes
    return _open_view(state, entry) if fits else _abridged_view(state, entry)


def settled_interrupts(state: RunState) -> list[wire.InterruptView]:
    """The settled interrupts, in the order in which they were settled."""
    return [_settled_view(state, entry) for entry in state.ledger.settled.values()]


def _bulk_of(entry: Interrupt) -> Json:
    reasons = [parent.reason for parent in entry.parents]
    shown = [entry.prompt, entry.reason, entry.payload, entry.response_schema, reasons]
    return [*shown, on_timeout_text(entry.on_timeout)]


def _abridged_view(state: RunState, entry: Interrupt) -> wire.InterruptView:
    is_default = isinstance(entry.on_timeout, Default)
    short = replace(
        entry,
        prompt=entry.prompt[:_ABRIDGED_CHARS],
        reason=None,
        payload=None,
        response_schema=None,
        parents=tuple(replace(parent, reason=None) for parent in entry.parents),
    )
    told: dict[str, Json] = {"on_timeout": None} if is_default else {}
    return _open_view(state, short).model_copy(update={"abridged": True, **told})


def _open_view(state: RunState, entry: Interrupt) -> wire.InterruptView:
    return wire.InterruptView(
        id=entry.id,
        run_id=state.run_id,
        graph=state.spec.name,
        name=entry.name,
        kind=entry.kind,
        address=entry.address,
        prompt=entry.prompt,
        reason=entry.reason,
        payload=entry.payload,
        response_schema=entry.response_schema,
        requested_capability=entry.requested_capability,
        created_at=entry.created_at,
        deadline=entry.deadline,
        on_timeout=on_timeout_text(entry.on_timeout) if entry.deadline else None,
        status="open",
        digest=entry.digest,
        parent=entry.parents[0].id if entry.parents else None,
        parents=list(entry.parents),
    )


def _settled_view(state: RunState, entry: Settled) -> wire.InterruptView:
    is_answered = entry.status == "answered"
    return wire.InterruptView(
        id=entry.id,
        run_id=state.run_id,
        graph=state.spec.name,
        name=entry.name,
        kind=entry.kind,
        address=entry.address,
        prompt=entry.prompt,
        requested_capability=entry.requested_capability,
        created_at=entry.created_at,
        deadline=entry.deadline,
        status=entry.status,
        answered_by=entry.by if is_answered else None,
        answered_at=entry.settled_at if is_answered else None,
        answer_sha256=entry.answer_sha256,
        answer=entry.answer,
        settled_at=entry.settled_at,
        settled_reason=entry.reason,
    )


def on_timeout_text(policy: OnTimeout | OnPauseTimeout) -> Json:
    """What happens at a deadline, as authors write it."""
    match policy:
        case Halt():
            return "halt"
        case ResumeRun():
            return "resume"
        case GoTo(node=node):
            return f"goto:{node}"
        case Default(answer=answer):
            return {"default": answer}


def _pause_view(state: RunState) -> wire.PauseView | None:
    pause = state.pause
    if pause is None:
        return None
    return wire.PauseView(
        since=pause.since,
        actor=pause.actor,
        reason=pause.reason,
        mode=pause.mode,
        deadline=pause.deadline,
        on_timeout=str(on_timeout_text(pause.on_timeout)),
    )


def _error_view(failure: Failure) -> wire.ErrorView:
    return wire.ErrorView(code=failure.code, message=failure.message, address=failure.address)
