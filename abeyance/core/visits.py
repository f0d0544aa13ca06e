"""The end of a visit: merge its patch, ask people and rules, and choose the way out.

A finished visit merges its patch. If its graph has a breakpoint after the node, a person is asked
first. Rules are evaluated once. If one asks a question, the routing decision is kept until it is
answered. The next node is the rules' decision; without one what the code returned, a Goto or a fan-out;
without that every edge whose condition holds on the merged values, and those that route functions
chose.

*Rules.* Every question of a rule that fires is asked: dropping one would open a gate. Of the decisions
one counts: halt before retry before goto before parallel, and of equals the one declared first. The
order is Stargraph's; that its rules can ask is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, assert_never

from abeyance.core import asking, branches, gates, interrupts, items, lifecycle, messages, routing
from abeyance.core.json import Json, matches, why_not_json
from abeyance.core.lifecycle import unpinned_target
from abeyance.core.outcome import Finished, key_of
from abeyance.core.spec import (
    END,
    Ask,
    Assert,
    Clips,
    Decision,
    Edge,
    FunctionNode,
    GoTo,
    GraphSpec,
    HaltRun,
    InterruptSpec,
    Matches,
    Parallel,
    Retract,
    Retry,
    Rule,
)
from abeyance.core.step import Step
from abeyance.core.visit import (
    Checkpoint,
    Failure,
    Ready,
    RoutingDecision,
    Token,
    Unroutable,
    Visit,
)
from abeyance.errors import BlockedCode, FailureCode

_RANK: Final = {HaltRun: 0, Retry: 1, GoTo: 2, Parallel: 3}
"""Precedence among the decisions of rules: the lowest counts."""


def finish(step: Step, visit: Visit, finished: Finished, *, is_routed: bool) -> None:
    """Merge the patch of a finished visit, and leave its node or ask what has to be asked before.

    `is_routed`: route functions have run with its code. Else they run on the merged values.
    """
    graph = step.run.graph_of(visit.scope)
    # The run may refuse this outcome.
    visit.checkpoint = visit.checkpoint.after_failure(finished.journal, {})
    # Before the merge: a failed visit that is tried again must not have changed anything.
    if unknown := unknown_targets(graph, visit.node, finished) - {*finished.unpinned}:
        _fail_unknown(step, visit, unknown)
        return
    for number, each in enumerate(finished.sends or ()):
        if (reason := why_not_json(each.item)) is not None:
            message = f"the item {number} that {visit.node!r} sends is not JSON: {reason}"
            routing.fail(step, visit, Failure(code=FailureCode.INVALID_PATCH, message=message))
            return
    if not merge(step, visit, finished.patch):
        return
    if step.run.ending is not None:
        step.drop_visit(visit.address)
        return
    interrupts.withdraw(
        step,
        interrupts.of_visit(step, visit.address),
        "the visit finished without it",
        status="superseded",
    )
    items.put_result(step, visit, finished.result)
    # Without what is merged already, or only for readers of the events.
    stored = replace(
        finished,
        patch={},
        result=None,
        turn=None,
        granted=None,
        emitted=(),
        journal=None,
    )
    visit.routing, visit.pending = RoutingDecision(outcome=stored, is_stale=not is_routed), None
    visit.checkpoint = Checkpoint()
    if _read_unread(step, visit, finished):
        return
    if visit.node in graph.interrupt_after and not visit.is_finally:
        asking.open_breakpoint(step, visit, "after")
    else:
        route_on(step, visit, visit.routing)


def _read_unread(step: Step, visit: Visit, finished: Finished) -> bool:
    """Run a guarded visit again if messages for it are unread. Return whether it does.

    So an agent reads every message that was accepted for it before it ends (netherbrain's guard).
    """
    node = step.run.node_of(visit)
    if not isinstance(node, FunctionNode) or not node.guarded:
        return False
    unread = tuple(messages.for_visit(step.run, visit))
    if finished.is_decided or not unread:
        return False
    scope = step.run.scopes[visit.scope]
    if scope.guard_turns >= step.run.limits.max_guard_turns:
        messages.report(step, unread, "guard")
        return False
    scope.guard_turns += 1
    step.drop_visit(visit.address)
    routing.enter(step, visit.scope, visit.node, members=visit.members, behind=visit.gates)
    return True


def rules_answered(step: Step, visit: Visit, route: RoutingDecision) -> None:
    """Continue routing a visit after the questions of its rules are answered."""
    _route_again_if_retried(step, visit)
    for rule in step.run.graph_of(visit.scope).rules_on(visit.node):
        for action in rule.actions:
            match action:
                case Ask(answer_to=str() as field) if (
                    key := key_of("rule", rule.id)
                ) in visit.questions.answers:
                    if not merge(step, visit, {field: visit.questions.answers[key]}, key):
                        return
                case _:
                    pass
    _leave(step, visit, route)


def route_on(step: Step, visit: Visit, route: RoutingDecision) -> None:
    """Choose the way out of a finished visit. Route functions that have not seen the current values run
    first, as soon as a workflow task has room.
    """
    graph = step.run.graph_of(visit.scope)
    decides = graph.routes_from(visit.node) and not route.outcome.is_decided
    if route.is_stale and (decides or graph.has_clips_on(visit.node)):
        visit.routing = route
        step.move(visit, "proceed", Ready(stage="rules"))
    else:
        _apply_rules(step, visit, replace(route, is_stale=False))


def reroute(step: Step, visit: Visit, route: RoutingDecision) -> None:
    """Choose the way out of a finished visit again, with the current values."""
    route_on(step, visit, replace(route, is_stale=True))


def routes_chosen(step: Step, visit: Visit, route: RoutingDecision, finished: Finished) -> None:
    """Route a visit whose route functions ran apart from its code."""
    if step.run.ending is not None:
        step.drop_visit(visit.address)
        return
    routed = () if route.outcome.is_decided else finished.route_targets
    graph = step.run.graph_of(visit.scope)
    if unknown := unknown_targets(graph, visit.node, replace(finished, route_targets=routed)):
        _fail_unknown(step, visit, unknown)
        return
    chosen = replace(route.outcome, route_targets=routed, fired_rules=finished.fired_rules)
    _apply_rules(step, visit, RoutingDecision(outcome=chosen))


def unknown_targets(graph: GraphSpec, name: str, finished: Finished) -> set[str]:
    """Return the targets that the code of a node chose and this graph does not allow."""
    if finished.sends is not None:
        chosen = {each.node for each in finished.sends}
        return chosen - ({*graph.declared_by(name)} - {END})
    if finished.goto is not None:
        return {finished.goto} - {*graph.declared_by(name), END}
    return {*finished.route_targets} - {*graph.routed_from(name)}


def _fail_unknown(step: Step, visit: Visit, unknown: set[str]) -> None:
    message = why_unknown(
        visit.node, unknown, step.run.graph_of(visit.scope).targets_of(visit.node)
    )
    routing.fail(step, visit, Failure(code=FailureCode.UNKNOWN_NODE, message=message))


def why_unknown(node: str, unknown: set[str], allowed: Iterable[str]) -> str:
    """Return the message about a node that chose targets other than the allowed ones."""
    targets = ", ".join(map(repr, sorted({*allowed}))) or "nowhere"
    return (
        f"the node {node!r} chose to go to {min(unknown)!r}; it may go to {targets}: "
        "declare its targets with to=[...]"
    )


def _apply_rules(step: Step, visit: Visit, route: RoutingDecision) -> None:
    """Evaluate the rules on the merged values: their questions first, then the strongest decision."""
    graph, values = step.run.graph_of(visit.scope), items.values_of(step.run, visit)
    questions: list[InterruptSpec] = []
    decisions: list[Decision] = []
    for rule in graph.rules_on(visit.node):
        for action in rule.actions if _rule_fires(rule, values, route.outcome.fired_rules) else ():
            match action:
                case Ask(question=question):
                    questions.append(question)
                case Assert() | Retract():
                    pass
                case _:
                    decisions.append(action)
    decision = min(decisions, key=lambda decision: _RANK[type(decision)], default=None)
    visit.routing = replace(route, decision=decision)
    # Answers to rules that asked earlier, and after which no way out was found, are merged already.
    stale = {key_of("rule", rule.id) for rule in graph.rules_on(visit.node)}
    visit.questions = visit.questions.without(stale)
    faults = (interrupts.fault_of(step, visit, question) for question in questions)
    if (fault := next(filter(None, faults), None)) is not None:
        routing.fail(step, visit, fault)
        return
    for question in questions:
        interrupts.open_question(step, visit, question, "rule")
    if not questions:
        _leave(step, visit, visit.routing)


def merge(step: Step, visit: Visit, changes: Mapping[str, Json], key: str | None = None) -> bool:
    """Merge a visit's changes, or the answer to the question of a rule by its `key`. Return False if this
    failed the visit.
    """
    before = items.values_of(step.run, visit)
    try:
        items.put_patch(step, visit.scope, visit.members, changes)
    except items.PatchError as error:
        routing.fail(step, visit, Failure(code=FailureCode.INVALID_PATCH, message=str(error)))
        return False
    if changes:
        gates.accept_own_patch(step, visit, before, key)
    return True


def _leave(step: Step, visit: Visit, route: RoutingDecision) -> None:
    graph = step.run.graph_of(visit.scope)
    values = items.values_of(step.run, visit)
    outcome = route.outcome
    _route_again_if_retried(step, visit)
    if route.decision is not None:
        _carry_out(step, visit, route.decision)
    elif unpinned := unknown_targets(graph, visit.node, outcome):
        _hold(step, visit, route, min(unpinned))
    elif outcome.sends is not None:
        branches.send(step, visit, outcome.sends)
    elif outcome.goto is not None:
        step.drop_visit(visit.address)
        routing.go_instead(step, visit, outcome.goto)
    elif (fired := routing.fired(graph, visit.node, values, outcome.route_targets)) is not None:
        step.drop_visit(visit.address)
        _fire(step, visit, fired, outcome.route_targets)
    else:
        message = (
            f"none of the conditions on the ways out of {visit.node!r} holds; "
            "add an edge with when='else'"
        )
        routing.fail(step, visit, Failure(code=FailureCode.NO_WAY_OUT, message=message))


def _hold(step: Step, visit: Visit, route: RoutingDecision, target: str) -> None:
    """Block a visit whose code, newer than the run's graph, chose a node that the graph lacks."""
    is_decided = route.outcome.is_decided
    why = unpinned_target(visit.node, target, is_decided=is_decided)
    lifecycle.block(step, visit, BlockedCode.TARGET_UNKNOWN, why)
    if is_decided:
        # The answers to rules are merged.
        rules = {
            key_of("rule", rule.id) for rule in step.run.graph_of(visit.scope).rules_on(visit.node)
        }
        visit.questions = visit.questions.without(rules)
        visit.routing = route
        step.move(visit, "hold", Unroutable())
    else:
        # Other code may choose otherwise, so the routes run again.
        reroute(step, visit, route)


def _route_again_if_retried(step: Step, visit: Visit) -> None:
    """Have a retry of the run choose the way out of a finished visit anew: it may halt or fail there."""
    assert visit.routing is not None  # noqa: S101 its code has ended
    visit.routing = replace(visit.routing, decision=None, is_stale=True)
    step.move(visit, "proceed", Ready(stage="after"))


def _carry_out(step: Step, visit: Visit, decision: Decision) -> None:
    if isinstance(decision, HaltRun):
        lifecycle.begin_ending(step, "halted", decision.reason)
        return
    step.drop_visit(visit.address)
    match decision:
        case Retry(node=str() as node, backoff=backoff):
            routing.go_instead(step, visit, node, pause=backoff)
        case Retry(backoff=backoff):
            routing.enter(
                step,
                visit.scope,
                visit.node,
                members=visit.members,
                results=visit.results,
                behind=visit.gates,
                pause=backoff,
            )
        case GoTo(node=node):
            routing.go_instead(step, visit, node)
        case Parallel(nodes=nodes):
            for node in nodes:
                routing.enter(step, visit.scope, node, members=visit.members, behind=visit.gates)
        case _:
            assert_never(decision)


def _fire(step: Step, visit: Visit, fired: tuple[Edge, ...], routed: tuple[str, ...]) -> None:
    for edge in fired:
        if edge.is_join and visit.members:
            branches.reach(step, visit, edge)
        elif len(edge.sources) > 1:
            token = Token(visit=visit.address, gates=visit.gates)
            branches.put_token(step, visit.scope, edge, visit.node, token)
        else:
            routing.enter(step, visit.scope, edge.target, members=visit.members, behind=visit.gates)
    for target in dict.fromkeys(routed):
        routing.enter(step, visit.scope, target, members=visit.members, behind=visit.gates)


def _rule_fires(rule: Rule, values: Mapping[str, Json], fired: tuple[str, ...]) -> bool:
    match rule.condition:
        case Matches(equals=equals):
            return matches(equals, values)
        case Clips():
            return rule.id in fired
        case _:
            assert_never(rule.condition)
