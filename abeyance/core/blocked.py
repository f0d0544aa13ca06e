"""Blocked visits: their code cannot run until a deploy or an operator fixes something.

A blocked visit is not a failure, and uses up no retries. Its driver tries again with a growing pause, and
at once when a worker starts. The run only remembers why, and since when.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from abeyance.core import events, lifecycle
from abeyance.core.step import Step
from abeyance.core.visit import Blockage, Running, Visit

CANNOT_REPLAY_REMEDY: Final = (
    "deploy code that can replay the run, such as the version before the last deploy; or reset it to a "
    "workflow task before the fault (`temporal workflow reset`); or end it (`temporal workflow "
    "terminate`)"
)


def unpinned_target(node: str, target: str, *, is_decided: bool = False) -> str:
    """Return the message about a target that today's code has and the graph of the run lacks.

    A node that returned it has finished, and `is_decided`: its code does not run again.
    """
    remedy = (
        "migrate the run" if is_decided else "deploy code that chooses another node, or migrate it"
    )
    return (
        f"{node!r} chose to go to {target!r}, which the version of the graph that this run was started "
        f"with does not have: {remedy}"
    )


def report(step: Step, event: events.VisitBlocked) -> None:
    """Record what the worker of a running visit reports: why it is blocked, or that it is not.

    The journal is kept, because a visit that is stopped between two attempts can no longer give it.
    """
    visit = step.run.visits.get(event.visit)
    if visit is None or not isinstance(visit.state, Running):
        return
    if event.journal:
        journal = {**event.journal, **(visit.checkpoint.journal or {})}
        visit.checkpoint = replace(visit.checkpoint, journal=journal)
    if event.code is None:
        unblock(step, visit)
    else:
        block(step, visit, event.code, event.message, is_unread=event.is_unread)
        if step.run.pause is not None:
            lifecycle.stop_for_now(step, "pause", lambda each: each is visit)


def block(step: Step, visit: Visit, code: str, message: str, *, is_unread: bool = False) -> None:
    """Record why a visit is blocked, and publish it unless the reason is known."""
    before = visit.blocked
    since = before.since if before is not None and before.code == code else step.now
    visit.blocked = Blockage(code=code, message=message, since=since, is_unread=is_unread)
    step.run.visits.moved(visit.address)
    if before is None or before.code != code:
        step.publish("node.blocked", visit.address, code=code, message=message)


def unblock(step: Step, visit: Visit) -> None:
    """Record that a visit is not blocked, and publish it if it was."""
    if visit.blocked is not None:
        step.publish("node.unblocked", visit.address, code=visit.blocked.code)
        visit.blocked = None
        step.run.visits.moved(visit.address)


def try_again(step: Step) -> None:
    """Stop the attempts at blocked visits, so that new ones begin without a pause.

    A visit that its worker could not read is not stopped: its journal is in its heartbeat alone, and
    would be lost with it. What is not stopped, the worker that starts has Temporal try again
    (`abeyance.client.waking`).
    """
    lifecycle.stop_for_now(
        step,
        "worker-started",
        lambda visit: visit.blocked is not None and not visit.blocked.is_unread,
    )
