"""A graph with other names of nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from abeyance.core.spec import (
    END,
    START,
    Ask,
    FunctionNode,
    GoTo,
    GraphSpec,
    InterruptNode,
    Node,
    Parallel,
    SubgraphNode,
)


def renamed(spec: GraphSpec, suffix: str, around: str = "") -> tuple[GraphSpec, dict[str, str]]:
    """The graph with a suffix at every node's name, in nested graphs too, and the map of all names."""
    place = around.replace(".", f"{suffix}.")
    names = {f"{around}{name}": f"{place}{name}{suffix}" for name in spec.nodes}

    def new(name: str) -> str:
        return name if name in {START, END} else f"{name}{suffix}"

    def going(action: Any) -> Any:
        match action:
            case GoTo(node=node):
                return replace(action, node=new(node))
            case Parallel(nodes=nodes):
                return replace(action, nodes=tuple(map(new, nodes)))
            case Ask(question=question):
                asked = replace(question, on_timeout=going(question.on_timeout))
                return replace(action, question=asked)
            case _:
                return action

    def moved(node: Node) -> Node:
        match node:
            case InterruptNode(question=question):
                name = new(question.name) if question.name == node.id else question.name
                asked = replace(question, name=name, on_timeout=going(question.on_timeout))
                return replace(node, id=new(node.id), question=asked)
            case FunctionNode():
                to = tuple(map(new, node.to))
                return replace(node, id=new(node.id), to=to, on_error=going(node.on_error))
            case SubgraphNode():
                graph, inner = renamed(node.graph, suffix, f"{around}{node.id}.")
                names.update(inner)
                return replace(node, id=new(node.id), graph=graph, on_error=going(node.on_error))

    nodes = {new(name): moved(node) for name, node in spec.nodes.items()}
    return replace(
        spec,
        nodes=nodes,
        edges=tuple(
            replace(edge, sources=tuple(map(new, edge.sources)), target=new(edge.target))
            for edge in spec.edges
        ),
        routes=tuple(
            replace(route, source=new(route.source), targets=tuple(map(new, route.targets)))
            for route in spec.routes
        ),
        rules=tuple(
            replace(
                rule,
                condition=replace(
                    rule.condition,
                    node=None if rule.condition.node is None else new(rule.condition.node),
                ),
                actions=tuple(map(going, rule.actions)),
            )
            for rule in spec.rules
        ),
        finally_nodes=tuple(map(new, spec.finally_nodes)),
        interrupt_before=tuple(map(new, spec.interrupt_before)),
        interrupt_after=tuple(map(new, spec.interrupt_after)),
    ), names
