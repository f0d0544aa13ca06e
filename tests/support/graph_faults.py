"""What is wrong with a graph, as its author is told when it is built."""

from __future__ import annotations

import pytest

from abeyance import Graph, GraphError


def faults(graph: Graph) -> tuple[str, ...]:
    with pytest.raises(GraphError) as caught:
        graph.build()
    return caught.value.faults


def unplaced(graph: Graph) -> tuple[str, ...]:
    """The faults of a graph, without their lines."""
    return tuple(fault[: fault.rindex(" (")] for fault in faults(graph))


def only_fault(graph: Graph) -> str:
    (fault,) = unplaced(graph)
    return fault
