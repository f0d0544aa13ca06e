"""Stopping a run or a visit: pauses, endings, evictions, and blocked visits.

*A pause* starts no new work until someone resumes the run or the pause's deadline passes. Running code
finishes, or is stopped and runs again after the pause; blocked code is stopped in any case.

*An ending*: the first reason decides the outcome; later ones are recorded as `secondary_errors`. From
then on no visit starts, no answer is accepted, unread messages are reported, and running code is
stopped: a graceful ending waits for it up to `grace`, an immediate one does not. `machine` takes the
run from here to its close.

*An eviction* halts an inactive run, or one whose place another run needs. The caller knows the last
activity only roughly, the run exactly: so an eviction for inactivity has `inactive_since`, and a run
that was active later continues.

*A blocked visit*: its code cannot run until a deploy or an operator fixes something. That is not a
failure, and uses up no retries. Its driver tries again with a growing pause, and at once when a worker
starts. The run only remembers why, and since when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, assert_never

from abeyance.core import interrupts, items, messages, policy, routing
from abeyance.core.effects import StopNode, StopReason
from abeyance.core.events import CancelMode, CancelRequested, Evicted, Paused, Resumed, VisitBlocked
from abeyance.core.items import PatchError
from abeyance.core.json import rfc3339
from abeyance.core.policy import TIMEOUT, Principal
from abeyance.core.spec import GoTo, Halt, ResumeRun
from abeyance.core.state import Ending, Outcome, Pause, Rotation, RunState
from abeyance.core.step import Step
from abeyance.core.visit import Blockage, Failure, Running, Visit
from abeyance.errors import Code, FailureCode, Refusal

EVICTED: Final = "evicted"
"""The reason of a run that was halted by eviction."""
CANNOT_REPLAY_REMEDY: Final = (
    "deploy code that can replay the run, such as the version before the last deploy; or reset it to a "
    "workflow task before the fault (`temporal workflow reset`); or end it (`temporal workflow "
    "terminate`)"
)


def refuse_pause_target(state: RunState, event: Paused, node: str) -> None:
    """Refuse a pause whose deadline leads to a node, if the run cannot go there or the actor may not
    decide that.
    """
    if state.ending is None:
        principal = Principal(subject=event.actor, capabilities=event.capabilities)
        policy.demand(state, principal, f"lead the run to {node!r}")
    targets = interrupts.ways_out(state, state.root.address)
    if node not in targets:
        raise Refusal(
            Code.UNKNOWN_NODE,
            f"The pause cannot go to {node!r} in {state.spec.name!r}: "
            f"use one of {', '.join(map(repr, targets))}.",
        )


def paused(step: Step, event: Paused) -> None:
    """Pause the run."""
    state = step.run
    # A repeat is counted too, and does nothing else.
    step.run.counters.pause_count += 1
    state.last_activity_at = event.now
    if state.pause is not None or state.ending is not None:
        return
    timeout = state.limits.pause_timeout if event.timeout is None else event.timeout
    deadline = None if timeout is None else step.after(timeout)
    state.pause = Pause(
        since=event.now,
        actor=event.actor,
        reason=event.reason,
        mode=event.mode,
        deadline=deadline,
        on_timeout=event.on_timeout,
    )
    step.publish(
        "run.paused",
        actor=event.actor,
        reason=event.reason,
        mode=event.mode,
        deadline=deadline and rfc3339(deadline),
    )
    stop_for_now(step, "pause", lambda visit: event.mode == "now" or visit.blocked is not None)


def resumed(step: Step, event: Resumed) -> None:
    """Resume the run, if it is paused."""
    step.run.last_activity_at = event.now
    if step.run.pause is None:
        step.run.counters.resume_count += 1
    else:
        resume(step, event.actor, event.reason)


def resume(step: Step, actor: str, reason: str | None) -> None:
    """End the pause."""
    step.run.pause = None
    step.run.counters.resume_count += 1
    step.publish("run.resumed", actor=actor, reason=reason)


def stop_for_now(
    step: Step, reason: StopReason, concerns: Callable[[Visit], bool] = lambda _: True
) -> None:
    """Stop the running code of these visits, to run it again later. Finally nodes and calls that may run
    only once are awaited.
    """
    for visit, running in step.run.running():
        is_awaited = visit.is_finally or (visit.call is not None and visit.call.once)
        if not (running.stopping or is_awaited) and concerns(visit):
            _stop(step, visit, running, reason)


def _stop(step: Step, visit: Visit, running: Running, reason: StopReason) -> None:
    step.emit(StopNode(visit=visit.address, reason=reason))
    step.move(visit, "stop", replace(running, stopping=True))


def begin_ending(
    step: Step,
    outcome: Outcome,
    reason: str | None,
    *,
    error: Failure | None = None,
    actor: str | None = None,
    mode: CancelMode = "graceful",
    grace: float | None = None,
    native: bool = False,
) -> None:
    """End the run; if it is ending already, record another reason.

    A retry begins with the run as it is now, or as `Step.keep` has kept it.
    """
    state, under_way = step.run, step.run.ending
    if under_way is not None:
        later = error or Failure(code=outcome, message=reason or outcome)
        state.ending = replace(under_way, secondary_errors=(*under_way.secondary_errors, later))
        return
    state.pause = None
    if native:
        # A cancel of Temporal's can be confirmed only in the execution that received it.
        state.rotation = None
    state.ending = Ending(
        outcome=outcome,
        reason=reason,
        since=step.now,
        actor=actor,
        error=error,
        mode=mode,
        grace_until=step.after(state.limits.grace if grace is None else grace),
        native=native,
        finally_pending=state.spec.finally_nodes,
        # Nothing is to be retried of a run that has done everything.
        before=None if outcome == "completed" else step.kept(),
    )
    interrupts.withdraw(step, state.ledger.open.values(), f"the run ended: {outcome}", by=actor)
    messages.report(step, state.mailbox.queue, outcome)
    for visit in list(state.visits.values()):
        if not isinstance(visit.state, Running):
            _merge_checkpoint(step, visit)
            step.drop_visit(visit.address)
    stop_running(step, abandon=mode == "now")


def _merge_checkpoint(step: Step, visit: Visit) -> None:
    """Merge what a visit had changed when it asked: it is part of the run's result."""
    try:
        items.put_patch(step, visit.scope, visit.members, visit.checkpoint.patch)
    except PatchError as error:
        failure = Failure(code=FailureCode.INVALID_PATCH, message=str(error), address=visit.address)
        begin_ending(step, "failed", failure.message, error=failure)


def stop_running(step: Step, *, abandon: bool) -> None:
    """Stop every running visit; with `abandon` the run does not wait for them."""
    for visit, running in step.run.running():
        if abandon:
            step.emit(StopNode(visit=visit.address, reason="ending", abandon=True))
            step.drop_visit(visit.address)
        elif not running.stopping:
            _stop(step, visit, running, "ending")


def leave_every_branch(step: Step) -> None:
    """Drop all that is under way, because the deadline of a pause leads elsewhere."""
    interrupts.withdraw(
        step,
        step.run.ledger.open.values(),
        "the pause's deadline left every branch",
        by=TIMEOUT,
    )
    stop_running(step, abandon=True)
    root = step.run.root
    root.tokens = {}
    step.put_fans(root, {})
    for scope in reversed(list(step.run.scopes.values())):
        if scope.visit is not None:
            items.keep_agent(step, step.run.visits[scope.visit], scope)
            step.drop_scope(scope.address)
    step.run.visits.clear()
    step.run.gates.clear()


def cancel_requested(step: Step, event: CancelRequested) -> None:
    """Cancel the run."""
    step.run.counters.cancel_count += 1
    step.run.last_activity_at = event.now
    under_way = step.run.ending
    if under_way is not None:
        _cancel_again(step, under_way, event.reason, event.mode)
        return
    begin_ending(
        step,
        "cancelled",
        event.reason,
        actor=event.actor,
        mode=event.mode,
        grace=event.grace,
        native=event.native,
    )


def _cancel_again(step: Step, under_way: Ending, reason: str | None, mode: CancelMode) -> None:
    """Record a cancel of a run that is ending. With `now`, stop waiting for running code.

    That includes finally nodes. If the outcome is another, the cancel is recorded once as a secondary
    error.
    """
    later = Failure(code="cancelled", message=reason or "cancelled")
    if under_way.outcome != "cancelled" and all(
        f.code != later.code for f in under_way.secondary_errors
    ):
        under_way = replace(under_way, secondary_errors=(*under_way.secondary_errors, later))
    if mode == "now":
        is_last = any(visit.is_finally for visit in step.run.visits.values())
        left = () if is_last else under_way.finally_pending
        under_way = replace(under_way, mode="now", finally_pending=left)
        stop_running(step, abandon=True)
    step.run.ending = under_way


def may_evict(state: RunState, event: Evicted) -> bool:
    """Return whether an eviction would halt the run: it is not ending and, if `inactive_since` is given,
    it is inactive since then and no open question has anything due.
    """
    if state.finished or state.ending is not None:
        return False
    if event.inactive_since is None:
        return True
    waits_until = any(entry.due is not None for entry in state.ledger.open.values())
    return state.last_activity_at <= event.inactive_since and not waits_until


def evict(step: Step, event: Evicted) -> None:
    """Halt the run if it may be evicted."""
    if may_evict(step.run, event):
        begin_ending(step, "halted", EVICTED, actor=event.actor)


def rotation_due(step: Step, rotation: Rotation) -> None:
    """Note that the run should continue as new; a hard rotation stops running visits."""
    under_way = step.run.ending
    if step.run.rotation in {rotation, "hard"} or (under_way and under_way.native):
        return
    step.run.rotation = rotation
    if rotation == "hard":
        stop_for_now(step, "rotation")


def pause_is_due(step: Step, pause: Pause) -> None:
    """Carry out what a pause says about its deadline, which has passed."""
    match pause.on_timeout:
        case ResumeRun():
            resume(step, TIMEOUT, "the pause's deadline passed")
        case Halt():
            begin_ending(step, "halted", "pause-timeout", actor=TIMEOUT)
        case GoTo(node=node):
            leave_every_branch(step)
            resume(step, TIMEOUT, f"the pause's deadline passed: going to {node!r}")
            routing.enter(step, step.run.root.address, node)
        case _:
            assert_never(pause.on_timeout)


def unpinned_target(node: str, target: str, *, is_decided: bool = False) -> str:
    """Return the message about a target that today's code has and the graph of the run lacks.

    A node that returned it has finished, and `is_decided`: its code does not run again.
    """
    remedy = (
        "migrate the run" if is_decided else "deploy code that chooses another node, or migrate it"
    )
    return (
        f"{node!r} chose to go to {target!r}, which the version of the graph that this run uses does "
        f"not have: {remedy}"
    )


def report_blocked(step: Step, event: VisitBlocked) -> None:
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
            stop_for_now(step, "pause", lambda each: each is visit)


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

    A visit that its worker could not read is not stopped: only its heartbeat has its journal, which would
    be lost. For such a visit the worker that starts asks Temporal to try again
    (`abeyance.client.waking`).
    """
    stop_for_now(
        step,
        "worker-started",
        lambda visit: visit.blocked is not None and not visit.blocked.is_unread,
    )
