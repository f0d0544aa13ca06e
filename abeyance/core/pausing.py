"""A run that starts no new work for a while, until somebody resumes it or its deadline passes.

A pause lets running code finish, or stops it, to begin again when the run goes on. What is done at its
deadline is told in `deadlines`.
"""

from __future__ import annotations

from typing import Literal

from abeyance.core import events
from abeyance.core.canonical import rfc3339
from abeyance.core.draft import Draft
from abeyance.core.effects import StopNode
from abeyance.core.state import Pause, Phase


def paused(draft: Draft, event: events.Paused) -> None:
    """Somebody pauses the run."""
    state = draft.state
    # Also a repeat, which does nothing else, is counted.
    draft.counters.pause_count += 1
    state.last_activity_at = event.now
    if state.pause is not None or state.ending is not None:
        return
    timeout = state.limits.pause_timeout if event.timeout is None else event.timeout
    deadline = None if timeout is None else draft.after(timeout)
    state.pause = Pause(
        since=event.now,
        actor=event.actor,
        reason=event.reason,
        mode=event.mode,
        deadline=deadline,
        on_timeout=event.on_timeout,
    )
    draft.tell(
        "run.paused",
        actor=event.actor,
        reason=event.reason,
        mode=event.mode,
        deadline=deadline and rfc3339(deadline),
    )
    if event.mode == "now":
        stop_for_now(draft, "pause")


def resumed(draft: Draft, event: events.Resumed) -> None:
    """Somebody says: go on."""
    draft.state.last_activity_at = event.now
    if draft.state.pause is None:
        draft.counters.resume_count += 1
    else:
        resume(draft, event.actor, event.reason)


def resume(draft: Draft, actor: str, reason: str | None) -> None:
    """The run is paused no longer."""
    draft.state.pause = None
    draft.counters.resume_count += 1
    draft.tell("run.resumed", actor=actor, reason=reason)


def stop_for_now(draft: Draft, reason: Literal["pause", "rotation"]) -> None:
    """Stop the code that runs, to begin again later. A finally node is waited for, and so is a call that
    may run only once.
    """
    for visit in list(draft.state.in_phase(Phase.RUNNING)):
        is_once = visit.call is not None and visit.call.once
        if not visit.stopping and not visit.is_finally and not is_once:
            draft.want(StopNode(visit=visit.address, reason=reason))
            draft.visit(visit.address).stopping = True
