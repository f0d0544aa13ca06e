"""How a visit ends: its patch is merged, the rules are asked, and one way out of its node is taken.

A visit that finishes merges its patch. Then the graph's rules say what they say, once. If they ask
people something, the visit waits with its way on held until they have answered. The way is the rules'
decision; without one the target of a returned Goto; without that all edges whose condition holds on the
merged values, and those that route functions chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from abeyance.core import ending, flow, gate, patch, rules
from abeyance.core.canonical import Json
from abeyance.core.draft import Draft
from abeyance.core.model import (
    END,
    Always,
    Decision,
    Edge,
    Else,
    FunctionNode,
    GoTo,
    HaltRun,
    Parallel,
    Retry,
    When,
)
from abeyance.core.state import Failure, RunState, Visit, Way
from abeyance.errors import FailureCode


def start_scope(draft: Draft, scope_address: str, source: str) -> None:
    """Fire the edges out of START. If no condition holds, the run fails."""
    fired = _fired(draft.state, scope_address, source, ())
    if fired is None:
        message = "none of the conditions on the edges from START holds for this input"
        error = Failure(code=FailureCode.NO_WAY_OUT, message=message, address=scope_address)
        ending.begin(draft, "failed", message, error=error)
        return
    _fire(draft, scope_address, source, scope_address, fired=fired, routed=())


def finish(
    draft: Draft,
    visit: Visit,
    changes: Mapping[str, Json],
    *,
    goto: str | None = None,
    routed: tuple[str, ...] = (),
) -> None:
    """A visit is done: merge its patch, and leave its node or ask what has to be asked before."""
    spec = draft.state.spec
    values = _merged(draft, visit, changes)
    if values is None:
        return
    node = spec.nodes[visit.node]
    declared = node.to if isinstance(node, FunctionNode) else ()
    chosen = (goto,) if goto is not None else routed
    allowed = (
        {*declared, END}
        if goto is not None
        else {target for route in spec.routes_from(visit.node) for target in route.targets}
    )
    for target in chosen:
        if target not in allowed:
            message = (
                f"the node {visit.node!r} chose to go to {target!r}; it may go to "
                f"{', '.join(map(repr, sorted(allowed)))}: declare its targets with to=[...]"
            )
            flow.fail(draft, visit, Failure(code=FailureCode.UNKNOWN_NODE, message=message))
            return
    if draft.state.ending is not None:
        draft.drop_visit(visit.address)
        return
    verdict = rules.judge(spec, visit.node, values)
    way = Way(decision=verdict.decision, goto=goto, routed=routed)
    asking = replace(visit, way=way, journal=None, stopping=False)
    for question in verdict.questions:
        gate.open_question(draft, asking, question, "rule")
    if not verdict.questions:
        _leave(draft, visit, way)


def go_on(draft: Draft, visit: Visit, way: Way) -> None:
    """What the rules asked after a visit is answered: it leaves by the way that was held."""
    for changes in rules.answers_to(draft.state.spec, visit.node, visit.answers):
        if _merged(draft, visit, changes) is None:
            return
    _leave(draft, visit, way)


def _merged(draft: Draft, visit: Visit, changes: Mapping[str, Json]) -> Mapping[str, Json] | None:
    values = draft.state.scopes[visit.scope].values
    if not changes:
        return values
    try:
        values = patch.merged(draft.state.spec, values, changes)
    except patch.PatchError as error:
        flow.fail(draft, visit, Failure(code=FailureCode.INVALID_PATCH, message=str(error)))
        return None
    flow.put_values(draft, visit.scope, values)
    return values


def _leave(draft: Draft, visit: Visit, way: Way) -> None:
    if way.decision is not None:
        draft.drop_visit(visit.address)
        _obey(draft, visit, way.decision)
    elif way.goto is not None:
        draft.drop_visit(visit.address)
        flow.go(draft, visit.scope, way.goto)
    elif (fired := _fired(draft.state, visit.scope, visit.node, way.routed)) is not None:
        draft.drop_visit(visit.address)
        _fire(draft, visit.scope, visit.node, visit.address, fired=fired, routed=way.routed)
    else:
        message = (
            f"none of the conditions on the ways out of {visit.node!r} holds; "
            "add an edge with when='else'"
        )
        flow.fail(draft, visit, Failure(code=FailureCode.NO_WAY_OUT, message=message))


def _obey(draft: Draft, visit: Visit, decision: Decision) -> None:
    match decision:
        case HaltRun(reason=reason):
            ending.begin(draft, "halted", reason)
        case Retry():
            flow.enter(draft, visit.scope, visit.node)
        case GoTo(node=node):
            flow.go(draft, visit.scope, node)
        case Parallel(nodes=nodes):
            for node in nodes:
                flow.go(draft, visit.scope, node)
        case _:
            assert_never(decision)


def _fired(
    state: RunState, scope_address: str, source: str, routed: tuple[str, ...]
) -> tuple[Edge, ...] | None:
    values = state.scopes[scope_address].values
    edges = state.spec.edges_from(source)
    holding = [edge for edge in edges if _holds(edge, values)]
    is_conditional = bool(state.spec.routes_from(source)) or any(
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
    draft: Draft,
    scope_address: str,
    source: str,
    visit: str,
    *,
    fired: tuple[Edge, ...],
    routed: tuple[str, ...],
) -> None:
    for edge in fired:
        if len(edge.sources) > 1:
            flow.put_token(draft, scope_address, edge, source, visit)
        else:
            flow.go(draft, scope_address, edge.target)
    for target in dict.fromkeys(routed):
        flow.go(draft, scope_address, target)
