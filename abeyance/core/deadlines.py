"""What happens when time has passed.

A deadline has passed when `now >= deadline`, by the time of whatever event is looked at, whoever
noticed first. So every event applies the deadlines that are due before it does anything else: an
answer that is handled at or after the deadline is late, also when the timer itself has not been seen
yet because a worker was away. Deadlines are absolute; a pause does not stretch them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from abeyance.core import agent_memory, interrupts, lifecycle, messages, routing
from abeyance.core.effects import StopNode
from abeyance.core.ledger import Interrupt
from abeyance.core.policy import TIMEOUT
from abeyance.core.spec import Default, GoTo, Halt, ResumeRun
from abeyance.core.state import Ending, Pause, Phase
from abeyance.core.working_state import WorkingState


def apply_due(draft: WorkingState) -> None:
    """Carry out everything that is due by now, the earliest first."""
    messages.expire(draft)
    while (due := _first_due(draft)) is not None:
        match due:
            case Interrupt():
                _interrupt_is_due(draft, due)
            case Pause():
                _pause_is_due(draft, due)
            case Ending():
                _grace_is_over(draft, due)
            case _:
                assert_never(due)


def _first_due(draft: WorkingState) -> Interrupt | Pause | Ending | None:
    first = draft.state.first_deadline()
    return None if first is None or first[0] > draft.now else first[1]


def _interrupt_is_due(draft: WorkingState, interrupt: Interrupt) -> None:
    match interrupt.on_timeout:
        case Halt():
            interrupts.expire(draft, interrupt)
            lifecycle.begin_ending(draft, "halted", "interrupt-timeout", actor=TIMEOUT)
        case GoTo(node=node):
            interrupts.expire(draft, interrupt)
            visit = draft.visit(interrupt.visit)
            reason = f"the deadline of {interrupt.name!r} left this visit"
            if visit.call is not None:
                # It has no other way than out of its call, and that has a result all the same.
                routing.end_call(draft, visit, {"unanswered": interrupt.name}, reason, by=TIMEOUT)
                return
            routing.leave_unit(draft, visit, reason, by=TIMEOUT)
            routing.go_instead(draft, visit, node)
        case Default(answer=answer):
            interrupts.answer(draft, interrupt, answer, TIMEOUT)
        case _:
            assert_never(interrupt.on_timeout)


def _pause_is_due(draft: WorkingState, pause: Pause) -> None:
    match pause.on_timeout:
        case ResumeRun():
            lifecycle.resume(draft, TIMEOUT, "the pause's deadline passed")
        case Halt():
            lifecycle.begin_ending(draft, "halted", "pause-timeout", actor=TIMEOUT)
        case GoTo(node=node):
            _withdraw_everything(draft)
            lifecycle.resume(draft, TIMEOUT, f"the pause's deadline passed: going to {node!r}")
            routing.go(draft, draft.state.root.address, node)
        case _:
            assert_never(pause.on_timeout)


def _grace_is_over(draft: WorkingState, under_way: Ending) -> None:
    """Whatever still runs is left to itself."""
    draft.state.ending = replace(under_way, grace_until=None)
    lifecycle.stop_running(draft, abandon=True)


def _withdraw_everything(draft: WorkingState) -> None:
    interrupts.withdraw(
        draft,
        draft.state.ledger.open.values(),
        "the pause's deadline left every branch",
        by=TIMEOUT,
    )
    for visit in list(draft.state.in_phase(Phase.RUNNING)):
        draft.emit(StopNode(visit=visit.address, reason="ending", abandon=True))
    root = draft.scope(draft.state.root.address)
    root.tokens, root.fans = {}, {}
    for scope in reversed(list(draft.state.scopes.values())):
        if scope.visit is not None:
            agent_memory.keep(draft, draft.state.visits[scope.visit], scope)
            draft.drop_scope(scope.address)
    draft.visits.clear()
