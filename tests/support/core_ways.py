"""One step of a run, where it may lead, and how far."""

from __future__ import annotations

from abeyance.core import events, machine
from abeyance.core.effects import Effect
from abeyance.core.spec import GraphSpec, SubgraphNode
from abeyance.core.state import RunState, copied
from abeyance.errors import Refusal


def targets_of(graph: GraphSpec, node: str) -> list[str]:
    """Where the routes of a node may lead."""
    return [target for route in graph.routes_from(node) for target in route.targets]


def most_steps(state: RunState) -> int:
    """In how many steps a run of a graph without loops ends, if everybody does their part."""
    nested = [node.graph for node in state.spec.nodes.values() if isinstance(node, SubgraphNode)]
    nodes = len(state.spec.nodes) + sum(len(graph.nodes) for graph in nested)
    most: int = 8 * 2**nodes + 8 * len(state.visits)
    return most


def has_a_loop(spec: GraphSpec) -> bool:
    """Whether a node can be reached from itself."""
    reached = {name: set(spec.successors(name)) for name in spec.nodes}
    for _ in spec.nodes:
        for found in reached.values():
            found.update(*(reached[name] for name in list(found)))
    inner = [node.graph for node in spec.nodes.values() if isinstance(node, SubgraphNode)]
    return any(name in found for name, found in reached.items()) or any(map(has_a_loop, inner))


def advanced(
    state: RunState, event: events.Event
) -> tuple[RunState, tuple[Effect, ...], Refusal | None]:
    """A copy of a run after an event, and what it wants; or the same run, and the refusal."""
    after = copied(state)
    try:
        return after, machine.advance(after, event), None
    except Refusal as refusal:
        assert after == state, "a refusal changes nothing"
        return state, (), refusal


def checked(state: RunState, event: events.Event) -> Refusal | None:
    """The refusal of an event, if it is refused."""
    try:
        machine.check(state, event)
    except Refusal as refusal:
        return refusal
    return None
