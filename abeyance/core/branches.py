"""How branches begin, come together and are left: starts, joins, fan-outs, nested graphs.

*A join* keeps a queue of tokens for each source and fires when every source has one, taking the oldest of
each, so that loops pair up.

*A fan-out.* A node that returns `[Send(node, item), ...]` fans out. Each item is a visit of its own; what
follows it belongs to the same item. A join behind it gathers the fan-out: it waits until every item has
arrived there or ended elsewhere, and then its target is entered once, outside the fan-out, with the
patches of the items merged in the order of the list. An empty list is gathered at once. The patch of an
item that ended elsewhere is dropped; without any join, all changes are merged when the last item has
ended. Fan-outs can be nested.

*A nested graph* is walked in a scope of its own, within the same run. The scope begins with what the
node's `input` maps into it, and has an address below that of its visit. It is over when nothing in it is
ready, running or waiting and no join has tokens left. Its changes are then the patch of the visit: for
fields that were mapped in, only the difference, so that a list to which both sides append is not appended
twice.

*A gate that is asked again*: everything that its answer led to is left, as if it had not been given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from abeyance.core import approvals, four_eyes, gates, interrupts, items, routing
from abeyance.core.address import below
from abeyance.core.json import Json, canonical, size
from abeyance.core.outcome import Finished, Send
from abeyance.core.spec import START, Edge, GraphSpec, SubgraphNode
from abeyance.core.state import WITH_FANS, FanOut, Item, Scope
from abeyance.core.step import Step
from abeyance.core.tables import ALL
from abeyance.core.terms import KINDS
from abeyance.core.visit import (
    BY_BRANCH,
    BY_SCOPE,
    IN_SCOPE,
    Failure,
    FanOutBranch,
    Gate,
    Nested,
    Ready,
    Token,
    Visit,
)
from abeyance.errors import FailureCode


def start_scope(step: Step, scope_address: str, behind: tuple[str, ...] = ()) -> None:
    """Fire the edges out of START. If no condition holds, the graph fails. `behind` are the gates that
    led to it.
    """
    graph, scope = step.run.graph_of(scope_address), step.run.scopes[scope_address]
    if (failure := why_not_started(graph, scope_address, scope.values)) is not None:
        routing.fail_scope(step, scope_address, failure)
        return
    token = Token(visit=scope_address, gates=behind)
    for edge in routing.fired(graph, START, scope.values) or ():
        # An edge with no other source leads on at once.
        put_token(step, scope_address, edge, START, token)


def why_not_started(graph: GraphSpec, address: str, values: Mapping[str, Json]) -> Failure | None:
    """Return the failure of a graph in which no edge out of START may fire, None if one may."""
    if routing.fired(graph, START, values) is not None:
        return None
    message = (
        "none of the conditions on the edges from START holds for this input; "
        "add an edge with when='else'"
    )
    return Failure(code=FailureCode.NO_WAY_OUT, message=message, address=address)


def put_token(
    step: Step,
    scope_address: str,
    edge: Edge,
    source: str,
    token: Token,
    *,
    first: bool = False,
) -> None:
    """Leave a visit's token at a join, and enter its target if no other is missing."""
    scope = step.run.scopes[scope_address]
    come = scope.tokens.get(edge.key, {})
    queue = come.get(source, ())
    come = {**come, source: (token, *queue) if first else (*queue, token)}
    if all(come.get(name) for name in edge.sources):
        _fire_join(step, scope_address, edge, come)
    else:
        _keep_tokens(step, scope_address, edge.key, come)


def take_tokens_back(step: Step, gate: Gate) -> None:
    """Undo the effect of a gate's answer at the joins of its scope: drop the tokens that it led to, and
    put back those that were taken together with them.
    """
    scope_address = gate.scope
    for key, come in step.run.scopes[scope_address].tokens.items():
        remaining = {
            source: tuple(token for token in queue if gate.question not in token.gates)
            for source, queue in come.items()
        }
        _keep_tokens(step, scope_address, key, remaining)
    edges = {edge.key: edge for edge in step.run.graph_of(scope_address).edges}
    for each in reversed(gate.taken):
        put_token(step, scope_address, edges[each.edge], each.source, each.token, first=True)


def release_starved(step: Step, scope: Scope) -> bool:
    """Release or fail a starved join of a scope in which nothing else can happen. Return False if there
    is none.

    A join with `arrived` starts with what has arrived; any other fails the graph.
    """
    graph = step.run.graph_of(scope.address)
    starved = [edge for edge in graph.edges if edge.key in scope.tokens]
    if not starved:
        return False
    edge = next((edge for edge in starved if edge.join == "arrived"), starved[0])
    come = scope.tokens[edge.key]
    if edge.join == "arrived":
        _fire_join(step, scope.address, edge, come)
        return True
    missing = [name for name in edge.sources if name not in come]
    message = (
        f"the join of {', '.join(map(repr, edge.sources))} into {edge.target!r} waits for "
        f"{', '.join(map(repr, missing))}, which cannot come any more; "
        f"{', '.join(map(repr, come))} did. Use join='arrived' if that is enough"
    )
    failure = Failure(code=FailureCode.JOIN_STARVED, message=message, address=scope.address)
    routing.fail_scope(step, scope.address, failure)
    return True


def _fire_join(step: Step, scope: str, edge: Edge, come: Mapping[str, tuple[Token, ...]]) -> None:
    _keep_tokens(step, scope, edge.key, {name: queue[1:] for name, queue in come.items()})
    taken = {name: queue[0] for name, queue in come.items() if queue}
    routing.enter(step, scope, edge.target, behind=gates.joined(step, scope, edge.key, taken))


def _keep_tokens(
    step: Step, scope_address: str, key: str, come: Mapping[str, tuple[Token, ...]]
) -> None:
    scope = step.run.scopes[scope_address]
    remaining = {name: queue for name, queue in come.items() if queue}
    # The edge that changed last comes last.
    others = {other: tokens for other, tokens in scope.tokens.items() if other != key}
    scope.tokens = {**others, key: remaining} if remaining else others


def send(step: Step, visit: Visit, sends: tuple[Send, ...]) -> None:
    """Begin a fan-out in place of the sending visit's edges."""
    for name in dict.fromkeys(each.node for each in sends):
        if not routing.count(step, visit.scope, name, visit.members, visit.address):
            return
    step.drop_visit(visit.address)
    graph = step.run.graph_of(visit.scope)
    fan = FanOut(
        outer=visit.members,
        joins=items.gathering(graph, graph.declared_by(visit.node)),
        items=[Item(item=each.item) for each in sends],
        gates=visit.gates,
        first_address=visit.first_address,
    )
    scope = step.run.scopes[visit.scope]
    step.put_fans(scope, {**scope.fans, visit.address: fan})
    for index, each in enumerate(sends):
        member = FanOutBranch(fan=visit.address, index=index)
        routing.enter(
            step,
            visit.scope,
            each.node,
            members=(*visit.members, member),
            call=each.call,
            behind=visit.gates,
        )


def reach(step: Step, visit: Visit, edge: Edge) -> None:
    """Record that a visit of an item has reached a join."""
    member = visit.members[-1]
    item = items.item_of(step.run, visit.scope, member)
    if edge.key not in item.joins_reached:
        item.joins_reached = (*item.joins_reached, edge.key)


def gather(step: Step) -> bool:
    """Gather a fan-out in which nothing is under way any more. Return False if there is none."""
    for scope in step.run.scopes.found(WITH_FANS, ALL):
        outer = {member.fan for fan in scope.fans.values() for member in fan.outer}
        for address, fan in scope.fans.items():
            if address not in outer and not step.run.visits.count(BY_BRANCH, address):
                _gather(step, scope.address, address, fan)
                return True
    return False


def _gather(step: Step, scope_address: str, address: str, fan: FanOut) -> None:
    scope, graph = step.run.scopes[scope_address], step.run.graph_of(scope_address)
    reached = {key for item in fan.items for key in item.joins_reached}
    is_gathered = bool(reached or fan.joins)
    merged = {
        index: item
        for index, item in enumerate(fan.items)
        if item.joins_reached or not (is_gathered or item.left_fan_out)
    }
    if (gate := gates.changed_inside(step.run, scope_address, address, merged)) is not None:
        ask_again(step, gate, before=address)
        return
    try:
        items.put_patch(step, scope_address, fan.outer, *(item.patch for item in merged.values()))
    except items.PatchError as error:
        message = f"the items of the fan-out of {address} cannot be merged: {error}"
        failure = Failure(code=FailureCode.INVALID_PATCH, message=message, address=address)
        routing.fail_scope(step, scope_address, failure)
        return
    step.put_fans(scope, {key: each for key, each in scope.fans.items() if key != address})
    answers = {name: each for item in merged.values() for name, each in item.answers.items()}
    items.put_answers(step, scope_address, fan.outer, answers)
    four_eyes.gather(step, scope_address, fan.outer, fan.items)
    behind = gates.gathered(step, scope_address, address, fan, merged)
    results: Json = [
        {"item": item.item, "status": _status(item)}
        | ({} if item.result is None else {"result": item.result})
        for item in fan.items
    ]
    keys = reached or set(fan.joins)
    for target in dict.fromkeys(edge.target for edge in graph.edges if edge.key in keys):
        routing.enter(
            step, scope_address, target, members=fan.outer, results=results, behind=behind
        )


def _status(item: Item) -> str:
    if item.skipped:
        return "skipped"
    if item.joins_reached:
        return "arrived"
    return "left" if item.left_fan_out else "ended"


def begin_nested(step: Step, visit: Visit, node: SubgraphNode) -> None:
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
    if (failure := why_not_started(node.graph, address, initial)) is not None:
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
    start_scope(step, address, visit.gates)


def close_nested(step: Step) -> bool:
    """Close a nested graph in which nothing can happen any more. Return False if there is none."""
    for scope in step.left():
        if scope.visit is None or step.run.visits.count(BY_SCOPE, scope.address):
            continue
        if release_starved(step, scope):
            return True
        if (gate := gates.changed_inside(step.run, scope.address)) is not None:
            ask_again(step, gate, before=scope.visit)
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
            edit = {} if visit.call is None else approvals.edit(step.run, visit)
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
                changes[target] = items.contribution(graph.fields.get(target), before, now)
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


def ask_again(step: Step, gate: Gate, *, before: str, misfit: str | None = None) -> None:
    """Ask a gate again, because the values that it showed have changed, or because code cannot read the
    answer, as `misfit` explains. `before` is the address of the visit that was about to begin or to end.
    """
    why = interrupts.tell_asked_again(
        step, gate.visit, node=gate.node, before=before, misfit=misfit
    )
    _retrace(step, gate, f"{gate.node!r} is asked again: {why}")
    route = gate.routing
    again = routing.enter(
        step,
        gate.scope,
        gate.node,
        members=gate.members,
        behind=gate.before,
        # Its code has run; only the rule asks again.
        routed=None if route is None else replace(route, is_stale=True),
    )
    assert again is not None  # noqa: S101 END asks nothing
    if misfit is not None:
        again.misfits = {gate.key: misfit}
    if gate.has_led:
        again.repeats = (gate.key,)


def ask_changed_gates_again(step: Step) -> None:
    """Ask each gate again that led to an open question, and that people have changed what it showed: the
    answer to that question would lead to nothing.

    The run's own questions, after an error and at a breakpoint, stay: their answers may lead elsewhere.
    """
    for entry in list(step.run.ledger.open.values()):
        visit = step.run.visits.get(entry.visit)
        if visit is None or KINDS[entry.kind].asked_by != "author":
            continue
        if (changed := gates.first_changed(step.run, visit)) is not None:
            ask_again(step, changed, before=visit.address)


def _retrace(step: Step, gate: Gate, reason: str) -> None:
    scope, id_ = step.run.scopes[gate.scope], gate.question
    fans = [key for key, fan in scope.fans.items() if key == gate.visit or id_ in fan.gates]
    for visit in step.run.visits.found(BY_SCOPE, scope.address):
        if id_ in visit.gates:
            routing.leave_unit(step, visit, reason)
    for key in fans:
        _abandon(step, scope.address, key, reason)
    for member in gate.members[-1:]:
        # The item may reach other joins now.
        items.item_of(step.run, scope.address, member).joins_reached = ()
    for each in step.run.gates.found(IN_SCOPE, scope.address):
        is_left = any(member.fan in fans for member in each.members)
        if is_left or each.question == id_ or id_ in each.before:
            del step.run.gates[each.question]
            if not each.begun:
                # Once its code has begun, an answer is not marked as asked again.
                interrupts.mark_asked_again(step, each.question)
        elif left := [t for t in each.taken if t in gate.taken or id_ in t.token.gates]:
            taken = tuple(token for token in each.taken if token not in left)
            step.run.gates[each.question] = replace(each, taken=taken)
    take_tokens_back(step, gate)


def _abandon(step: Step, scope: str, address: str, reason: str) -> None:
    """Leave a fan-out with everything that is under way in it."""
    for visit in step.run.visits.found(BY_BRANCH, address):
        routing.leave_unit(step, visit, reason)
    around = step.run.scopes[scope]
    fans = {
        key: fan
        for key, fan in around.fans.items()
        if address not in (key, *(each.fan for each in fan.outer))
    }
    step.put_fans(around, fans)
