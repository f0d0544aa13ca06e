"""Which nodes of a graph are reached only by way of the answers of which gates, by the graph alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from abeyance.core.json import paths
from abeyance.core.spec import (
    END,
    START,
    Always,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    SubgraphNode,
)

Gate: TypeAlias = tuple[tuple[str, ...], str]
"""The path of nodes to a nested graph, and a gate in it."""


def fields_of(node: InterruptNode) -> list[str]:
    """The fields that the prompt of a gate shows, in their order."""
    return list(paths(node.question.prompt))


def graph_at(spec: GraphSpec, path: Iterable[str]) -> GraphSpec:
    for name in path:
        node = spec.nodes[name]
        assert isinstance(node, SubgraphNode)
        spec = node.graph
    return spec


def passed_by(spec: GraphSpec, path: tuple[str, ...], name: str) -> frozenset[Gate]:
    """The gates that were answered when a node has finished in its own way."""
    if name in _sent_to(spec):
        return frozenset()
    match spec.nodes.get(name):
        case InterruptNode() as node if fields_of(node):
            return frozenset({(path, name)})
        case SubgraphNode(graph=inner):
            firsts = [
                inner.nodes[edge.target]
                for edge in inner.edges
                if edge.sources == (START,)
                and isinstance(edge.condition, Always)
                and edge.target != END
            ]
            return frozenset(
                ((*path, name), node.id)
                for node in firsts
                if isinstance(node, InterruptNode)
                and fields_of(node)
                and node.id not in _sent_to(inner)
                and not isinstance(node.question.on_timeout, GoTo)
            )
        case _:
            return frozenset()


def _sent_to(spec: GraphSpec) -> set[str]:
    """The nodes that may be within an item of a fan-out."""
    nodes = [node for node in spec.nodes.values() if isinstance(node, FunctionNode)]
    reached = {target for node in nodes for target in node.to}
    waiting = list(reached)
    while waiting:
        found = spec.successors(waiting.pop()) - reached
        reached |= found
        waiting += found
    return reached


def behind(spec: GraphSpec, path: tuple[str, ...]) -> dict[str, frozenset[Gate]]:
    """The gates of a graph, at this path, that each node lies behind."""
    passed = {name: passed_by(spec, path, name) for name in spec.nodes}
    everything = frozenset[Gate]().union(*passed.values())
    known = dict.fromkeys(spec.nodes, everything)
    while True:
        found = {
            name: _meet(_ways_to(spec, name, known, passed), everything) for name in spec.nodes
        }
        if found == known:
            return known
        known = found


def _meet(ways: list[frozenset[Gate]], everything: frozenset[Gate]) -> frozenset[Gate]:
    return everything.intersection(*ways) if ways else everything


def _ways_to(
    spec: GraphSpec,
    name: str,
    known: Mapping[str, frozenset[Gate]],
    passed: Mapping[str, frozenset[Gate]],
) -> list[frozenset[Gate]]:
    """What is known to be answered on each way to a node."""

    def by(source: str) -> frozenset[Gate]:
        return known.get(source, frozenset()) | passed.get(source, frozenset())

    ways = []
    for edge in spec.edges:
        if edge.target == name:
            sources = [by(source) for source in edge.sources]
            is_all = edge.join == "all"
            ways.append(
                frozenset().union(*sources) if is_all else sources[0].intersection(*sources)
            )
    ways += [by(route.source) for route in spec.routes if name in route.targets]
    for source, node in spec.nodes.items():
        ways += [by(source) for rule in spec.rules_on(source) if name in rule.targets(source)]
        match node:
            case FunctionNode(to=to) if name in to:
                ways.append(by(source))
            case _:
                pass
        match node:
            case (
                FunctionNode(on_error=GoTo(node=target)) | SubgraphNode(on_error=GoTo(node=target))
            ) if target == name:
                ways.append(known[source])
            case InterruptNode() if node.question.on_timeout == GoTo(node=name):
                ways.append(known[source])
            case _:
                pass
    return ways
