"""Routing: entering nodes, failing in them, and leaving them.

Dataflow without supersteps: a node is entered as soon as an edge to it fires, whatever other branches
are doing. `visits` chooses the way out of a node; how branches come together is in `branches`.

A failure that a nested graph does not handle fails the visit that the graph is walked for; only at the
root does it end the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from abeyance.core import asking, four_eyes, gates, interrupts, items, lifecycle
from abeyance.core.address import below
from abeyance.core.effects import StopNode
from abeyance.core.items import PatchError
from abeyance.core.json import Json, matches
from abeyance.core.outcome import Call, Finished
from abeyance.core.spec import (
    END,
    Always,
    AskHuman,
    Edge,
    Else,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    ReturnErrorToCaller,
    SubgraphNode,
    When,
)
from abeyance.core.state import BY_VISIT, RunState, Scope
from abeyance.core.step import Step
from abeyance.core.visit import (
    BY_SCOPE,
    Failure,
    FanOutBranch,
    Questions,
    Ready,
    RoutingDecision,
    Running,
    Visit,
)
from abeyance.errors import FailureCode


def enter(
    step: Step,
    scope_address: str,
    node: str,
    *,
    members: tuple[FanOutBranch, ...] = (),
    results: Json = None,
    is_finally: bool = False,
    call: Call | None = None,
    before: Visit | None = None,
    behind: tuple[str, ...] = (),
    pause: float = 0.0,
    routed: RoutingDecision | None = None,
) -> Visit | None:
    """Create a visit of a node, ready to start after `pause` seconds; None at END.

    `before` is the visit of a call that continues in this node: at its address, as the same call.
    `behind` are the gates that led to it. `routed`: its code has ended, and only its way out is chosen.
    """
    if node == END:
        return None
    scope = step.run.scopes[scope_address]
    ordinal = scope.ordinals.get(node, 0) + 1
    call = call if before is None else before.call
    address = (
        _address(step, scope_address, node, ordinal, call) if before is None else before.address
    )
    scope.ordinals = {**scope.ordinals, node: ordinal}
    if before is None:
        first = _first_address(step, address, scope, node, () if call else members)
    else:
        first = before.first_address
    step.run.counters.visits += 1
    asked = {} if before is None else before.questions.ask_counts
    return step.add_visit(
        Visit(
            address=address,
            scope=scope_address,
            node=node,
            is_finally=is_finally,
            members=members,
            results=results,
            call=call,
            first_address=first,
            questions=Questions(ask_counts=asked),
            gates=behind,
            routing=routed,
            state=Ready(
                stage="entered" if routed is None else "after",
                not_before=step.after(pause) if pause else None,
            ),
        )
    )


def _address(step: Step, scope: str, node: str, ordinal: int, call: Call | None) -> str:
    if call is None:
        return below(scope, "node", node, ordinal)
    address = below(scope, "tool", call.tool, call.id)
    number = ordinal
    while _is_taken(step, address):
        address = below(scope, "tool", call.tool, f"{call.id}~{number}")
        number += 1
    return address


def _first_address(
    step: Step, address: str, scope: Scope, node: str, members: tuple[FanOutBranch, ...]
) -> str | None:
    """Return the name by which other services know a visit, None for its address.

    Addresses count the visits of all items in the order in which they come. After a rewind another item
    may come first, and its payment must not be taken for the payment of the item that came first before.
    """
    if members:
        fan, index = members[-1].fan, members[-1].index
        out = scope.fans[fan]
        item = out.items[index]
        ordinal = item.ordinals.get(node, 0) + 1
        item.ordinals = {**item.ordinals, node: ordinal}
        return below(below(out.first_address or fan, "item", str(index)), "node", node, ordinal)
    around = None if scope.visit is None else step.run.visits[scope.visit]
    if around is None or around.first_address is None:
        return None
    return around.first_address + address.removeprefix(around.address)


def _is_taken(step: Step, address: str) -> bool:
    """Return whether the address was used by a call. Two calls with one id would be one visit, or their
    questions would share an id: the answer to the first, sent again, would answer the second.
    """
    # The call around an open question is a visit.
    settled = step.run.ledger.settled.values()
    return address in step.run.visits or any(
        f"{each.address};".startswith(f"{address};") for each in settled
    )


def count(
    step: Step,
    scope_address: str,
    node: str,
    members: tuple[FanOutBranch, ...],
    address: str,
) -> bool:
    """Count one more visit of a node. If it exceeds `max_visits`, fail the graph and return False.

    Within a fan-out each item counts its own visits: five hundred items are not a loop. An agent has a
    bound of its own, `max_turns`.
    """
    if step.run.scopes[scope_address].is_agent:
        return True
    bound = step.run.limits.max_visits
    holder = items.holder_of(step, scope_address, members)
    number = holder.visit_counts.get(node, 0) + 1
    if number <= bound:
        holder.visit_counts = {**holder.visit_counts, node: number}
        return True
    message = (
        f"the node {node!r} has been visited {bound} times since a person last answered or "
        "wrote, and max_visits allows no more: give its loop a way out, or raise max_visits"
    )
    failure = Failure(code=FailureCode.MAX_VISITS, message=message, address=address)
    fail_scope(step, scope_address, failure)
    return False


def fail(step: Step, visit: Visit, failure: Failure, *, fatal: bool = False) -> None:
    """Fail a visit: do what its node's `on_error` says, else fail its graph.

    `fatal`: the model does not hear of it, because it could do nothing about it.
    """
    if isinstance(running := visit.state, Running):
        # Its code has ended. A retry of the run starts it again.
        step.move(visit, "stopped", Ready(stage=running.stage))
    _fail(step, visit, failure, fatal=fatal)


def _fail(step: Step, visit: Visit, failure: Failure, *, fatal: bool) -> None:
    if failure.address is None:
        failure = replace(failure, address=visit.address)
    if step.run.ending is not None:
        drop_unit(step, visit, "the visit failed")
        _fail_run(step, failure)
        return
    if not _are_handled(step, step.run.outward(visit), fatal=fatal):
        _end_run(step, visit, failure)
        return
    graph = step.run.graph_of(visit.scope)
    node = graph.nodes[visit.node]
    drop_unit(step, visit, "the visit failed")
    on_error = None if isinstance(node, InterruptNode) else node.on_error
    match on_error:
        case GoTo(node=target):
            go_instead(step, visit, target)
        case AskHuman():
            asking.ask_operator(step, visit, failure)
        case ReturnErrorToCaller() if not fatal:
            result = {"error": failure.message, "code": failure.code}
            end_call(step, visit, result)
        case _:
            fail_scope(step, visit.scope, with_changes(step, visit, failure), fatal=fatal)


def fail_around(step: Step, visit: Visit, failure: Failure) -> None:
    """Fail the graph that a visit is in, whatever its own node says about errors."""
    _, *around = step.run.outward(visit)
    if not _are_handled(step, around, fatal=False):
        _end_run(step, visit, failure)
        return
    drop_unit(step, visit, "the visit failed")
    fail_scope(step, visit.scope, with_changes(step, visit, failure))


def _end_run(step: Step, visit: Visit, failure: Failure) -> None:
    """Fail the run. A retry goes on from here, so code beside the visit is awaited, in any graph."""
    step.keep()
    failure = with_changes(step, visit, failure)
    step.drop_visit(visit.address)
    _fail_run(step, failure)


def _are_handled(step: Step, failing: Iterable[Visit], *, fatal: bool) -> bool:
    """Return whether the node of one of these visits says what to do about a failure."""
    return any(_is_handled(step.run, each, fatal=fatal) for each in failing)


def _is_handled(state: RunState, visit: Visit, *, fatal: bool) -> bool:
    match state.node_of(visit):
        case FunctionNode(on_error=on_error) | SubgraphNode(on_error=on_error):
            is_told = isinstance(on_error, ReturnErrorToCaller) and not fatal
            return is_told or isinstance(on_error, GoTo | AskHuman)
        case InterruptNode():
            return False
        case unknown:
            assert_never(unknown)


def with_changes(step: Step, visit: Visit, failure: Failure) -> Failure:
    """Merge what a failed visit had changed: it is part of its graph's result."""
    try:
        items.put_patch(step, visit.scope, visit.members, visit.checkpoint.patch)
    except PatchError as error:
        message = f"{failure.message}; and what it had done cannot be merged: {error}"
        return replace(failure, message=message)
    return failure


def fail_scope(step: Step, scope_address: str, failure: Failure, *, fatal: bool = False) -> None:
    """Fail a graph: the visit that it is walked for fails, or, at the root, the run."""
    scope = step.run.scopes[scope_address]
    if scope.visit is None:
        _fail_run(step, failure)
        return
    _fail(step, step.run.visits[scope.visit], failure, fatal=fatal)


def _fail_run(step: Step, failure: Failure) -> None:
    lifecycle.begin_ending(step, "failed", failure.message, error=failure)


def end_call(step: Step, visit: Visit, result: Json) -> None:
    """End a tool call, which was dropped and is put back, without running its code. Its changes up to its
    last question are merged.
    """
    step.add_visit(visit)
    step.move(visit, "end_call", Ready(stage="body"))
    visit.pending = Finished(patch=visit.checkpoint.patch, result=result)
    # If this patch cannot be merged, the call ends again, without it.
    visit.checkpoint = replace(visit.checkpoint, patch={})


def leave_unit(step: Step, visit: Visit, reason: str, *, by: str | None = None) -> None:
    """Drop a visit that is not over; running code is abandoned."""
    if isinstance(visit.state, Running):
        step.emit(StopNode(visit=visit.address, reason="ending", abandon=True))
    gates.withdraw(step, visit)
    drop_unit(step, visit, reason, by=by)


def drop_unit(step: Step, visit: Visit, reason: str, *, by: str | None = None) -> None:
    """Drop a visit, with its questions and everything inside it."""
    interrupts.withdraw(step, interrupts.of_visit(step, visit.address), reason, by=by)
    step.drop_visit(visit.address)
    inner = step.run.scopes.first(BY_VISIT, visit.address)
    if inner is None:
        return
    for each in step.run.visits.found(BY_SCOPE, inner.address):
        # A visit that somebody leaves has no nested graph.
        leave_unit(step, each, reason)
    items.keep_agent(step, visit, inner)
    step.drop_scope(inner.address)


def go_instead(step: Step, visit: Visit, target: str, *, pause: float = 0.0) -> None:
    """Follow a goto instead of the edges of a finished visit.

    Inside a fan-out it leads out of it, unless the target leads to a join that gathers it. A node
    before the fan-out does not count, though it would lead there by a new one.
    """
    members = visit.members
    graph = step.run.graph_of(visit.scope)
    while members and target != END:
        fan = step.run.scopes[visit.scope].fans[members[-1].fan]
        if not fan.joins or not set(fan.joins).isdisjoint(items.gathering(graph, (target,))):
            break
        item = items.item_of(step.run, visit.scope, members[-1])
        item.left_fan_out = True
        members = members[:-1]
        around = items.holder_of(step, visit.scope, members)
        # Items that have left before are not forgotten.
        four_eyes.gather(step, visit.scope, members, [around, item])
    gates.out_of_items(step, visit, members)
    is_call = visit.call is not None and members == visit.members
    enter(
        step,
        visit.scope,
        target,
        members=members,
        before=visit if is_call else None,
        behind=visit.gates,
        pause=pause,
    )


def fired(
    graph: GraphSpec, source: str, values: Mapping[str, Json], routed: tuple[str, ...] = ()
) -> tuple[Edge, ...] | None:
    """Return the edges that may be followed from a source, None if its conditions leave none."""
    edges = graph.edges_from(source)
    holding = [
        edge
        for edge in edges
        if isinstance(edge.condition, Always)
        or (isinstance(edge.condition, When) and matches(edge.condition.equals, values))
    ]
    is_conditional = bool(graph.routes_from(source)) or any(
        isinstance(edge.condition, When) for edge in edges
    )
    if is_conditional and not routed and not any(isinstance(e.condition, When) for e in holding):
        rest = [edge for edge in edges if isinstance(edge.condition, Else)]
        if not rest:
            return None
        holding += rest
    return tuple(holding)
