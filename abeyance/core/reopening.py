"""Asking a gate again: everything that its answer led to is left, as if it had not been given."""

from __future__ import annotations

from dataclasses import replace

from abeyance.core import items, routing
from abeyance.core.visit import BY_BRANCH, BY_SCOPE, IN_SCOPE, Gate
from abeyance.core.working_state import WorkingState


def ask_again(draft: WorkingState, gate: Gate, *, before: str, misfit: str | None = None) -> None:
    """Ask a gate again, because what it showed has changed, or because code cannot read the answer, which
    `misfit` explains. `before` is the address of what was about to begin, or to be over.
    """
    why = "its values have changed since it was answered"
    if misfit is not None:
        why = f"the answer cannot be read any more: {misfit}"
    about = {} if misfit is None else {"reason": why}
    draft.publish("interrupt.reopened", gate.visit, node=gate.node, before=before, **about)
    _retrace(draft, gate, f"{gate.node!r} is asked again: {why}")
    route = gate.routing
    again = routing.enter(
        draft,
        gate.scope,
        gate.node,
        members=gate.members,
        behind=gate.before,
        # Its code has run; only the rule asks again.
        routed=None if route is None else replace(route, is_stale=True),
    )
    if again is not None and misfit is not None:
        again.misfits = {gate.key: misfit}


def _retrace(draft: WorkingState, gate: Gate, reason: str) -> None:
    scope, id_ = draft.state.scopes[gate.scope], gate.question
    fans = [key for key, fan in scope.fans.items() if key == gate.visit or id_ in fan.gates]
    for visit in draft.state.visits.found(BY_SCOPE, scope.address):
        if id_ in visit.gates:
            routing.leave_unit(draft, visit, reason)
    for key in fans:
        _abandon(draft, scope.address, key, reason)
    for member in gate.members[-1:]:
        # The item may reach other joins now.
        items.item_of(draft.state, scope.address, member).joins_reached = ()
    for each in draft.state.gates.found(IN_SCOPE, scope.address):
        is_left = any(member.fan in fans for member in each.members)
        if is_left or each.question == id_ or id_ in each.before:
            del draft.state.gates[each.question]
        elif left := [t for t in each.taken if t in gate.taken or id_ in t.token.gates]:
            taken = tuple(token for token in each.taken if token not in left)
            draft.state.gates[each.question] = replace(each, taken=taken)
    routing.take_tokens_back(draft, gate)


def _abandon(draft: WorkingState, scope: str, address: str, reason: str) -> None:
    """Leave a fan-out with everything that is under way in it."""
    for visit in draft.state.visits.found(BY_BRANCH, address):
        routing.leave_unit(draft, visit, reason)
    around = draft.state.scopes[scope]
    fans = {
        key: fan
        for key, fan in around.fans.items()
        if address not in (key, *(each.fan for each in fan.outer))
    }
    draft.put_fans(around, fans)
