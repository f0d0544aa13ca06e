"""Fan-outs: one visit for each item of a list, gathered at a join.

A node that returns `[Send(node, item), ...]` fans out. Each item is a visit of its own; what follows it
belongs to the same item. A join behind it gathers the fan-out: it waits until every item has arrived
there or ended elsewhere, and then its target is entered once, outside the fan-out, with the items'
patches merged in the order of the list. An empty list is gathered at once. The patch of an item that
ended elsewhere is dropped; without any join, all changes are merged when the last item has ended.
Fan-outs can be nested.
"""

from __future__ import annotations

from abeyance.core import four_eyes, gates, items, patch, reopening, routing
from abeyance.core.json import Json
from abeyance.core.outcome import Send
from abeyance.core.spec import Edge
from abeyance.core.state import WITH_FANS, FanOut, Item
from abeyance.core.step import Step
from abeyance.core.tables import ALL
from abeyance.core.visit import BY_BRANCH, Failure, FanOutBranch, Visit
from abeyance.errors import FailureCode


def send(step: Step, visit: Visit, sends: tuple[Send, ...], *, is_exempt: bool) -> None:
    """Begin a fan-out in place of the sending visit's edges. With `is_exempt` its nodes are not
    counted: continuing with a single further call is not a round of a loop.
    """
    for name in () if is_exempt else dict.fromkeys(each.node for each in sends):
        if not routing.count(step, visit.scope, name, visit.members, visit.address):
            return
    step.drop_visit(visit.address)
    graph = step.run.graph_of(visit.scope)
    fan = FanOut(
        outer=visit.members,
        joins=items.gathering(graph, graph.declared_by(visit.node)),
        items=[Item(item=each.item) for each in sends],
        gates=visit.gates,
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
    """Record that a visit of an item has come to a join."""
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
        reopening.ask_again(step, gate, before=address)
        return
    try:
        items.put_patch(step, scope_address, fan.outer, *(item.patch for item in merged.values()))
    except patch.PatchError as error:
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
        routing.go(step, scope_address, target, members=fan.outer, results=results, behind=behind)


def _status(item: Item) -> str:
    if item.skipped:
        return "skipped"
    if item.joins_reached:
        return "arrived"
    return "left" if item.left_fan_out else "ended"
