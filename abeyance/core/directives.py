"""Directives: messages that the run itself carries out, to go back, skip, pause, defer or edit.

A directive is taken at a boundary of the branch that its target names, else of the branch that moved
last: when a visit is ready and has not begun, or waits for people. While code of the branch runs, or
before the target exists, the directive waits. One that cannot be carried out is rejected, with the
reason, and the run continues. The words are those of ADK's InterruptService; that some take the
capabilities of all gates (`authority`), and that none is lost, is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from abeyance.core import (
    approvals,
    authority,
    events,
    interrupts,
    items,
    messages,
    operator_questions,
    patch,
    routing,
    undo,
)
from abeyance.core.events import Message
from abeyance.core.json import differing
from abeyance.core.outcome import Finished
from abeyance.core.spec import GraphSpec, InterruptNode
from abeyance.core.state import RunState, Step, Todo
from abeyance.core.visit import Nested, Ready, Running, Unroutable, Visit, Waiting, transition
from abeyance.core.working_state import WorkingState
from abeyance.errors import Refusal

_PARAMS: Final[Mapping[str | None, frozenset[str]]] = {
    "go_back": frozenset({"steps"}),
    "update_state": frozenset({"patch"}),
}


class Impossible(Exception):
    """A directive cannot be carried out, or the run cannot go back; `code` and text say why."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


def carry_out(draft: WorkingState) -> bool:
    """Carry out the first directive that is at its boundary. Return whether there was one."""
    state = draft.state
    if state.ending is not None or state.rotation is not None:
        return False
    for message in state.mailbox.queue:
        if message.action not in messages.DIRECTIVES:
            continue
        visit = _branch(state, message)
        if visit is not None and not _is_at_boundary(visit):
            continue
        if visit is None and _may_still_come(state, message.target):
            continue
        state.mailbox = state.mailbox.without([message])
        draft.keep()
        try:
            authority.refuse_directive(state, message)
            _obey(draft, message, visit)
        except Refusal as refusal:
            messages.reject(draft, message, str(refusal.code), refusal.message)
        except Impossible as why:
            messages.reject(draft, message, why.code, str(why))
        else:
            address = None if visit is None else visit.address
            draft.counters.messages_delivered += 1
            draft.publish(
                "message.delivered",
                address,
                message.sender,
                message_id=message.message_id,
                action=message.action,
            )
        return True
    return False


def branches(state: RunState) -> Iterator[Visit]:
    """Yield the visit of each branch, the one that moved last first."""
    for visit in reversed(list(state.visits.values())):
        if not isinstance(visit.state, Nested) and not visit.is_finally:
            yield visit


def _branch(state: RunState, message: Message) -> Visit | None:
    """Return the visit whose branch a directive is about; None if there is no such branch now."""
    target = message.target
    for visit in branches(state):
        if target in (None, visit.address, visit.node, visit.scope):
            return visit
    # The node that finished last still names its branch.
    for visit in branches(state):
        if _is_last(state, visit.scope, target):
            return visit
    return None


def _may_still_come(state: RunState, target: str | None) -> bool:
    """Return whether the branch of `target` may still appear."""
    last = list(state.scopes)[-1]
    is_about_last = target in (None, last) or _is_last(state, last, target)
    return any(branches(state)) or (len(state.scopes) > 1 and not is_about_last)


def _is_last(state: RunState, scope: str, target: str | None) -> bool:
    trodden = state.scopes[scope].trail[-1:]
    return any(target in (step.address, step.node) for step in trodden)


def _scope(state: RunState, message: Message, visit: Visit | None) -> str:
    """Return the scope that a directive is about; if no branch is left, the innermost one."""
    if visit is not None:
        return visit.scope
    last = list(state.scopes)[-1]
    if message.target not in (None, last) and not _is_last(state, last, message.target):
        raise Impossible("no_branch", f"{message.target!r} names no branch of the run")
    return last


def _is_at_boundary(visit: Visit) -> bool:
    match visit.state:
        case Ready(stage="entered"):
            # No directive is applied between an answer and the start of what it allowed.
            return all(each.begun or each.is_open for each in visit.approvals)
        case Waiting():
            return True
        case Ready() | Running() | Nested() | Unroutable():
            return False
        case _:
            assert_never(visit.state)


def _obey(draft: WorkingState, message: Message, visit: Visit | None) -> None:
    if unknown := message.params.keys() - _PARAMS.get(message.action, frozenset()):
        raise Impossible(
            "invalid_params",
            f"{message.action!r} takes no parameter {min(unknown)!r}: leave it out",
        )
    match message.action:
        case "continue":
            pass
        case "defer":
            _defer(draft, message)
        case "pause":
            _pause(draft, message)
        case "update_state":
            _update(draft, message, visit)
        case "skip":
            _skip(draft, _needed(visit, message))
        case "rerun":
            _go_back(draft, message, visit, 0)
        case _:
            _go_back(draft, message, visit, _steps(message))


def _defer(draft: WorkingState, message: Message) -> None:
    todo = Todo(
        message_id=message.message_id,
        text=message.text,
        metadata=message.metadata,
        sender=message.sender,
        deferred_at=draft.now,
    )
    state = draft.state
    state.todos = (*state.todos, todo)[-state.limits.max_queue_size :]


def _pause(draft: WorkingState, message: Message) -> None:
    # The same event as a pause through the API.
    paused = events.Paused(now=draft.now, actor=message.sender, reason=message.text or None)
    draft.queued.append(paused)


def _update(draft: WorkingState, message: Message, visit: Visit | None) -> None:
    changes = message.params.get("patch")
    if not isinstance(changes, Mapping) or not changes:
        raise Impossible("invalid_params", "update_state takes params {patch: {field: value, ...}}")
    scope = _scope(draft.state, message, visit)
    members = () if visit is None else visit.members
    # The memory of an agent is its own: the values around the agent are edited.
    while draft.state.scopes[scope].is_agent:
        around = draft.state.visits[str(draft.state.scopes[scope].visit)]
        scope, members = around.scope, around.members
    before = items.values_at(draft.state, scope, members)
    try:
        patch.refuse_misfits(draft.graph(scope), changes)
        items.put_patch(draft, scope, members, changes)
    except patch.PatchError as error:
        raise Impossible("invalid_patch", str(error)) from error
    after = items.values_at(draft.state, scope, members)
    operator_questions.values_edited(draft, scope, differing(before, after))
    draft.publish("run.values_edited", scope, message.sender, fields=sorted(changes))


def _skip(draft: WorkingState, visit: Visit) -> None:
    node = draft.state.node_of(visit)
    if isinstance(node, InterruptNode) or isinstance(visit.state, Waiting):
        raise Impossible("not_skippable", f"{visit.node!r} asks a person, and cannot be skipped")
    if visit.call is not None and (visit.call.once or visit.call.interrupts):
        raise Impossible(
            "not_skippable",
            f"{visit.call.tool!r} requires approval, and cannot be skipped",
        )
    visit = draft.visit(visit.address)
    transition(visit, "proceed", Ready(stage="body"))
    visit.pending = Finished()


def _go_back(draft: WorkingState, message: Message, visit: Visit | None, steps: int) -> None:
    scope = _scope(draft.state, message, visit)
    reason = f"the run went back ({message.action})"
    guidance = message.text or None
    go_back(draft, scope, visit, steps, by=message.sender, reason=reason, guidance=guidance)


def go_back(
    draft: WorkingState,
    address: str,
    visit: Visit | None,
    steps: int,
    *,
    by: str,
    reason: str,
    guidance: str | None,
) -> None:
    """Run the last finished visit of a scope again, or the one that finished `steps` before it.

    `visit` is where the branch is now, and is left. A visit behind a gate runs again only together with
    it. Raises Impossible.
    """
    trail = draft.state.scopes[address].trail
    if not undo.is_linear(draft.state, address):
        raise Impossible(
            "not_linear",
            f"{address} has several branches, a fan-out or an open join, so the order of its visits is "
            "ambiguous",
        )
    last = visit if visit is not None and visit.routing is not None else None
    count = steps if last is not None else steps + 1
    # A finished visit whose routing waits is not on the trail yet.
    if count > len(trail):
        raise Impossible(
            "not_linear",
            f"{address} has {len(trail)} visits that can be undone, and {count} are needed",
        )
    target: Visit | Step | None = last if not count else trail[-count]
    assert target is not None  # noqa: S101 without a last visit one at least is undone
    count = _to_the_gate(draft.graph(address), trail, target, count)
    if visit is not None:
        _abandon(draft, visit, reason, by)
    again: Visit | Step | None = last
    if count:
        again = undo.back(draft, address, count)
    assert again is not None  # noqa: S101 without a last visit one at least is undone
    draft.publish(
        "run.went_back",
        again.address,
        by,
        node=again.node,
        steps=steps,
        effects="what the visits did outside the run is not undone",
    )
    covered = approvals.of_others(again)
    routing.enter(draft, address, again.node, guidance=guidance, covered=covered)


def _to_the_gate(
    graph: GraphSpec, trail: tuple[Step, ...], target: Visit | Step, count: int
) -> int:
    """Return how many visits to undo, so that `target` runs again only together with its gate.

    An approval covers one execution, so the run goes back to an approved visit by asking again.
    """
    while covered := [each for each in approvals.of_others(target) if not each.is_open]:
        if isinstance(graph.nodes[target.node], InterruptNode):
            break
        # Nobody alone repeats what several had to approve.
        gate = next((each for each in covered if each.is_restricted), covered[-1])
        steps = [step for step in trail if step.address == gate.gate]
        if not steps:
            raise Impossible(
                "behind_gate",
                f"{target.node!r} lies behind the question of {gate.node!r}, which is no longer on the "
                "trail: an approval covers one execution",
            )
        target = steps[0]
        count = len(trail) - trail.index(target)
    return count


def _abandon(draft: WorkingState, visit: Visit, reason: str, by: str) -> None:
    """Leave a visit that has not begun, or waits, as if it had never been entered."""
    gates = interrupts.of_visit(draft, visit.address)
    interrupts.withdraw(draft, gates, reason, by=by, status="superseded")
    if visit.undo is not None:
        values = dict(draft.state.scopes[visit.scope].values)
        undo.apply_undo(values, visit.undo)
        items.put_values(draft, visit.scope, values)
    # Nothing is inside it: its nested graph, if it has one, is over or has not begun.
    draft.drop_visit(visit.address)


def _steps(message: Message) -> int:
    steps = message.params.get("steps", 1)
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 < steps <= undo.MAX_ENTRIES:
        raise Impossible(
            "invalid_params",
            f"go_back takes params {{steps: 1 to {undo.MAX_ENTRIES}}}, not {steps!r}",
        )
    return steps


def _needed(visit: Visit | None, message: Message) -> Visit:
    if visit is None:
        raise Impossible("no_branch", f"{message.action!r} found no branch to act on")
    return visit
