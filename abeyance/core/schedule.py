"""Which of the ready visits may start, and what starting one means.

A visit that may start does so at once, in the order in which it became ready, unless the run is
paused, ending or about to rotate, `max_parallel_visits` run already, or the workflow task has sent all
that one task may send. It then stays ready, and is looked at again after every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from abeyance.core import flow, gate, leaving, patch
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
    # Counted once: hundreds of visits may be ready, and each would count hundreds.
    running = sum(1 for _ in draft.state.in_phase(Phase.RUNNING))
    for visit in list(draft.state.in_phase(Phase.READY)):
        state = draft.state
        # Starting one may end the run: the others are then held, and gone.
        if not _is_held(state, visit, running):
            has_place = running < state.limits.max_parallel_visits and not state.yielding
            moved = _start(draft, visit, has_place=has_place) or moved
            after = draft.state.visits.get(visit.address)
            running += after is not None and after.phase is Phase.RUNNING
    return moved


def _is_held(state: RunState, visit: Visit, running: int) -> bool:
    if state.rotation == "hard" or (state.rotation == "soft" and not running):
        return True
    return not visit.is_finally and (state.pause is not None or state.ending is not None)


def _start(draft: Draft, visit: Visit, *, has_place: bool) -> bool:
    if visit.way is not None:
        leaving.go_on(draft, visit, visit.way)
        return True
    spec = draft.state.spec
    match spec.nodes[visit.node]:
        case FunctionNode() as node:
            return has_place and _run(draft, visit, node)
        case InterruptNode(question=question) if question.name not in visit.answers:
            gate.open_question(draft, visit, question)
            return True
        case InterruptNode(question=question, answer_to=field) as node:
            changes = {} if field is None else {field: visit.answers[question.name]}
            if not spec.routes_from(node.id):
                leaving.finish(draft, visit, changes)
                return True
            return has_place and _decide(draft, visit, node, changes)
        case unknown:
            assert_never(unknown)


def _run(draft: Draft, visit: Visit, node: FunctionNode) -> bool:
    scope = draft.state.scopes[visit.scope]
    if not _has_room(draft, scope.size + size(scope.answers) + size(visit.journal)):
        return False
    started = replace(visit, phase=Phase.RUNNING, started_at=draft.now, starts=visit.starts + 1)
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


def _decide(draft: Draft, visit: Visit, node: InterruptNode, changes: Mapping[str, Json]) -> bool:
    scope = draft.state.scopes[visit.scope]
    values = scope.values
    # A route looks at the values with the answer in them, so the answer is merged before it is
    # asked: once, also where the asking was stopped and begins anew.
    if changes and not visit.starts:
        try:
            values = patch.merged(draft.state.spec, values, changes)
        except patch.PatchError as error:
            flow.fail(draft, visit, Failure(code=FailureCode.INVALID_PATCH, message=str(error)))
            return True
    if not _has_room(draft, size(values) + size(scope.answers)):
        return False
    if values is not scope.values:
        flow.put_values(draft, visit.scope, values)
    draft.put_visit(replace(visit, phase=Phase.RUNNING, starts=visit.starts + 1))
    draft.want(DecideRoutes(visit=visit.address, node=node, values=values, answers=scope.answers))
    return True


def _has_room(draft: Draft, bytes_: int) -> bool:
    state = draft.state
    after = state.task_bytes + bytes_ + _ORDER_BYTES
    # The first order of a task always goes, or values above the bound would never be sent.
    if state.task_bytes and after > state.limits.task_bytes:
        draft.change(yielding=True)
        draft.want(Yield())
        return False
    draft.change(task_bytes=after)
    return True
