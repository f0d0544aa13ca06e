"""Which of the ready visits may start, and what starting one means.

A visit that may start does so at once, in the order in which it became ready, unless the run is
paused, ending or about to rotate, `max_parallel_visits` run already, or the workflow task has sent all
that one task may send. It then stays ready, and is looked at again after every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from abeyance.core import flow, gate, patch
from abeyance.core.canonical import Json, size
from abeyance.core.draft import Draft
from abeyance.core.effects import DecideRoutes, RunNode, Yield
from abeyance.core.model import FunctionNode, InterruptNode
from abeyance.core.state import Failure, Phase, RunState, Visit
from abeyance.errors import FailureCode

_ORDER_BYTES = 2_000
"""What an order to run a visit takes beside the values, answers and journal that it carries."""


def start_ready(draft: Draft) -> bool:
    """Start what may start, in order. True if something did that may have made more ready."""
    moved = False
    for visit in list(draft.state.in_phase(Phase.READY)):
        if draft.state.visits.get(visit.address) is visit and not _is_held(draft.state, visit):
            moved = _start(draft, visit) or moved
    return moved


def _is_held(state: RunState, visit: Visit) -> bool:
    if state.rotation == "hard":
        return True
    if state.rotation == "soft" and not any(state.in_phase(Phase.RUNNING)):
        return True
    return not visit.is_finally and (state.pause is not None or state.ending is not None)


def _start(draft: Draft, visit: Visit) -> bool:
    spec = draft.state.spec
    match spec.nodes[visit.node]:
        case FunctionNode() as node:
            return _run(draft, visit, node)
        case InterruptNode(question=question) if question.name not in visit.answers:
            gate.open_question(draft, visit, question)
            return True
        case InterruptNode(question=question, answer_to=field) as node:
            changes = {} if field is None else {field: visit.answers[question.name]}
            if not spec.routes_from(node.id):
                flow.finish(draft, visit, changes)
                return True
            return _decide(draft, visit, node, changes)


def _run(draft: Draft, visit: Visit, node: FunctionNode) -> bool:
    scope = draft.state.scopes[visit.scope]
    if not _has_room(draft, scope.size + size(scope.answers) + size(visit.journal)):
        return False
    started = replace(
        visit, phase=Phase.RUNNING, started_at=draft.now, starts=visit.starts + 1, stopping=False
    )
    draft.put_visit(started)
    if visit.is_finally and node.timeout is None:
        node = replace(node, timeout=draft.state.limits.finally_timeout)
    draft.want(
        RunNode(
            visit=visit.address,
            node=node,
            start=started.starts,
            values=scope.values,
            answers=scope.answers,
            journal=visit.journal,
            outcome=None if draft.state.ending is None else draft.state.ending.outcome,
        )
    )
    return True


def _decide(
    draft: Draft, visit: Visit, node: InterruptNode, changes: Mapping[str, Json]
) -> bool:
    scope = draft.state.scopes[visit.scope]
    if not _has_room(draft, scope.size + size(scope.answers)):
        return False
    # The route looks at the values with the answer in them, so the answer is merged before it is asked.
    try:
        values = patch.merged(draft.state.spec, scope.values, changes)
    except patch.PatchError as error:
        flow.fail(draft, visit, Failure(code=FailureCode.INVALID_PATCH, message=str(error)))
        return True
    if changes:
        flow.put_values(draft, visit.scope, values)
    draft.put_visit(replace(visit, phase=Phase.RUNNING, starts=visit.starts + 1))
    draft.want(
        DecideRoutes(visit=visit.address, node=node, values=values, answers=scope.answers)
    )
    return True


def _has_room(draft: Draft, bytes_: int) -> bool:
    state = draft.state
    if sum(1 for _ in state.in_phase(Phase.RUNNING)) >= state.limits.max_parallel_visits:
        return False
    after = state.task_bytes + bytes_ + _ORDER_BYTES
    # The first order of a task always goes, or values above the bound would never be sent.
    if state.task_bytes and after > state.limits.task_bytes:
        if not state.yielding:
            draft.change(yielding=True)
            draft.want(Yield())
        return False
    draft.change(task_bytes=after)
    return True
