"""Starting ready visits.

A ready visit starts at once, in the order in which visits became ready, unless the run is paused,
ending or about to continue as new, `max_parallel_visits` are running, or the workflow task has sent all
that one task may send. It then stays ready, and is looked at again after every event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from abeyance.core import (
    approvals,
    asking,
    branches,
    budgets,
    events,
    four_eyes,
    gates,
    interrupts,
    items,
    mailbox,
    messages,
    routing,
    visits,
)
from abeyance.core.bounds import RetryPolicy
from abeyance.core.effects import RunNode, VisitInput, Yield
from abeyance.core.json import Json, differing, size, size_of_all
from abeyance.core.ledger import Interrupt
from abeyance.core.outcome import Finished, key_of
from abeyance.core.spec import FunctionNode, InterruptNode, SubgraphNode
from abeyance.core.state import RunState
from abeyance.core.step import Step
from abeyance.core.visit import BY_STATE, Failure, Ready, Running, Visit
from abeyance.errors import Code, FailureCode, Refusal

_SHORTEST_TIMEOUT: Final = 0.1
"""In seconds, of a finally node's last attempt."""
_ORDER_BYTES = 2_000
"""Bytes of an input without its values, answers and journal."""


def start_ready(step: Step) -> bool:
    """Start the visits that may start, in order. Return whether that may have made more ready."""
    moved = False
    state = step.run
    if not state.visits.count(BY_STATE, Ready):
        return False
    # Counted once, not for each of the ready visits.
    running = state.visits.count(BY_STATE, Running)

    def has_place() -> bool:
        return running < state.limits.max_parallel_visits and not state.yielding

    for address in _to_look_at(step, running, has_place):
        visit = state.visits.get(address)
        # Starting one may end the run, or a graph in it.
        if visit is None or not isinstance(ready := visit.state, Ready):
            continue
        has_one = has_place()
        if _start(step, visit, ready, has_place=has_one):
            moved = True
        elif not has_one and isinstance(visit.state, Ready):
            step.move(visit, "proceed", replace(visit.state, queued=True))
        after = state.visits.get(address)
        running += after is not None and isinstance(after.state, Running)
    return moved


def _to_look_at(step: Step, running: int, has_place: Callable[[], bool]) -> Iterator[str]:
    """Yield the visits that may start, in order: those that wait for a place as long as there is one."""
    state, ready = step.run, step.run.visits
    is_rotating = state.rotation == "hard" or (state.rotation == "soft" and not running)
    if state.pause is not None or is_rotating:
        return
    addresses = (visit.address for visit in ready.found(BY_STATE, "to start"))
    to_start = deque(sorted((ready.number(address), address) for address in addresses))
    place = 0
    while has_place():
        queued = state.visits.after(BY_STATE, "queued", place)
        if queued is not None and (not to_start or queued[0] < to_start[0][0]):
            place, visit = queued
            yield visit.address
        elif to_start:
            yield to_start.popleft()[1]
        else:
            return
    yield from (address for _, address in to_start)


def _start(step: Step, visit: Visit, ready: Ready, *, has_place: bool) -> bool:
    route = visit.routing
    match ready.stage:
        case "entered":
            if not visit.is_finally and not routing.count(
                step, visit.scope, visit.node, visit.members, visit.address
            ):
                return True
            step.move(visit, "proceed", replace(ready, stage="body"))
            if (
                visit.node in step.run.graph_of(visit.scope).interrupt_before
                and not visit.is_finally
            ):
                asking.open_breakpoint(step, visit, "before")
                return True
        case "before":
            asking.drop_breakpoint_answer(visit, "before")
            step.move(visit, "proceed", Ready(stage="body"))
        case "body" if route is not None:
            # Its work is done; only its routing failed.
            visits.reroute(step, visit, route)
            return True
        case "body":
            pass
        case "error":
            return _recover(step, visit)
        case "after":
            assert route is not None  # noqa: S101 its code has ended
            asking.drop_breakpoint_answer(visit, "after")
            visits.route_on(step, visit, route)
            return True
        case "rules":
            assert route is not None  # noqa: S101 its code has ended
            if not route.is_stale:
                visits.rules_answered(step, visit, route)
                return True
            return has_place and _decide(step, visit)
        case _:
            assert_never(ready.stage)
    return _run_body(step, visit, has_place=has_place)


def _run_body(step: Step, visit: Visit, *, has_place: bool) -> bool:
    if visit.call is not None and visit.pending is None:
        if visit.call.interrupts:
            asking.ask_before_call(step, visit, visit.call)
            return True
        if (refused := approvals.result_in_place(step.run, visit)) is not None:
            finished = Finished(result=refused, patch=visit.checkpoint.patch)
            visits.finish(step, visit, finished, is_routed=False)
            return True
    node = step.run.node_of(visit)
    runs_code = visit.pending is None and not isinstance(node, InterruptNode)
    if runs_code and (changed := gates.first_changed(step.run, visit)) is not None:
        branches.ask_again(step, changed, before=visit.address)
        return True
    if runs_code and budgets.asks(step, visit):
        return True
    match node:
        case _ if visit.pending is not None:
            visits.finish(step, visit, visit.pending, is_routed=False)
            return True
        case FunctionNode() as node:
            return has_place and _run(step, visit, node)
        case InterruptNode(question=question) if question.name not in visit.questions.answers:
            if (fault := interrupts.fault_of(step, visit, question)) is not None:
                routing.fail(step, visit, fault)
            else:
                interrupts.open_question(step, visit, question)
            return True
        case InterruptNode(question=question, answer_to=field):
            answer = visit.questions.answers[question.name]
            finished = Finished(patch={} if field is None else {field: answer})
            visits.finish(step, visit, finished, is_routed=False)
            return True
        case SubgraphNode() if visit.failure is not None:
            # Its graph begins again as another visit, so that its questions get new ids.
            step.drop_visit(visit.address)
            known = gates.of_visit(step.run, visit)
            before = tuple(gate.question for gate in known if gate.visit != visit.address)
            routing.enter(step, visit.scope, visit.node, members=visit.members, behind=before)
            return True
        case SubgraphNode() as node:
            branches.begin_nested(step, visit, node)
            return True
        case unknown:
            assert_never(unknown)


def _recover(step: Step, visit: Visit) -> bool:
    key = key_of("error", asking.ERROR)
    answer = visit.questions.answers[key]
    visit.questions = visit.questions.without({key})
    step.move(visit, "proceed", Ready(stage="body"))
    match answer["action"]:
        case "retry":
            visit.pending = None
        case "skip":
            for member in visit.members[-1:]:
                items.item_of(step.run, visit.scope, member).skipped = True
            changes = answer.get("patch", {})
            visit.pending = replace(visit.pending or Finished(), patch=changes)
            values = items.values_of(step.run, visit)
            fields = differing(values, {**values, **changes})
            gates.edited(step, visit.scope, fields)
            visit.routing = None
        case _:
            failure = visit.failure
            assert failure is not None  # noqa: S101 it is what the operator was asked about
            routing.fail_around(step, visit, failure)
    return True


def _run(step: Step, visit: Visit, node: FunctionNode) -> bool:
    carried = _input_bytes(step.run, visit)
    reads_inbox = node.reads_inbox and not visit.activations
    if reads_inbox:
        carried += sum(map(mailbox.size_of, messages.for_visit(step.run, visit)))
    if carried > (limit := step.run.limits.visit_bytes):
        message = (
            f"the input of {visit.node!r} has {carried} bytes of values, answers and steps, and "
            f"visit_bytes allows {limit}: keep large data elsewhere, and a reference to it in the values"
        )
        failure = Failure(code=FailureCode.VISIT_TOO_LARGE, message=message)
        routing.fail(step, visit, failure)
        return True
    if not _has_room(step, carried):
        return False
    if reads_inbox:
        messages.read_at_start(step, visit)
    step.move(visit, "start", Running(answered_keys=tuple(visit.questions.answers)))
    visit.activations += 1
    visit.questions = replace(visit.questions, moment=_moment(step.run, visit))
    timeout, retry = node.timeout, node.retry
    if visit.is_finally:
        timeout, retry = _bounded(step, visit, node)
    item = None
    if visit.members:
        item = items.item_of(step.run, visit.scope, visit.members[-1]).item
    visit_input = replace(
        _input(step, visit, _answers_for(step.run, visit)),
        own_answers=visit.questions.answers,
        shown_hashes=_hashes_to_compare(visit),
        answerers={
            name: replace(each, people=())
            for name, each in four_eyes.known_to(step.run, visit).items()
        },
        asks=node.asks,
        activation=visit.activations,
        retry=retry,
        attempts=visit.checkpoint.attempts.as_of(step.now),
        timeout=timeout,
        # Its next attempts wait, which a local activity does not do well.
        local=node.local and visit.blocked is None,
        journal=visit.checkpoint.journal,
        user_state=visit.checkpoint.user_state,
        interrupted=visit.checkpoint.interrupted,
        item=item,
        results=visit.results,
        inbox=visit.inbox.delivered,
        outcome=None if step.run.ending is None else step.run.ending.outcome,
        call=visit.call,
        approver={} if visit.call is None else approvals.approver(step.run, visit),
    )
    gates.begin(step, visit)
    step.emit(RunNode(input=visit_input, heartbeat=node.heartbeat))
    return True


def _bounded(step: Step, visit: Visit, node: FunctionNode) -> tuple[float, RetryPolicy]:
    """Return the timeout and the retries of a finally node, which must not delay the end of the run: all
    its attempts together have the time of one.
    """
    whole = step.run.limits.finally_timeout if node.timeout is None else node.timeout
    retry_for = whole if node.retry.retry_for is None else min(whole, node.retry.retry_for)
    left = max(_SHORTEST_TIMEOUT, whole - visit.checkpoint.attempts.as_of(step.now).seconds)
    return left, replace(node.retry, retry_for=retry_for)


def _input(step: Step, visit: Visit, answers: Mapping[str, Json]) -> VisitInput:
    state, graph = step.run, step.run.graph_of(visit.scope)
    return VisitInput(
        run_id=state.run_id,
        path=state.scopes[visit.scope].path,
        graph=graph.name,
        node=visit.node,
        address=visit.address,
        first_address=visit.first_address or "",
        values=items.values_of(state, visit),
        answers=answers,
        # The routes of the pinned graph; deployed code may have others.
        routes=tuple(route.name for route in graph.routes_from(visit.node)),
        targets=graph.targets_of(visit.node),
        # All rules, because they may use each other's facts; none if none needs CLIPS.
        rules=graph.rules_on(visit.node) if graph.has_clips_on(visit.node) else (),
        blocked_by=None if visit.blocked is None else visit.blocked.code,
        salt=state.salt,
        ordinals=_ordinals(step, visit),
        metered=budgets.covers(state, visit),
        answered=tuple(gates.answered(state, visit)),
    )


def _ordinals(step: Step, visit: Visit) -> Mapping[str, int]:
    """Number the repeated questions of a visit, by key: one that was withdrawn is asked anew."""
    own = visit.questions
    if not own.ask_counts:
        return {}
    standing = {*own.answers, *(entry.key for entry in interrupts.of_visit(step, visit.address))}
    ordinals = {key: count + (key not in standing) for key, count in own.ask_counts.items()}
    return {key: ordinal for key, ordinal in ordinals.items() if ordinal > 1}


def _moment(state: RunState, visit: Visit) -> int:
    # Both only grow, so equal sums mean equal versions and messages.
    return items.version_of(state, visit) + len(visit.inbox.taken)


def _hashes_to_compare(visit: Visit) -> Mapping[str, str]:
    """Return hashes of what the answered questions of a visit showed, if they may show something else now
    and their answers are not used up.
    """
    if visit.call is not None:
        return {}
    own = visit.questions
    return {
        key: own.shown_hashes[key]
        for key, moment in own.shown_at.items()
        if key in own.answers and moment != own.moment
    }


def _decide(step: Step, visit: Visit) -> bool:
    """Run the route functions and rules of a visit, whose code has ended or whose node has none. Return
    False if the task has no room for it.
    """
    visit_input = _input(step, visit, items.answers_of(step.run, visit))
    if not _has_room(step, size_of_all([visit_input.values, visit_input.answers])):
        return False
    step.move(visit, "start", Running(stage="rules"))
    visit.activations += 1
    visit_input = replace(
        visit_input,
        kind="routes",
        attempts=visit.checkpoint.attempts.as_of(step.now),
        local=visit.blocked is None,
    )
    step.emit(RunNode(input=visit_input))
    return True


def _has_room(step: Step, bytes_: int) -> bool:
    state = step.run
    after = state.task_bytes + bytes_ + _ORDER_BYTES
    # The first input of a task is always sent, even above the bound.
    if state.task_bytes and after > state.limits.task_bytes:
        state.yielding = True
        step.emit(Yield())
        return False
    state.task_bytes = after
    return True


def _answers_for(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the answers to questions of other visits; a visit has the answers to its own questions."""
    answers = items.answers_of(state, visit)
    if visit.call is not None:
        return answers
    own = {key.rpartition("/")[2] for key in visit.questions.answers}
    return {name: answer for name, answer in answers.items() if name not in own}


def _input_bytes(state: RunState, visit: Visit) -> int:
    """Return the size of the visit's input.

    The input travels in one piece, for which Temporal has a bound: beyond it the run would hang, and no
    answer, message or cancel would reach it. So an answer that makes the input of its visit too large is
    refused, and a visit whose input is too large without it fails.
    """
    values = items.values_of(state, visit)
    scope = state.scopes[visit.scope]
    carried = scope.size if values is scope.values else size(values)
    rest: list[Json] = [_answers_for(state, visit), visit.questions.answers]
    rest += [visit.checkpoint.journal, visit.checkpoint.user_state, visit.results]
    rest += [v.answer for each in four_eyes.known_to(state, visit).values() for v in each.votes]
    if visit.members:
        rest.append(items.item_of(state, visit.scope, visit.members[-1]).item)
    return carried + size_of_all(rest) + sum(map(mailbox.size_of, visit.inbox.delivered))


def refuse_large_answers(state: RunState, event: events.Responded) -> None:
    """Refuse answers that would make the input of a waiting visit too large."""
    waiting: dict[str, Interrupt] = {}
    added: list[Json] = []
    for id_, answer in event.answers.items():
        if (entry := state.ledger.open.get(id_)) is None:
            continue
        waiting[entry.visit] = entry
        added.append({entry.key: answer})
        if entry.quorum is not None:
            # Code gets the votes together with the answer.
            added += [answer, *(vote.answer for vote in entry.votes)]
    more = size_of_all(added)
    for address, entry in waiting.items():
        visit = state.visits[address]
        is_merged = not isinstance(state.node_of(visit), FunctionNode)
        _refuse_too_large(state, visit, more * (1 + is_merged), interrupt_id=entry.id)


def refuse_large_patch(state: RunState, changes: Mapping[str, Json]) -> None:
    """Refuse an edit that would make the input of a waiting visit too large."""
    for visit in state.visits.values():
        _refuse_too_large(state, visit, size(changes))


def _refuse_too_large(state: RunState, visit: Visit, added: int, **details: str) -> None:
    before = _input_bytes(state, visit)
    limit = state.limits.visit_bytes
    # A visit that is too large already fails when it starts, and must be able to.
    if before <= limit < before + added:
        raise Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"The input of {visit.address} would grow from {before} to {before + added} bytes, and "
            f"visit_bytes allows {limit}: shorten this, or send a reference to what is large.",
            limit=limit,
            actual=before + added,
            **details,
        )
