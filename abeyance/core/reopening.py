"""Asking a gate again: everything that its answer led to is left, as if it had not been given."""

from __future__ import annotations

from dataclasses import replace

from abeyance.core import interrupts, items, routing
from abeyance.core.json import Json
from abeyance.core.step import Step
from abeyance.core.visit import BY_BRANCH, BY_SCOPE, IN_SCOPE, Gate


def ask_again(step: Step, gate: Gate, *, before: str, misfit: str | None = None) -> None:
    """Ask a gate again, because what it showed has changed, or because code cannot read the answer, which
    `misfit` explains. `before` is the address of what was about to begin, or to be over.
    """
    why = "its values have changed since it was answered"
    if misfit is not None:
        why = f"the answer cannot be read any more: {misfit}"
    about: dict[str, Json] = {} if misfit is None else {"reason": why}
    step.publish("interrupt.reopened", gate.visit, node=gate.node, before=before, **about)
    _retrace(step, gate, f"{gate.node!r} is asked again: {why}")
    route = gate.routing
    again = routing.enter(
        step,
        gate.scope,
        gate.node,
        members=gate.members,
        behind=gate.before,
        # Its code has run; only the rule asks again.
        routed=None if route is None else replace(route, is_stale=True),
    )
    if misfit is not None:
        again.misfits = {gate.key: misfit}


def _retrace(step: Step, gate: Gate, reason: str) -> None:
    scope, id_ = step.run.scopes[gate.scope], gate.question
    fans = [key for key, fan in scope.fans.items() if key == gate.visit or id_ in fan.gates]
    for visit in step.run.visits.found(BY_SCOPE, scope.address):
        if id_ in visit.gates:
            routing.leave_unit(step, visit, reason)
    for key in fans:
        _abandon(step, scope.address, key, reason)
    for member in gate.members[-1:]:
        # The item may reach other joins now.
        items.item_of(step.run, scope.address, member).joins_reached = ()
    for each in step.run.gates.found(IN_SCOPE, scope.address):
        is_left = any(member.fan in fans for member in each.members)
        if is_left or each.question == id_ or id_ in each.before:
            del step.run.gates[each.question]
            if not each.begun:
                # What has begun was decided by its answer, whatever follows.
                interrupts.void(step, each.question)
        elif left := [t for t in each.taken if t in gate.taken or id_ in t.token.gates]:
            taken = tuple(token for token in each.taken if token not in left)
            step.run.gates[each.question] = replace(each, taken=taken)
    routing.take_tokens_back(step, gate)


def _abandon(step: Step, scope: str, address: str, reason: str) -> None:
    """Leave a fan-out with everything that is under way in it."""
    for visit in step.run.visits.found(BY_BRANCH, address):
        routing.leave_unit(step, visit, reason)
    around = step.run.scopes[scope]
    fans = {
        key: fan
        for key, fan in around.fans.items()
        if address not in (key, *(each.fan for each in fan.outer))
    }
    step.put_fans(around, fans)
