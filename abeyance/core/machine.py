"""The entry point of the core: `advance(run, event) -> effects`.

*Total.* Every event either changes the run or raises a `Refusal`, which leaves it unchanged.
Requests of people may be refused; controls without effect are absorbed; results of our own effects are
never refused, and absorbed if they come late. `check` only refuses: Temporal's update validator calls
it, so a refused request adds nothing to the history.

*Order.* First everything that is due by the event's time is carried out, then the event itself, then
everything that follows, until nothing moves: ready visits start (`schedule`), finished visits are
routed (`visits`), a graph with nothing left in it completes or its joins starve (`branches`), an ending
takes its next step.

*Deadlines.* A deadline has passed when `now >= deadline`, by the time of the event, so an answer at or
after its deadline is late even if the timer has not fired because no worker was up. Deadlines are
absolute; a pause does not extend them.

*Continue-as-new.* A run continues in a new execution when none of its code runs (`may_rotate`). The new
one starts from the snapshot with `Restored`, which starts what was held back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from abeyance.core import (
    answering,
    approvals,
    asking,
    branches,
    budgets,
    deadlines,
    edits,
    events,
    four_eyes,
    gates,
    idempotency,
    interrupts,
    lifecycle,
    messages,
    migration,
    replies,
    routing,
    schedule,
    visits,
)
from abeyance.core.effects import Effect, Finish
from abeyance.core.json import Json, sha256, size, why_not_json
from abeyance.core.ledger import Interrupt, Vote
from abeyance.core.outcome import (
    AttemptFailed,
    Blocked,
    Failed,
    Finished,
    Interrupted,
    Misread,
    Stopped,
    has_begun,
)
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import Default, GoTo, GraphSpec, Halt
from abeyance.core.state import (
    Ending,
    Limits,
    Pause,
    Resumption,
    RunState,
    Scope,
    ScopeTable,
    Status,
    copied,
)
from abeyance.core.step import Step
from abeyance.core.visit import Failure, Ready, Running, Visit
from abeyance.errors import BlockedCode, Code, Refusal


def new_run(
    *,
    run_id: str,
    spec: GraphSpec,
    limits: Limits,
    values: Mapping[str, Json],
    now: datetime,
    salt: str = "",
    started_by: str | None = None,
) -> RunState:
    """Create a run before its first event, which must be `Started`. The spec must be valid.

    Raises the Refusal `invalid_input` if the values are not JSON.
    """
    if (fault := why_not_json(values)) is not None:
        raise Refusal(Code.INVALID_INPUT, f"The input of the run is not JSON: {fault}.")
    address = f"graph:{spec.name}"
    return RunState(
        run_id=run_id,
        spec=spec,
        limits=limits,
        created_at=now,
        updated_at=now,
        last_activity_at=now,
        scopes=ScopeTable({address: Scope(address=address, values=values, size=size(values))}),
        salt=salt,
        starters=() if started_by is None else (started_by,),
    )


def check(state: RunState, event: events.Event) -> None:
    """Raise the Refusal that `advance` would raise. Changes nothing."""
    if _is_due(state, event.now):
        state = copied(state)
        _advance(state, events.Ticked(now=event.now))
    _refuse(state, event)


def advance(state: RunState, event: events.Event) -> tuple[Effect, ...]:
    """Change a run by an event, and return the effects. Raises Refusal; the run is then unchanged."""
    if isinstance(event, events.TaskBegan) and _has_nothing_due(state, event.now):
        state.task_bytes = 0
        return ()
    due: list[Effect] = []
    if isinstance(event, events.Keyed | events.MessageSent):
        check(state, event)
        if _is_due(state, event.now):
            # Its consequences come first too, as if a workflow task had begun before the event.
            due = _advance(state, events.Ticked(now=event.now))
    return (*due, *_advance(state, event))


def _advance(state: RunState, event: events.Event) -> list[Effect]:
    is_over = state.finished
    # A run that was retried may begin by waiting.
    was = None if state.resumption is not None else state.status
    step = Step(state, event.now, is_put_together=isinstance(event, events.Restored))
    _apply_due(step)
    if not is_over:
        _apply(step, event)
        _run_to_quiescence(step)
        if state.status is Status.AWAITING_INPUT is not was:
            step.publish("run.awaiting_input", open=len(state.ledger.open))
        if step.effects or not isinstance(event, events.Ticked | events.TaskBegan):
            state.updated_at = event.now
    elif isinstance(event, events.MessageSent) and event.signalled:
        # A finished run ignores everything but a late message, which is recorded.
        messages.sent(step, event)
    elif isinstance(event, events.VisitEnded):
        _keep_for_retry(step, event)
    return step.effects


def _is_due(state: RunState, now: datetime) -> bool:
    due = state.next_deadline()
    return due is not None and due <= now


def _has_nothing_due(state: RunState, now: datetime) -> bool:
    """Return whether nothing is due, and nothing was held back because a task had no room for it."""
    return not (state.finished or state.yielding or _is_due(state, now))


def may_rotate(state: RunState) -> bool:
    """Return whether the run can continue as new: its history is long and none of its code runs."""
    return state.rotation is not None and not state.finished and state.is_at_rest


def is_idle(state: RunState) -> bool:
    """Return whether the run waits for people or for a time alone: none of its code runs or is to."""
    return state.ending is None and not state.yielding and state.is_at_rest


def _refuse(state: RunState, event: events.Event) -> None:
    if idempotency.earlier(state.keys, event) is not None:
        return
    match event:
        case events.Responded():
            replies.check_answers(state.ledger, event)
            four_eyes.refuse_both(state, event)
            approvals.refuse(state, event)
            asking.refuse_changes(state, event)
            schedule.refuse_large_answers(state, event)
        case events.Paused(on_timeout=GoTo(node=node)):
            lifecycle.refuse_pause_target(state, event, node)
        case events.MessageSent(signalled=False):
            messages.refuse(state, event.message)
        case events.ValuesEdited():
            edits.refuse_values(state, event)
            schedule.refuse_large_patch(state, event.taken)
        case events.DeadlineEdited():
            edits.refuse_deadline(state, event)
        case events.TakenBack():
            answering.refuse_take_back(state, event)
        case events.Claimed() | events.Released() | events.Reassigned():
            edits.refuse_claims(state, event)
        case events.Migrated():
            edits.refuse_ended(state, "it cannot be migrated")
            migration.refuse_event(state, event)
            schedule.refuse_large_patch(state, event.patch)
        case _:
            pass


def _apply(step: Step, event: events.Event) -> None:
    if idempotency.earlier(step.run.keys, event) is not None:
        return
    idempotency.remember(step, event)
    match event:
        case events.Started(edit=edit):
            # A second start would walk the graph twice.
            if not step.run.counters.visits and step.run.ending is None:
                if edit is not None:
                    edits.edit_values(step, edit)
                branches.start_scope(step, step.run.root.address)
        case events.Restored():
            step.run.rotation, step.run.task_bytes, step.run.yielding = None, 0, False
            gates.forget_unused(step)
            if step.run.resumption is not None:
                _resume(step, step.run.resumption)
        case events.Ticked():
            pass
        case events.TaskBegan():
            step.run.task_bytes, step.run.yielding = 0, False
        case events.RotationDue():
            lifecycle.rotation_due(step, "hard" if event.hard else "soft")
        case events.VisitEnded():
            _visit_ended(step, event)
        case events.VisitBlocked():
            lifecycle.report_blocked(step, event)
        case events.WorkerStarted():
            lifecycle.try_again(step)
        case events.Evicted():
            lifecycle.evict(step, event)
        case events.MessageSent():
            messages.sent(step, event)
        case events.MessagesTaken():
            messages.taken(step, event)
        case events.SignalRefused(signal=signal, code=code, reason=reason):
            step.publish("signal.refused", signal=signal, code=code, reason=reason)
        case events.NotificationFailed():
            step.publish(
                "notification.failed",
                event=event.about,
                receiver=event.receiver,
                reason=event.reason,
                attempts=event.attempts,
                id=event.interrupt,
            )
        case _:
            _apply_request(step, event)


def _apply_request(step: Step, event: events.Keyed) -> None:
    match event:
        case events.Responded():
            answering.responded(step, event)
        case events.Paused():
            lifecycle.paused(step, event)
        case events.Resumed():
            lifecycle.resumed(step, event)
        case events.CancelRequested():
            lifecycle.cancel_requested(step, event)
        case events.MessagesCleared():
            messages.cleared(step, event)
        case events.ValuesEdited():
            edits.edit_values(step, event)
        case events.DeadlineEdited():
            edits.edit_deadline(step, event)
        case events.TakenBack():
            answering.take_back(step, event)
        case events.Claimed():
            edits.claim(step, event)
        case events.Released():
            edits.release(step, event)
        case events.Reassigned():
            edits.reassign(step, event)
        case events.Migrated():
            migration.migrated(step, event)
        case _:
            assert_never(event)


def _resume(step: Step, resumption: Resumption) -> None:
    """Complete a retry: publish its facts, and end the code that ran in the run before."""
    step.run.resumption = None
    step.effects[:0] = resumption.facts
    for visit, outcome in resumption.outcomes.items():
        _visit_ended(step, events.VisitEnded(now=step.now, visit=visit, outcome=outcome))
    if not step.run.visits and not step.run.counters.visits:
        branches.start_scope(step, step.run.root.address)


def _visit_ended(step: Step, event: events.VisitEnded) -> None:
    visit = step.run.visits.get(event.visit)
    _keep_for_retry(step, event)
    if visit is None or not isinstance(running := visit.state, Running):
        return
    step.run.last_activity_at = event.now
    outcome, ending = event.outcome, step.run.ending
    budgets.charge(step, visit, outcome, event.worked)
    if not isinstance(outcome, Stopped | Blocked):
        lifecycle.unblock(step, visit)
    if has_begun(outcome):
        gates.use_up(step, visit, running)
    elif ending is None:
        gates.undo_begin(step, visit)
    match outcome:
        case Finished() as finished if visit.routing is not None:
            visits.routes_chosen(step, visit, visit.routing, finished)
        case Finished() as finished:
            messages.give_back(step, visit, finished)
            visits.finish(step, visit, finished, is_routed=True)
        case Interrupted() as interrupted:
            asking.interrupted(step, visit, running, interrupted)
        case Stopped() | AttemptFailed() | Blocked() as unfinished:
            _left_to_run_again(step, visit, running, unfinished)
        case Misread(faults=faults):
            _misread(step, visit, running, faults)
        case Failed(code=code, message=message, journal=journal, fatal=fatal, patch=changes):
            visit.checkpoint = visit.checkpoint.after_failure(journal, changes)
            if not budgets.fail_stopped(step, visit, running):
                routing.fail(step, visit, Failure(code=code, message=message), fatal=fatal)
        case _:
            assert_never(outcome)


def _keep_for_retry(step: Step, event: events.VisitEnded) -> None:
    """Keep the outcome of code that still ran when the run ended, even if nobody awaits it any more."""
    ending = step.run.ending
    if ending is None or ending.before is None:
        return
    ran = ending.before.visits.get(event.visit)
    if ran is not None and isinstance(ran.state, Running) and ran.address not in ending.outcomes:
        outcomes = {**ending.outcomes, ran.address: event.outcome}
        step.run.ending = replace(ending, outcomes=outcomes)


def _misread(step: Step, visit: Visit, running: Running, faults: Mapping[str, str]) -> None:
    """Ask again for an answer that code cannot read. The visit is blocked if there is none."""
    filled = gates.answered(step.run, visit)
    field = next((name for name in faults if name in filled), None)
    if field is None or step.run.ending is not None:
        why = "; ".join(faults.values())
        blocked_by = Blocked(code=BlockedCode.VALUES_INCOMPATIBLE, message=why)
        _left_to_run_again(step, visit, running, blocked_by)
        return
    step.move(visit, "stopped", Ready(stage=running.stage))
    branches.ask_again(step, filled[field], before=visit.address, misfit=faults[field])


def _left_to_run_again(
    step: Step, visit: Visit, running: Running, left: Stopped | AttemptFailed | Blocked
) -> None:
    waits = visit.is_finally and not isinstance(left, Stopped)
    if (under_way := step.run.ending) is not None and not waits:
        if isinstance(left, Stopped) and not left.begun:
            messages.report_unread(step, visit, under_way.outcome)
        # Its changes so far are part of the run's result.
        if all(visits.merge(step, visit, each) for each in (visit.checkpoint.patch, left.patch)):
            step.drop_visit(visit.address)
        return
    # Code that was stopped before it began has no journal, and must not erase the last one.
    if left.journal is not None:
        visit.checkpoint = replace(visit.checkpoint, journal=left.journal)
    match left:
        case Stopped(attempts=attempts):
            if attempts is not None:
                visit.checkpoint = replace(visit.checkpoint, attempts=attempts.as_of(step.now))
            step.move(visit, "stopped", Ready(stage=running.stage))
        case AttemptFailed(message=message, attempts=attempts, patch=changes, pause=pause):
            changes = changes or visit.checkpoint.patch
            visit.checkpoint = replace(
                visit.checkpoint, attempts=attempts.as_of(step.now), patch=changes
            )
            due = step.after(pause)
            again = Ready(stage=running.stage, not_before=due, error=message)
            step.move(visit, "retry", again)
        case Blocked(code=code, message=message):
            step.move(visit, "stopped", Ready(stage=running.stage))
            lifecycle.block(step, visit, code, message)
        case _:
            assert_never(left)


def _run_to_quiescence(step: Step) -> None:
    """Let everything happen that follows, until nothing moves."""
    while schedule.start_ready(step) or _close(step):
        pass


def _close(step: Step) -> bool:
    state = step.run
    if state.ending is not None:
        return _end(step, state.ending)
    if step.has_left and branches.gather(step):
        return True
    if state.pause is not None:
        return False
    if branches.close_nested(step):
        return True
    if state.visits:
        return False
    if branches.release_starved(step, state.root):
        return True
    lifecycle.begin_ending(step, "completed", None)
    return True


def _end(step: Step, ending: Ending) -> bool:
    """Take the next step of an ending. Return whether there was one.

    First running code is awaited, then the `finally` nodes run one after another in the order of their
    declaration, then the run is finished. A failed finally node is recorded as a secondary error.
    """
    if step.run.finished or step.run.visits:
        return False
    if ending.finally_pending:
        node, *left = ending.finally_pending
        step.run.ending = replace(ending, finally_pending=tuple(left), grace_until=None)
        routing.enter(step, step.run.root.address, node, is_finally=True)
        return True
    step.run.ending = replace(ending, grace_until=None)
    step.run.finished = True
    step.emit(Finish())
    return True


def _apply_due(step: Step) -> None:
    """Carry out everything that is due by now, the earliest first."""
    messages.expire(step)
    while (due := step.run.first_pause()) is not None and due[1] <= step.now:
        visit = step.run.visits[due[0]]
        assert isinstance(visit.state, Ready)  # noqa: S101 only such a visit has a pause
        step.move(visit, "proceed", Ready(stage=visit.state.stage))
    while (first := step.run.first_deadline()) is not None and first[0] <= step.now:
        match first[1]:
            case Interrupt(held_until=None, notice_at=datetime()) as interrupt:
                deadlines.publish_due(step, interrupt)
            case Interrupt() as interrupt:
                _interrupt_is_due(step, interrupt)
            case Pause() as pause:
                lifecycle.pause_is_due(step, pause)
            case Ending() as ending:
                # Running code is no longer awaited.
                step.run.ending = replace(ending, grace_until=None)
                lifecycle.stop_running(step, abandon=True)
            case _:
                assert_never(first[1])


def _interrupt_is_due(step: Step, interrupt: Interrupt) -> None:
    if interrupt.status == "held":
        answering.end_hold(step, interrupt)
        return
    match interrupt.on_timeout:
        case Halt():
            step.keep()
            interrupts.expire(step, interrupt)
            lifecycle.begin_ending(step, "halted", "interrupt-timeout", actor=TIMEOUT)
        case GoTo(node=node):
            interrupts.expire(step, interrupt)
            visit = step.run.visits[interrupt.visit]
            reason = f"the deadline of {interrupt.name!r} left this visit"
            routing.leave_unit(step, visit, reason, by=TIMEOUT)
            if visit.call is None:
                routing.go_instead(step, visit, node)
            else:
                # A call cannot go to another node: it ends, with a result.
                routing.end_call(step, visit, {"unanswered": interrupt.name})
        case Default(answer=answer):
            given = Vote(by=TIMEOUT, at=step.now, answer=answer, answer_sha256=sha256(answer))
            interrupts.answer(step, interrupt, given)
        case _:
            assert_never(interrupt.on_timeout)
