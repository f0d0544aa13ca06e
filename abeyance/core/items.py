"""Values as visits read and change them: a scope's, an item's, and an agent's memory.

Within an item, the values are the scope's with the item's own patches on top; those of an item inside
an item build on both. Nothing is visible outside before the fan-out is gathered, so neither other
branches nor the order of items matter. Patches of one item are folded into one: every reducer is
associative.

The conversation of an agent is stored elsewhere, and the run has only a reference to its end: in the
field `transcript` of the agent's values, and in `RunState.transcripts` once those are gone. An agent
that remembers starts with what the last visit of the same node, in the same graph, has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from abeyance.core import patch
from abeyance.core.json import Json, size
from abeyance.core.spec import FunctionNode, GraphSpec, SubgraphNode
from abeyance.core.state import Item, RunState, Scope
from abeyance.core.step import Step
from abeyance.core.visit import FanOutBranch, Visit


def values_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the values that a visit reads."""
    return values_at(state, visit.scope, visit.members)


def values_at(state: RunState, scope: str, members: tuple[FanOutBranch, ...]) -> Mapping[str, Json]:
    """Return the values within these items of a scope's fan-outs; without any, the scope's own."""
    values = state.scopes[scope].values
    for member in members:
        changed = item_of(state, scope, member).patch
        if changed:
            values = patch.applied(state.graph_of(scope), values, changed)
    return values


def version_of(state: RunState, visit: Visit) -> int:
    """Return the version of the values that a visit reads: it grows with every change of them."""
    own = (item_of(state, visit.scope, member).changes for member in visit.members)
    return state.scopes[visit.scope].version + sum(own)


def answers_of(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the answers that a visit sees: its own item's take precedence over the scope's."""
    answers = state.scopes[visit.scope].answers
    for member in visit.members:
        own = item_of(state, visit.scope, member).answers
        answers = {**answers, **own} if own else answers
    return answers


def item_of(state: RunState, scope: str, member: FanOutBranch) -> Item:
    """Return one item of a fan-out under way."""
    return state.scopes[scope].fans[member.fan].items[member.index]


def put_patch(
    step: Step,
    scope_address: str,
    members: tuple[FanOutBranch, ...],
    *patches: Mapping[str, Json],
) -> None:
    """Merge changes where they belong: into the innermost item, or into the scope.

    Raises PatchError, and merges nothing, if one of them cannot be merged.
    """
    changed = [*filter(None, patches)]
    if not changed:
        return
    graph = step.run.graph_of(scope_address)
    values = values_at(step.run, scope_address, members)
    for changes in changed:
        values = patch.merged(graph, values, changes)
    if not members:
        put_values(step, scope_address, values, versions=len(changed))
    for changes in changed if members else ():
        item = item_of(step.run, scope_address, members[-1])
        item.patch = patch.applied(graph, item.patch, changes)
        item.changes += 1


def put_values(
    step: Step, scope_address: str, values: Mapping[str, Json], *, versions: int = 1
) -> None:
    """Replace the values of a scope, raising their version by `versions`."""
    scope = step.run.scopes[scope_address]
    scope.values, scope.size = values, size(values)
    scope.version += versions


def put_result(step: Step, visit: Visit, result: Json) -> None:
    """Set the result of a tool call, merged over what was known of it before."""
    if result is not None and visit.members:
        item = item_of(step.run, visit.scope, visit.members[-1])
        if isinstance(item.result, Mapping) and isinstance(result, Mapping):
            result = {**item.result, **result}
        item.result = result


def put_answers(
    step: Step, scope: str, members: tuple[FanOutBranch, ...], answers: Mapping[str, Json]
) -> None:
    """Store answers where later visits of the same item, or of the scope, read them."""
    if answers:
        holder = holder_of(step, scope, members)
        holder.answers = {**holder.answers, **answers}


def holder_of(step: Step, scope: str, members: tuple[FanOutBranch, ...]) -> Item | Scope:
    """Return the innermost item, else the scope, to change."""
    return item_of(step.run, scope, members[-1]) if members else step.run.scopes[scope]


def forget_counts(step: Step, visit: Visit) -> None:
    """Reset the visit counts around a visit, and around the graph that it is in."""
    scope = step.run.scopes[visit.scope]
    scope.visit_counts = {}
    for member in visit.members:
        item_of(step.run, visit.scope, member).visit_counts = {}
    if scope.visit is not None:
        forget_counts(step, step.run.visits[scope.visit])


def forget_all_counts(step: Step) -> None:
    """Reset the visit counts of every scope and item."""
    for scope in step.run.scopes.values():
        scope.visit_counts = {}
        for item in (item for fan in scope.fans.values() for item in fan.items):
            item.visit_counts = {}


def gathering(graph: GraphSpec, targets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of the joins that gather a fan-out to these targets, in order of declaration.

    They are those reachable from the targets, where a sending node on the way counts as one more
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
            # If a node is reachable at several depths, use the smallest; deeper paths are gotos or loops.
            if 0 < depth < depths.get(target, inf):
                depths[target] = depth
                waiting.append(target)
    return tuple(
        edge.key
        for edge in graph.edges
        if edge.is_join and any(depths.get(source) == 1 for source in edge.sources)
    )


TRANSCRIPT_FIELD: Final = "transcript"
"""The field of an agent's values that refers to the end of its conversation."""
_MOST_TRANSCRIPTS: Final = 200


def keep_agent(step: Step, visit: Visit, scope: Scope) -> None:
    """Store the memory and the transcript of an agent whose scope is about to be dropped."""
    memory = dict(step.run.agent_memory)
    for key in [key for key in memory if key.startswith(f"{scope.address}/")]:
        # Agents inside it are never entered again.
        del memory[key]
    node = step.run.node_of(visit)
    if isinstance(node, SubgraphNode) and node.remembers:
        memory[_agent_key(visit)] = {
            name: scope.values[name] for name in node.remembers if name in scope.values
        }
    if memory != step.run.agent_memory:
        step.run.agent_memory = memory
    head = scope.values.get(TRANSCRIPT_FIELD)
    if scope.is_agent and isinstance(head, str):
        references = {**step.run.transcripts, scope.address: head}
        while len(references) > _MOST_TRANSCRIPTS:
            del references[next(iter(references))]
        step.run.transcripts = references


def agent_memory(state: RunState, visit: Visit) -> Mapping[str, Json]:
    """Return the values that a visit of an agent's node starts with."""
    return state.agent_memory.get(_agent_key(visit), {})


def transcripts(state: RunState) -> dict[str, str]:
    """Return the transcripts of a run's agents, by the agents' addresses."""
    heads = {
        scope.address: scope.values.get(TRANSCRIPT_FIELD)
        for scope in state.scopes.values()
        if scope.is_agent
    }
    return {
        **state.transcripts,
        **{key: head for key, head in heads.items() if isinstance(head, str)},
    }


def call_results(state: RunState) -> dict[str, dict[str, Json]]:
    """Return the results of tool calls that are in no transcript yet, by the address of the agent and the
    id of the call: of fan-outs under way, and of those that the current turn is reading.
    """
    results = {
        scope.address: {
            str(item.item["call_id"]): item.result
            for fan in scope.fans.values()
            for item in fan.items
            if isinstance(item.item, Mapping) and item.result is not None
        }
        for scope in state.scopes.values()
        if scope.is_agent and scope.fans
    }
    for visit in state.visits.values():
        scope = state.scopes.get(visit.scope)
        if visit.results and scope is not None and scope.is_agent:
            results.setdefault(scope.address, {}).update(
                {
                    str(each["item"]["call_id"]): each["result"]
                    for each in visit.results
                    if "result" in each
                }
            )
    return results


def _agent_key(visit: Visit) -> str:
    return f"{visit.scope}/{visit.node}"
