"""Graphs inside graphs, as they are when the outer one is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from abeyance.core.model import Node, SubgraphNode
from abeyance.errors import GraphError
from abeyance.nodes.intake import Intake
from abeyance.values.fitting import field_schema, misfit
from abeyance.values.statemodel import StateModel

if TYPE_CHECKING:
    from abeyance.graphs.graph import Graph


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
            # As much of it as what leads in and out is held against.
            known = replace(
                node.graph, fields=inner.states.field_specs(), open_values=inner.states.is_open
            )
            found[name] = replace(node, graph=known)
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
        for fault in _misfits(graph.states, inner.states, node):
            intake.note(f"the nested graph {name!r}, {fault}")
        found[name] = replace(node, graph=spec, defaults=defaults)
    return found


def _misfits(outer: StateModel, inner: StateModel, node: SubgraphNode) -> Iterator[str]:
    ways = (
        ("input=", node.input, outer, inner),
        ("output=", node.output, inner, outer),
    )
    for told, mapping, source, target in ways:
        shared = {field: field for field in source.fields if field in target.fields}
        for taken, given in (shared if mapping is None else mapping).items():
            why = misfit(field_schema(source, given), field_schema(target, taken))
            if why is not None:
                yield f"{told}: {given!r} cannot become {taken!r}: {why}"


def _inside(graph: Graph) -> list[Graph]:
    found: list[Graph] = []
    waiting = list(graph.subgraphs.values())
    while waiting:
        inner = waiting.pop()
        if not any(inner is each for each in found):
            found.append(inner)
            waiting += inner.subgraphs.values()
    return found
