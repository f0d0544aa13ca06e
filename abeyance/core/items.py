"""What the visits of a fan-out's items read, change and are told.

Within an item, the values are the scope's with the item's own patches on top; those of an item inside
an item lie on both. Nothing of it is seen outside before the fan-out is gathered, so what other branches
do meanwhile, and in which order items come along, changes nothing. Patches of one item are folded into
one: every reducer is associative.
"""

from __future__ import annotations

from collections.abc import Mapping

from abeyance.core import patch
from abeyance.core.json import Json, canonical, size
from abeyance.core.spec import FunctionNode, GraphSpec
from abeyance.core.state import FanOutBranch, Item, RunState, Visit
from abeyance.core.working_state import WorkingState


def values_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """The values that a visit reads."""
    return values_at(state, visit.scope, visit.members)


def values_at(state: RunState, scope: str, members: tuple[FanOutBranch, ...]) -> Mapping[str, Json]:
    """The values within these items of a scope's fan-outs; within none, the scope's own."""
    values = state.scopes[scope].values
    for member in members:
        changed = item_of(state, scope, member).patch
        if changed:
            values = patch.applied(state.graph_of(scope), values, changed)
    return values


def version_of(state: RunState, visit: Visit) -> int:
    """The version of the values that a visit reads: it grows with every change of them."""
    own = (item_of(state, visit.scope, member).changes for member in visit.members)
    return state.scopes[visit.scope].version + sum(own)


def answers_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """What people answered so far, as a visit sees it: its own item's answers before the scope's."""
    answers = state.scopes[visit.scope].answers
    for member in visit.members:
        own = item_of(state, visit.scope, member).answers
        answers = {**answers, **own} if own else answers
    return answers


def item_of(state: RunState, scope: str, member: FanOutBranch) -> Item:
    """One item of a fan-out under way."""
    return state.scopes[scope].fans[member.fan].items[member.index]


def put_patch(
    draft: WorkingState,
    scope_address: str,
    members: tuple[FanOutBranch, ...],
    *patches: Mapping[str, Json],
) -> None:
    """Merge what was changed where it belongs: into the innermost item, or into the scope.

    Raises PatchError at the first patch that cannot be merged; those before it are.
    """
    if not any(patches):
        return
    graph = draft.graph(scope_address)
    values = values_at(draft.state, scope_address, members)
    done = []
    try:
        for changes in filter(None, patches):
            values = patch.merged(graph, values, changes)
            done.append(changes)
    finally:
        if done and not members:
            put_values(draft, scope_address, values, versions=len(done))
    for changes in done if members else ():
        item = draft.item(scope_address, members[-1])
        item.patch = patch.applied(graph, item.patch, changes)
        item.changes += 1


def put_values(
    draft: WorkingState, scope_address: str, values: Mapping[str, Json], *, versions: int = 1
) -> None:
    """Replace the values of a scope, by what is so many versions newer."""
    scope = draft.scope(scope_address)
    scope.values, scope.size = values, size(values)
    scope.version += versions


def set_fields(draft: WorkingState, visit: Visit, fields: Mapping[str, Json]) -> None:
    """Set fields of the values that a visit reads, whatever their reducers."""
    if not visit.members:
        put_values(draft, visit.scope, {**draft.state.scopes[visit.scope].values, **fields})
        return
    own = _contributions(draft.state, visit, fields)
    item = draft.item(visit.scope, visit.members[-1])
    item.patch = {**item.patch, **own}
    item.changes += 1


def put_result(draft: WorkingState, visit: Visit, result: Json) -> None:
    """Set what the call of a tool has come to; what was known of it before stays beside that."""
    if result is not None and visit.members:
        item = draft.item(visit.scope, visit.members[-1])
        if isinstance(item.result, Mapping) and isinstance(result, Mapping):
            result = {**item.result, **result}
        item.result = result


def hear(
    draft: WorkingState,
    scope: str,
    members: tuple[FanOutBranch, ...],
    heard: tuple[str | None, ...],
) -> None:
    """Remember for an item of a fan-out what its visits have heard of people."""
    if members and heard:
        item = draft.item(scope, members[-1])
        item.heard_from = tuple(dict.fromkeys([*item.heard_from, *heard]))


def unreachable(state: RunState, visit: Visit, fields: Mapping[str, Json]) -> list[str]:
    """Those of the fields that cannot be set so: an item can only add to what is gathered by adding."""
    if not visit.members:
        return []
    graph = state.graph_of(visit.scope)
    below = values_at(state, visit.scope, visit.members[:-1])
    beyond = []
    for name, change in _contributions(state, visit, fields).items():
        try:
            found = patch.merged(graph, below, {name: change})[name]
        except patch.PatchError:
            beyond.append(name)
        else:
            if canonical(found) != canonical(fields[name]):
                beyond.append(name)
    return beyond


def _contributions(state: RunState, visit: Visit, fields: Mapping[str, Json]) -> Mapping[str, Json]:
    reducers = state.graph_of(visit.scope).fields
    below = values_at(state, visit.scope, visit.members[:-1])
    return {
        name: patch.contribution(reducers.get(name), below.get(name), value)
        for name, value in fields.items()
    }


def put_answers(
    draft: WorkingState, scope: str, members: tuple[FanOutBranch, ...], answers: Mapping[str, Json]
) -> None:
    """Remember answers where later visits of the same item, or of the scope, read them."""
    if answers:
        holder = draft.item(scope, members[-1]) if members else draft.scope(scope)
        holder.answers = {**holder.answers, **answers}


def forget_counts(draft: WorkingState, visit: Visit) -> None:
    """Start counting visits anew where this one is, and around the graph that it is in."""
    for member in visit.members:
        draft.item(visit.scope, member).visit_counts = {}
    scope = draft.scope(visit.scope)
    scope.visit_counts = {}
    if scope.visit is not None:
        forget_counts(draft, draft.state.visits[scope.visit])


def forget_all_counts(draft: WorkingState) -> None:
    """Start counting visits anew everywhere."""
    for address in draft.state.scopes:
        scope = draft.scope(address)
        scope.visit_counts = {}
        for key, fan in scope.fans.items():
            for index, item in enumerate(fan.items):
                if item.visit_counts:
                    draft.item(address, FanOutBranch(fan=key, index=index)).visit_counts = {}


def gathering(graph: GraphSpec, targets: tuple[str, ...]) -> tuple[str, ...]:
    """The joins that gather a fan-out to these targets, by their keys, in order of declaration.

    They are those that can be reached from the targets, counting a sending node on the way as one more
    fan-out, and its join as the end of that.
    """
    depths = dict.fromkeys(targets, 1)
    waiting = list(depths)
    while waiting:
        name = waiting.pop()
        node = graph.nodes.get(name)
        deeper = node.to if isinstance(node, FunctionNode) else ()
        joined = {edge.target for edge in graph.edges_from(name) if edge.is_join}
        for target in graph.successors(name):
            depth = depths[name] + (target in deeper) - (target in joined)
            # A node that is reached in several ways stands where the shallowest leads: the deeper one
            # was a goto, or goes round.
            if 0 < depth < depths.get(target, len(graph.nodes) + 1):
                depths[target] = depth
                waiting.append(target)
    return tuple(
        edge.key
        for edge in graph.edges
        if edge.is_join and any(depths.get(source) == 1 for source in edge.sources)
    )
