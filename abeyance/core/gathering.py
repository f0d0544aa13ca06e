"""Where a fan-out is gathered: known from the graph, before it begins.

It is gathered at the joins that can be reached from the targets of the node that sends, counting a
sending node on the way as one more fan-out, and its join as the end of that.
"""

from __future__ import annotations

from abeyance.core.model import FunctionNode, GraphSpec


def gathering(graph: GraphSpec, targets: tuple[str, ...]) -> tuple[str, ...]:
    """The joins that gather a fan-out to these targets, by their keys, in order of declaration."""
    depths = dict.fromkeys(targets, 1)
    waiting = list(depths)
    while waiting:
        name = waiting.pop()
        node = graph.nodes.get(name)
        deeper = node.to if isinstance(node, FunctionNode) else ()
        joined = {edge.target for edge in graph.edges_from(name) if edge.is_join}
        for target in graph.successors(name):
            depth = depths[name] + (target in deeper) - (target in joined)
            # A node that is reached in several ways stands where the shallowest leads: the deeper one
            # was a goto, or goes round.
            if 0 < depth < depths.get(target, len(graph.nodes) + 1):
                depths[target] = depth
                waiting.append(target)
    return tuple(
        edge.key
        for edge in graph.edges
        if edge.is_join and any(depths.get(source) == 1 for source in edge.sources)
    )
