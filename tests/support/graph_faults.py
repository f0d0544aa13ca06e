"""The faults of a graph, as its author sees them when the graph is built."""

from __future__ import annotations

import pytest

from abeyance import Graph, GraphError


def faults(graph: Graph) -> tuple[str, ...]:
    with pytest.raises(GraphError) as caught:
        graph.build()
    return caught.value.faults


def unplaced(graph: Graph) -> tuple[str, ...]:
    """Return the faults of a graph, without their places in the source."""
    return tuple(fault[: fault.rindex(" (")] for fault in faults(graph))


def only_fault(graph: Graph) -> str:
    (fault,) = unplaced(graph)
    return fault
