"""Graphs inside graphs, as they are when the outer one is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from abeyance.core.model import Node, SubgraphNode
from abeyance.errors import GraphError
from abeyance.intake import Intake

if TYPE_CHECKING:
    from abeyance.graph import Graph


def nested_in(graph: Graph, nodes: Mapping[str, Node], intake: Intake) -> dict[str, Node]:
    """The nodes of a graph, with the nested graphs taken in; what is wrong with those is noted."""
    found = dict(nodes)
    for name, inner in graph.subgraphs.items():
        node = found[name]
        if not isinstance(node, SubgraphNode):
            continue
        if inner is graph or any(each is graph for each in _inside(inner)):
            intake.note(f"the nested graph {name!r} contains this graph itself, without an end")
            continue
        try:
            spec = inner.build()
        except GraphError as error:
            for fault in error.faults:
                intake.note(f"the nested graph {name!r}: {fault}")
            continue
        handed_in = node.input
        if handed_in is None:
            handed_in = {field: field for field in graph.states.fields}
        defaults, missing = inner.states.defaults(handed_in)
        # An open state may have any field by the time that the nested graph is entered.
        for field in () if graph.states.is_open and node.input is None else missing:
            intake.note(
                f"the nested graph {name!r} gets no value for {field!r}, which has no default: map a "
                "field to it with input={...}"
            )
        found[name] = replace(node, graph=spec, defaults=defaults)
    return found


def _inside(graph: Graph) -> list[Graph]:
    found: list[Graph] = []
    waiting = list(graph.subgraphs.values())
    while waiting:
        inner = waiting.pop()
        if not any(inner is each for each in found):
            found.append(inner)
            waiting += inner.subgraphs.values()
    return found
