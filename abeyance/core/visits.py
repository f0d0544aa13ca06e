"""How a visit ends: its patch is merged, people and rules are asked, and one way out is taken.

A visit that finishes merges its patch. If its graph says `interrupt_after`, a person looks at it first.
Then the graph's rules say what they say, once. While somebody is asked, the visit waits with its way on
held. The way is the rules' decision; without one what its code returned, a Goto or a fan-out; without
that all edges whose condition holds on the merged values, and those that route functions chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from abeyance.core import (
    approvals,
    fanout,
    interrupts,
    items,
    lifecycle,
    messages,
    patch,
    routing,
    rules,
    undo,
)
from abeyance.core.json import Json, why_not_json
from abeyance.core.outcome import Finished, key_of
from abeyance.core.spec import (
    END,
    Always,
    Decision,
    Edge,
    Else,
    FunctionNode,
    GoTo,
    GraphSpec,
    HaltRun,
    Parallel,
    Retry,
    When,
)
from abeyance.core.state import Approval, Failure, Phase, RoutingDecision, Token, Visit
from abeyance.core.working_state import WorkingState
from abeyance.errors import FailureCode


def start_scope(
    draft: WorkingState, scope_address: str, source: str, covered: tuple[Approval, ...] = ()
) -> None:
    """Fire the edges out of START. If no condition holds, the graph fails. `covered` are the approvals
    that the graph begins under.
    """
    graph = draft.graph(scope_address)
    fired = _fired(graph, source, draft.state.scopes[scope_address].values, ())
    if fired is None:
        message = (
            "none of the conditions on the edges from START holds for this input; "
            "add an edge with when='else'"
        )
        failure = Failure(code=FailureCode.NO_WAY_OUT, message=message, address=scope_address)
        routing.fail_scope(draft, scope_address, failure)
        return
    for edge in fired:
        if len(edge.sources) > 1:
            token = Token(visit=scope_address, approvals=covered)
            routing.put_token(draft, scope_address, edge, source, token)
        else:
            routing.go(draft, scope_address, edge.target, covered=covered)


def finish(draft: WorkingState, visit: Visit, finished: Finished) -> None:
    """A visit is done: merge its patch, and leave its node or ask what has to be asked before."""
    graph = draft.graph(visit.scope)
    # Before the merge: what fails and is tried again must not have changed anything.
    if (fault := _unknown_target(graph, visit.node, finished)) is not None:
        routing.fail(draft, visit, Failure(code=FailureCode.UNKNOWN_NODE, message=fault))
        return
    for number, each in enumerate(finished.sends or ()):
        if (reason := why_not_json(each.item)) is not None:
            message = f"the item {number} that {visit.node!r} sends is not JSON: {reason}"
            routing.fail(draft, visit, Failure(code=FailureCode.INVALID_PATCH, message=message))
            return
    if not merge(draft, visit, finished.patch):
        return
    if draft.state.ending is not None:
        draft.drop_visit(visit.address)
        return
    is_exempt = routing.recount(draft, visit, is_exempt=finished.exempt_from_max_visits)
    interrupts.withdraw(
        draft,
        interrupts.of_visit(draft, visit.address),
        "the visit finished without it",
        status="superseded",
    )
    items.put_result(draft, visit, visit.result if finished.result is None else finished.result)
    if _hold_back(draft, visit, finished):
        return
    # What is merged, or told to followers alone, need not be kept.
    kept = replace(
        finished, patch={}, result=None, turn=None, emitted=(), exempt_from_max_visits=is_exempt
    )
    visit.routing = RoutingDecision(outcome=kept)
    visit.journal, visit.user_state, visit.composite, visit.stopping = None, None, False, False
    if visit.node in graph.interrupt_after and not visit.is_finally:
        visit.stage = "after"
        interrupts.ask_to_look(draft, visit)
    else:
        _judge(draft, visit, visit.routing)


def _hold_back(draft: WorkingState, visit: Visit, finished: Finished) -> bool:
    """Run a visit again, rather than leave it, where messages for it are unread. False if it may leave.

    An agent so hears, before it ends, what people were told has reached it (netherbrain's guard).
    """
    node = draft.state.node_of(visit)
    if not isinstance(node, FunctionNode) or not node.guarded:
        return False
    unread = tuple(messages.for_visit(draft.state, visit))
    if finished.is_decided or not unread:
        return False
    scope = draft.scope(visit.scope)
    if scope.guard_turns >= draft.state.limits.max_guard_turns:
        messages.report(draft, unread, "guard")
        return False
    scope.guard_turns += 1
    _drop(draft, visit)
    routing.enter(draft, visit.scope, visit.node, members=visit.members, covered=visit.approvals)
    return True


def go_on(draft: WorkingState, visit: Visit, way: RoutingDecision) -> None:
    """What was asked after a visit is answered: it goes on by the way that was held."""
    if visit.stage == "after":
        interrupts.let_pass(visit)
        if way.is_stale:
            # Code chose on the values as they were before a person edited them.
            seek_anew(draft, visit, replace(way, is_stale=False))
        else:
            _judge(draft, visit, way)
        return
    for changes in rules.answers_to(draft.graph(visit.scope), visit.node, visit.answers):
        if not merge(draft, visit, changes):
            return
    _leave(draft, visit, way)


def seek_anew(draft: WorkingState, visit: Visit, way: RoutingDecision) -> None:
    """Seek the way out again of a visit whose code has returned, with the values as they are now."""
    graph = draft.graph(visit.scope)
    decides = graph.routes_from(visit.node) and not way.outcome.is_decided
    if decides or graph.has_clips_on(visit.node):
        # It is asked as soon as there is room for it.
        visit.routing = replace(way, is_stale=True)
        visit.phase, visit.stage = Phase.READY, "rules"
    else:
        _judge(draft, visit, way)


def decided(draft: WorkingState, visit: Visit, way: RoutingDecision, finished: Finished) -> None:
    """Code was asked again for the way of a visit whose values a person has edited."""
    if draft.state.ending is not None:
        draft.drop_visit(visit.address)
        return
    routed = () if way.outcome.is_decided else finished.route_targets
    fault = _unknown_target(
        draft.graph(visit.scope), visit.node, replace(finished, route_targets=routed)
    )
    if fault is not None:
        routing.fail(draft, visit, Failure(code=FailureCode.UNKNOWN_NODE, message=fault))
        return
    chosen = replace(way.outcome, route_targets=routed, fired_rules=finished.fired_rules)
    _judge(draft, visit, RoutingDecision(outcome=chosen))


def _unknown_target(graph: GraphSpec, name: str, finished: Finished) -> str | None:
    node = graph.nodes[name]
    declared = set(node.to) if isinstance(node, FunctionNode) else set()
    if finished.sends is not None:
        chosen, allowed = {each.node for each in finished.sends}, declared - {END}
    elif finished.goto is not None:
        chosen, allowed = {finished.goto}, {*declared, END}
    else:
        chosen = set(finished.route_targets)
        allowed = {target for route in graph.routes_from(name) for target in route.targets}
    for target in sorted(chosen - allowed):
        told = ", ".join(map(repr, sorted(allowed))) or "nowhere"
        return (
            f"the node {name!r} chose to go to {target!r}; it may go to {told}: declare its targets "
            "with to=[...]"
        )
    return None


def _judge(draft: WorkingState, visit: Visit, way: RoutingDecision) -> None:
    values = items.values_of(draft.state, visit)
    verdict = rules.evaluate(draft.graph(visit.scope), visit.node, values, way.outcome.fired_rules)
    way = replace(way, decision=verdict.decision)
    # Answers to rules that were asked before, and after which no way was found, have been merged.
    asked = {key_of("rule", rule.id) for rule in draft.graph(visit.scope).rules_on(visit.node)}
    visit.answers = {key: answer for key, answer in visit.answers.items() if key not in asked}
    visit.routing, visit.stage = way, "rules"
    for question in verdict.questions:
        interrupts.open_question(draft, visit, question, "rule")
    if not verdict.questions:
        _leave(draft, visit, way)


def merge(draft: WorkingState, visit: Visit, changes: Mapping[str, Json]) -> bool:
    """Merge what a visit changed, and remember how to take it back. False if that failed the visit."""
    before = items.values_of(draft.state, visit)
    try:
        items.put_patch(draft, visit.scope, visit.members, changes)
    except patch.PatchError as error:
        routing.fail(draft, visit, Failure(code=FailureCode.INVALID_PATCH, message=str(error)))
        return False
    if changes:
        visit.approvals = approvals.changed(
            draft, visit.scope, visit.members, before, own=visit.approvals, heard=visit.heard_from
        )
        items.hear(draft, visit.scope, visit.members, visit.heard_from)
        undo.changing(visit, before, changes)
    return True


def _leave(draft: WorkingState, visit: Visit, way: RoutingDecision) -> None:
    graph = draft.graph(visit.scope)
    values = items.values_of(draft.state, visit)
    outcome = way.outcome
    if way.decision is not None:
        _drop(draft, visit)
        _obey(draft, visit, way.decision)
    elif outcome.sends is not None:
        _drop(draft, visit)
        fanout.send(draft, visit, outcome.sends, is_exempt=outcome.exempt_from_max_visits)
    elif outcome.goto is not None:
        _drop(draft, visit)
        routing.go_instead(draft, visit, outcome.goto)
    elif (fired := _fired(graph, visit.node, values, outcome.route_targets)) is not None:
        _drop(draft, visit)
        _fire(draft, visit, fired, outcome.route_targets)
    else:
        message = (
            f"none of the conditions on the ways out of {visit.node!r} holds; "
            "add an edge with when='else'"
        )
        routing.fail(draft, visit, Failure(code=FailureCode.NO_WAY_OUT, message=message))


def _drop(draft: WorkingState, visit: Visit) -> None:
    approvals.keep(draft, visit)
    undo.leave(draft, visit)
    draft.drop_visit(visit.address)


def _obey(draft: WorkingState, visit: Visit, decision: Decision) -> None:
    match decision:
        case HaltRun(reason=reason):
            lifecycle.begin_ending(draft, "halted", reason)
        case Retry():
            routing.enter(
                draft,
                visit.scope,
                visit.node,
                members=visit.members,
                results=visit.results,
                covered=visit.approvals,
            )
        case GoTo(node=node):
            routing.go_instead(draft, visit, node)
        case Parallel(nodes=nodes):
            for node in nodes:
                routing.go(draft, visit.scope, node, members=visit.members, covered=visit.approvals)
        case _:
            assert_never(decision)


def _fired(
    graph: GraphSpec, source: str, values: Mapping[str, Json], routed: tuple[str, ...]
) -> tuple[Edge, ...] | None:
    edges = graph.edges_from(source)
    holding = [edge for edge in edges if _holds(edge, values)]
    is_conditional = bool(graph.routes_from(source)) or any(
        isinstance(edge.condition, When) for edge in edges
    )
    if is_conditional and not routed and not any(isinstance(e.condition, When) for e in holding):
        rest = [edge for edge in edges if isinstance(edge.condition, Else)]
        if not rest:
            return None
        holding += rest
    return tuple(holding)


def _holds(edge: Edge, values: Mapping[str, Json]) -> bool:
    match edge.condition:
        case Always():
            return True
        case When(equals=equals):
            return rules.hold(equals, values)
        case Else():
            return False
        case _:
            assert_never(edge.condition)


def _fire(
    draft: WorkingState, visit: Visit, fired: tuple[Edge, ...], routed: tuple[str, ...]
) -> None:
    for edge in fired:
        if edge.is_join and visit.members:
            fanout.reach(draft, visit, edge)
        elif len(edge.sources) > 1:
            token = Token(visit=visit.address, approvals=visit.approvals)
            routing.put_token(draft, visit.scope, edge, visit.node, token)
        else:
            routing.go(
                draft, visit.scope, edge.target, members=visit.members, covered=visit.approvals
            )
    for target in dict.fromkeys(routed):
        routing.go(draft, visit.scope, target, members=visit.members, covered=visit.approvals)
