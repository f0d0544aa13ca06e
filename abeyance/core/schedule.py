"""Which of the ready visits may start, and what starting one means.

A visit that may start does so at once, in the order in which it became ready, unless the run is
paused, ending or about to rotate, `max_parallel_visits` run already, or the workflow task has sent all
that one task may send. It then stays ready, and is looked at again after every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Final, assert_never

from abeyance.core import (
    approvals,
    asking,
    burden,
    fanout,
    flow,
    gate,
    items,
    leaving,
    looks,
    mailbox,
    messages,
    nesting,
    recourse,
)
from abeyance.core.canonical import Json, size
from abeyance.core.draft import Draft
from abeyance.core.effects import RunNode, VisitInput, Yield
from abeyance.core.model import FunctionNode, InterruptNode, SubgraphNode
from abeyance.core.outcome import Finished, key_of
from abeyance.core.state import Approval, Phase, RunState, Visit

_ORDER_BYTES = 2_000
"""What an order to run a visit takes beside the values, answers and journal that it carries."""


_ROUTE_RETRIES: Final = 3


def start_ready(draft: Draft) -> bool:
    """Start what may start, in order. True if something did that may have made more ready."""
    moved = False
    # Counted once: hundreds of visits may be ready, and each would count hundreds.
    running = sum(1 for _ in draft.state.in_phase(Phase.RUNNING))
    for visit in list(draft.state.in_phase(Phase.READY)):
        state = draft.state
        # Starting one may end the run, or a graph in it: the others are then held, or gone.
        if state.visits.get(visit.address) is visit and not _is_held(state, visit, running):
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
    match visit.stage:
        case "entered":
            visit = replace(visit, stage="body")
            if visit.node in draft.graph(visit.scope).interrupt_before and not visit.is_finally:
                looks.ask(draft, replace(visit, stage="before"))
                return True
        case "before":
            visit = replace(looks.passed(visit), stage="body")
            draft.put_visit(visit)
        case "error":
            return _recover(draft, visit)
        case "rules" if visit.way is not None and visit.way.is_stale:
            return has_place and _decide(draft, visit)
        case "after" | "rules":
            assert visit.way is not None  # noqa: S101 these stages come after the way is known
            leaving.go_on(draft, visit, visit.way)
            return True
        case "body":
            pass
        case _:
            assert_never(visit.stage)
    return _run_body(draft, visit, has_place=has_place)


def _run_body(draft: Draft, visit: Visit, *, has_place: bool) -> bool:
    if visit.call is not None and visit.returned is None:
        if visit.call.asked:
            asking.before(draft, visit, visit.call)
            return True
        if (refused := asking.refusal(draft.state, visit)) is not None:
            leaving.finish(draft, visit, Finished(result=refused, patch=visit.patch))
            return True
    node = draft.state.node_of(visit)
    runs_code = visit.returned is None and not isinstance(node, InterruptNode)
    if runs_code and (void := approvals.void(draft.state, visit)) is not None:
        _ask_again(draft, visit, void)
        return True
    match node:
        case _ if visit.returned is not None:
            return _go_out(draft, visit, visit.returned, has_place=has_place)
        case FunctionNode() as node:
            return has_place and _run(draft, visit, node)
        case InterruptNode(question=question) if question.name not in visit.answers:
            gate.open_question(draft, visit, question)
            return True
        case InterruptNode(question=question, answer_to=field):
            changes = {} if field is None else {field: visit.answers[question.name]}
            return _go_out(draft, visit, changes, has_place=has_place)
        case SubgraphNode() as node:
            nesting.begin(draft, visit, node)
            return True
        case unknown:
            assert_never(unknown)


def _recover(draft: Draft, visit: Visit) -> bool:
    key = key_of("error", recourse.NAME)
    answer = visit.answers[key]
    rest = {name: value for name, value in visit.answers.items() if name != key}
    visit = replace(visit, answers=rest, stage="body")
    match answer["action"]:
        case "retry" if visit.way is not None:
            # Its work is done, and only the way out of it was not found.
            leaving.seek_anew(draft, visit, visit.way)
        case "retry" if visit.returned is not None and not visit.returned:
            # The same, but what asks for the way is code of its own.
            draft.put_visit(visit)
        case "retry" if isinstance(draft.state.node_of(visit), SubgraphNode):
            # Its graph begins anew, and what is asked in it has to have ids of its own.
            draft.drop_visit(visit.address)
            covered = approvals.of_others(visit)
            flow.enter(draft, visit.scope, visit.node, members=visit.members, covered=covered)
        case "retry":
            draft.put_visit(replace(visit, returned=None))
        case "skip":
            for member in visit.members[-1:]:
                item = items.item_of(draft.state, visit.scope, member)
                items.put_item(draft, visit.scope, member, replace(item, skipped=True))
            draft.put_visit(replace(visit, returned=answer.get("patch", {}), way=None))
        case _:
            failure = visit.failure
            assert failure is not None  # noqa: S101 it is what the operator was asked about
            draft.drop_visit(visit.address)
            flow.fail_scope(draft, visit.scope, failure)
    return True


def _run(draft: Draft, visit: Visit, node: FunctionNode) -> bool:
    carried = burden.of(draft.state, visit)
    if node.reads_inbox and not visit.starts:
        carried += sum(map(mailbox.size_of, messages.for_visit(draft.state, visit)))
    if (failure := burden.failure(draft.state, visit, carried)) is not None:
        flow.fail(draft, visit, failure)
        return True
    if not _has_room(draft, carried):
        return False
    visit = approvals.begin(draft, visit)
    if node.reads_inbox and not visit.starts:
        visit = messages.read_at_start(draft, visit)
    started = replace(
        visit,
        phase=Phase.RUNNING,
        started_at=draft.now,
        starts=visit.starts + 1,
        given=tuple(visit.answers),
        approvals=approvals.renewed(visit),
        moment=_moment(draft.state, visit),
    )
    draft.put_visit(started)
    if visit.is_finally and node.timeout is None:
        node = replace(node, timeout=draft.state.limits.finally_timeout)
    item = None
    if visit.members:
        item = items.item_of(draft.state, visit.scope, visit.members[-1]).item
    visit_input = replace(
        _input(draft, started, burden.answers_of(draft.state, visit)),
        own=visit.answers,
        bound=_bound(started),
        asks=node.asks,
        start=started.starts,
        retries=node.retries,
        timeout=node.timeout,
        local=node.local,
        journal=visit.journal,
        saved=visit.saved,
        interrupted=visit.interrupted,
        item=item,
        results=visit.results,
        inbox=visit.inbox,
        guidance=visit.guidance,
        outcome=None if draft.state.ending is None else draft.state.ending.outcome,
        call=visit.call,
    )
    draft.want(RunNode(input=visit_input, heartbeat=node.heartbeat))
    return True


def _input(draft: Draft, visit: Visit, answers: Mapping[str, Json]) -> VisitInput:
    state, graph = draft.state, draft.graph(visit.scope)
    return VisitInput(
        run_id=state.run_id,
        root=state.spec.name,
        path=state.scopes[visit.scope].path,
        graph=graph.name,
        node=visit.node,
        address=visit.address,
        values=items.values_of(state, visit),
        answers=answers,
        # The run's own graph says which routes there are; today's code may have others.
        routes=tuple(route.name for route in graph.routes_from(visit.node)),
        # All rules, because what one asserts another may look at; none where no CLIPS is needed.
        rules=graph.rules_on(visit.node) if graph.has_clips_on(visit.node) else (),
    )


def _moment(state: RunState, visit: Visit) -> int:
    # Both only grow, so of two moments that are equal both are.
    return items.version_of(state, visit) + len(visit.taken)


def _bound(visit: Visit) -> Mapping[str, str]:
    """What the answered gates of a visit's own code showed, where it might show something else now."""
    if visit.call is not None:
        return {}
    gates = {each.key for each in visit.approvals if each.gate == visit.address}
    return {
        key: hash_
        for key, hash_ in visit.bound.items()
        if key in gates & {*visit.answers} and visit.bound_at[key] != visit.moment
    }


def _ask_again(draft: Draft, visit: Visit, void: Approval) -> None:
    """Do not begin a visit that differs from what its gate showed: leave all that the answer has led to,
    and ask at the gate again.
    """
    while visit.scope != void.scope:
        visit = draft.state.visits[str(draft.state.scopes[visit.scope].visit)]
    draft.tell("interrupt.reopened", void.gate, node=void.node, before=visit.address)
    reason = f"{void.node!r} is asked again: what it showed has changed since it was answered"
    fanout.retrace(draft, void, reason)
    kept = takewhile(lambda each: each.gate != void.gate, visit.approvals)
    again = flow.enter(draft, void.scope, void.node, members=void.members, covered=tuple(kept))
    if void.way is not None and again is not None:
        # Its code has run, and only the rule asks.
        leaving.seek_anew(draft, again, void.way)


def _go_out(draft: Draft, visit: Visit, changes: Mapping[str, Json], *, has_place: bool) -> bool:
    """Leave a node that ran no code: code that has to say where to is asked first."""
    graph = draft.graph(visit.scope)
    if not graph.routes_from(visit.node) and not graph.has_clips_on(visit.node):
        leaving.finish(draft, visit, Finished(patch=changes))
        return True
    if not has_place:
        return False
    # A route looks at the values with the answer in them, so the answer is merged before it is
    # asked: once, also where the asking was stopped and begins anew.
    if changes:
        kept = draft.state
        merged = leaving.merge(draft, visit, changes)
        if merged is None:
            return True
        if not _decide(draft, replace(merged, returned={})):
            draft.change(scopes=kept.scopes, visits=kept.visits)
            return False
        return True
    return _decide(draft, visit)


def _decide(draft: Draft, visit: Visit) -> bool:
    carried = [items.values_of(draft.state, visit), items.answers_of(draft.state, visit)]
    if not _has_room(draft, sum(map(size, carried))):
        return False
    draft.put_visit(replace(visit, phase=Phase.RUNNING, starts=visit.starts + 1))
    visit_input = _input(draft, visit, items.answers_of(draft.state, visit))
    visit_input = replace(visit_input, kind="routes", retries=_ROUTE_RETRIES, local=True)
    draft.want(RunNode(input=visit_input))
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
