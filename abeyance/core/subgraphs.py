"""Nested graphs: a node that is walked in a scope of its own, within the same run.

The scope begins with what the node's `input` maps into it, and has an address below that of its visit.
It is over when nothing in it is ready, running or waiting and no join has tokens left. Its changes are
then the patch of the visit: for fields that were mapped in, only the difference, so that a list to
which both sides append is not appended twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from abeyance.core import decisions, gates, items, patch, reopening, routing, visits
from abeyance.core.address import below
from abeyance.core.json import Json, canonical, size
from abeyance.core.outcome import Finished
from abeyance.core.spec import GraphSpec, SubgraphNode
from abeyance.core.state import Item, Scope
from abeyance.core.step import Step
from abeyance.core.visit import BY_SCOPE, Nested, Ready, Visit


def begin(step: Step, visit: Visit, node: SubgraphNode) -> None:
    """Walk a node's graph for a visit."""
    outer = step.run.scopes[visit.scope]
    values = items.values_of(step.run, visit)
    inputs = _inputs(step.run.graph_of(visit.scope), node, values)
    input_values = {target: values[source] for target, source in inputs.items() if source in values}
    kind = "agent" if node.agent else "graph"
    address = below(visit.address, kind, node.graph.name)
    remembered = items.agent_memory(step.run, visit)
    initial = {**node.defaults, **input_values, **remembered}
    if node.agent:
        call = Item(item=None)
        if visit.members:
            call = items.item_of(step.run, visit.scope, visit.members[-1])
        initial["input"] = {
            "values": dict(values),
            "item": call.item,
            "result": call.result,
            "answers": dict(visit.questions.answers),
            "media_hosts": list(step.run.limits.allowed_media_hosts),
        }
    if (failure := visits.why_not_started(node.graph, address, initial)) is not None:
        routing.fail(step, visit, failure)
        return
    step.move(visit, "begin_graph", Nested())
    visit.activations += 1
    step.add_scope(
        Scope(
            address=address,
            is_agent=node.agent,
            values=initial,
            size=size(initial),
            visit=visit.address,
            path=(*outer.path, node.id),
            input=input_values,
            # A field with an initial value of its own is not the field that was shown.
            handed={
                target: source
                for target, source in inputs.items()
                if target not in initial or (target in input_values and target not in remembered)
            },
        )
    )
    visits.start_scope(step, address, visit.gates)


def close(step: Step) -> bool:
    """Close a nested graph in which nothing can happen any more. Return False if there is none."""
    for scope in step.left():
        if scope.visit is None or step.run.visits.count(BY_SCOPE, scope.address):
            continue
        if routing.release_starved(step, scope):
            return True
        if (gate := gates.changed_inside(step.run, scope.address)) is not None:
            reopening.ask_again(step, gate, before=scope.visit)
            return True
        visit = step.run.visits[scope.visit]
        graph, node = step.run.graph_of(visit.scope), step.run.node_of(visit)
        assert isinstance(node, SubgraphNode)  # noqa: S101 no other node has a scope
        inputs = _inputs(graph, node, items.values_of(step.run, visit))
        outputs = _outputs(graph, node, scope)
        changed = _changed(graph, node, scope, inputs, outputs)
        made = {target: source for target, source in outputs.items() if target in changed}
        gates.handed_out(step, graph, scope, inputs, made)
        result = None
        if node.result is not None:
            edit = {} if visit.call is None else decisions.edit(step.run, visit)
            result = {"content": scope.values.get(node.result), **edit}
        items.keep_agent(step, visit, scope)
        step.drop_scope(scope.address)
        step.move(visit, "end_graph", Ready(stage="body"))
        visit.pending = Finished(patch=changed, result=result)
        return True
    return False


def _changed(
    graph: GraphSpec,
    node: SubgraphNode,
    scope: Scope,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
) -> Mapping[str, Json]:
    changes: dict[str, Json] = {}
    for target, source in outputs.items():
        if source not in scope.values:
            continue
        now = scope.values[source]
        if node.agent and now is None and scope.values.get("input") is not None:
            # An agent that was denied has no output, so the field stays as it is.
            continue
        if inputs.get(source) == target and source in scope.input:
            before = scope.input[source]
            if canonical(now) != canonical(before):
                changes[target] = patch.contribution(graph.fields.get(target), before, now)
        else:
            changes[target] = now
    return changes


def _outputs(graph: GraphSpec, node: SubgraphNode, scope: Scope) -> Mapping[str, str]:
    if node.output is not None:
        return node.output
    return {name: name for name in scope.values if graph.open_values or name in graph.fields}


def _inputs(graph: GraphSpec, node: SubgraphNode, values: Mapping[str, Json]) -> Mapping[str, str]:
    if node.input is not None:
        return node.input
    inner = node.graph
    return {
        name: name
        for name in ({**graph.fields, **values} if graph.open_values else graph.fields)
        if inner.open_values or name in inner.fields
    }
